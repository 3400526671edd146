"""The answer to "will this camera fit?": a value with evidence, never an exception."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

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
    #: The models of all real-time streams do not fit into the memory budget together.
    MEMORY = "memory"
    #: The models that take turns in the swap region would not come round in time.
    SWAP = "swap"


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
class MemoryEvidence:
    """Why a model has no room.

    Attributes:
        unit: What the figures count: ``bytes`` or ``models``.
        needed: Of the model that was asked for; 0: not known, while the budget is in bytes.
        budget: In all.
        free: What the others that have to stay leave of it.
        held: Those others, with what each holds; the swap region is one of them.
        lost: What the worker holds beyond all that is known to be in it; counted against the budget.
    """

    unit: str
    needed: int
    budget: int
    free: int
    held: tuple[tuple[str, int], ...] = ()
    lost: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON, `held` by name."""
        return asdict(self) | {"held": dict(self.held)}


@dataclass(frozen=True, slots=True)
class SwapEvidence:
    """How the models that take turns in the swap region would do.

    Attributes:
        models: They, in order of name.
        region: Memory that is set aside for them, in the budget's unit.
        utilization: Of the region's time: unloads, loads, warm-ups and jobs.
        longest_turn_ns: The longest that one of them occupies the region for one window.
        late_ns: By how much the first window that comes round too late would be late; None when all are in time, or how
            long a model takes to load is not profiled.
    """

    models: tuple[str, ...]
    region: int
    utilization: float
    longest_turn_ns: int
    late_ns: int | None = None


@dataclass(frozen=True, slots=True)
class CounterOffer:
    """A change of one field that the same test would admit now.

    Attributes:
        field: ``period_ns``, ``deadline_ns``, ``shape`` or ``swapping``.
        value: The smallest period, the smallest deadline (both ns), the largest smaller shape, or True.
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
        memory: Why there is no room for its model.
        swap: Of the models that take turns, if there are any.
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
    memory: MemoryEvidence | None = None
    swap: SwapEvidence | None = None
