"""Predicted against actual (DeepRT, Yang et al., SEC 2021, arXiv 2105.01803, figure 9, left)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gateway.capacity.decisions import Decisions, StreamSeen
from gateway.core.types import NS_PER_MS

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of one figure over jobs.

    Attributes:
        jobs: How many.
        p50, p90, p99, max: Percentiles.
        over: Share of jobs above the plan: a ratio over 1, an end after the planned one.
    """

    jobs: int
    p50: float
    p90: float
    p99: float
    max: float
    over: float


@dataclass(frozen=True, slots=True)
class JobAccuracy:
    """Of the jobs of one category, or of all.

    Attributes:
        execution_ratio: Actual over expected execution time.
        end_behind_ms: Actual minus planned end, of jobs that ran under a plan; None without any.
    """

    execution_ratio: Distribution
    end_behind_ms: Distribution | None


@dataclass(frozen=True, slots=True)
class StreamAccuracy:
    """Of one admitted stream. Times in ms.

    Attributes:
        stream, category, test: Which, and which test admitted it.
        frames: Delivered ones.
        deadline_ms: Relative; None without a frame.
        planned_worst_ms: What admission planned, with the streams there were then; None if it did not say.
        worst_ms: What came; None without a delivered frame.
        within: Whether it stayed within the plan; None where either is not known. Streams admitted later change the
            plan, so that one that did not has not broken its promise; the promise is the deadline.
        met: Frames answered within their deadlines; None if the log does not say.
        ended: Frames delivered, expired or failed; not those cancelled.
        cancelled: Frames that ended without that anybody waited for them.
        name: Of the camera; empty if it has none, or the log does not say.
    """

    stream: str
    category: str
    test: str
    frames: int
    deadline_ms: float | None
    planned_worst_ms: float | None
    worst_ms: float | None
    within: bool | None
    met: int | None
    ended: int
    cancelled: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """What ``framegate accuracy`` says."""

    overall: JobAccuracy
    categories: dict[str, JobAccuracy]
    streams: tuple[StreamAccuracy, ...]
    skipped_lines: int
    half_line: bool
    dropped_actions: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {"jobs": self.overall.execution_ratio.jobs, **asdict(self)}


def compare(decisions: Decisions) -> AccuracyReport:
    """Return the comparison; there must be a delivered job."""
    ratios, behind = decisions.samples()
    return AccuracyReport(
        overall=_jobs(np.concatenate(list(ratios.values())), np.concatenate(list(behind.values()))),
        categories={name: _jobs(ratios[name], behind[name]) for name in sorted(ratios)},
        streams=tuple(_stream(name, seen) for name, seen in decisions.streams.items()),
        skipped_lines=decisions.skipped,
        half_line=decisions.half_line,
        dropped_actions=decisions.dropped,
    )


def _jobs(ratios: _Floats, behind: _Floats) -> JobAccuracy:
    return JobAccuracy(_distribution(ratios, 1.0), _distribution(behind, 0.0) if len(behind) else None)


def _distribution(values: _Floats, limit: float) -> Distribution:
    p50, p90, p99 = (float(p) for p in np.percentile(values, [50, 90, 99]))
    return Distribution(len(values), p50, p90, p99, float(values.max()), float((values > limit).mean()))


def _stream(name: str, seen: StreamSeen) -> StreamAccuracy:
    known = seen.planned_ns is not None and seen.worst_ns is not None
    return StreamAccuracy(
        stream=name,
        category=seen.category,
        test=seen.test,
        frames=seen.frames,
        deadline_ms=_ms(seen.deadline_ns),
        planned_worst_ms=_ms(seen.planned_ns),
        worst_ms=_ms(seen.worst_ns),
        within=(seen.worst_ns or 0) <= (seen.planned_ns or 0) if known else None,
        met=seen.met,
        ended=seen.frames + seen.missing,
        cancelled=seen.cancelled,
        name=seen.name,
    )


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / NS_PER_MS
