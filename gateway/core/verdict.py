"""The answer to "will this camera fit?": a value with evidence, never an exception."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.core.types import Category


class Reason(StrEnum):
    """Why a stream was refused."""

    #: No profile entry for this model, version, shape and dtype: nothing can be promised.
    NOT_PROFILED = "not_profiled"
    #: The relative deadline is below the profiled time of one frame, on an idle device.
    DEADLINE_INFEASIBLE = "deadline_infeasible"
    #: Phase 1: the device would be asked for more than all of its time.
    UTILIZATION = "utilization"
    #: Phase 2: a job of some admitted stream, or of this one, would miss.
    DEADLINE_MISS = "deadline_miss"
    #: Phase 2: the frames to be followed, or the hyperperiod, exceed the limit, so nothing can be said.
    BEYOND_HORIZON = "beyond_horizon"


@dataclass(frozen=True, slots=True)
class FirstMiss:
    """The first job that would end after its deadline.

    Attributes:
        category: Of that job.
        streams: Ids of the streams whose frames it holds; the candidate's own id among them if so.
        frames: Its batch size.
        release_ns, deadline_ns, finish_ns: Relative to the instant of the test; in the sporadic test, to the start of
            the busy period in which it would happen.
        late_ns: ``finish_ns - deadline_ns``.
    """

    category: Category
    streams: tuple[str, ...]
    frames: int
    release_ns: int
    deadline_ns: int
    finish_ns: int

    @property
    def late_ns(self) -> int:
        """By how much the deadline would be missed."""
        return self.finish_ns - self.deadline_ns


@dataclass(frozen=True, slots=True)
class CounterOffer:
    """A change of one field that the same test would admit now.

    Attributes:
        field: ``period_ns``, ``deadline_ns`` or ``shape``.
        value: The smallest period, the smallest deadline (both ns), or the largest smaller shape.
    """

    field: str
    value: int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of an admission test.

    Attributes:
        admitted: Whether the candidate fits.
        test: Which test decided: ``exact`` (every frame of finite streams), ``hyperperiod`` (until the schedule
            repeats) or ``sporadic`` (demand bound; any phase, drift and jitter).
        phase: 1 utilisation, 2 EDF imitator; 0 when the candidate was refused on its own figures.
        reason: Set when refused.
        utilization: Phase 1's lower bound of the device's long-run use with the candidate, unbounded
            streams only; at or below 1 when admitted. When the condition on finite streams refuses: the
            share of the overfull interval that they need.
        horizon_ns: How far ahead phase 2 looked; 0 when it did not run.
        frames_checked: Number of future frames in that horizon.
        worst_latency_ns: Largest planned latency of a frame of the candidate; None when not known.
        first_miss: Evidence of phase 2.
    """

    admitted: bool
    test: str
    phase: int
    reason: Reason | None = None
    utilization: float = 0.0
    horizon_ns: int = 0
    frames_checked: int = 0
    worst_latency_ns: int | None = None
    first_miss: FirstMiss | None = None
