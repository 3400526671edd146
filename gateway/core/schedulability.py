"""The two tests behind admission: utilisation (Phase 1) and the EDF imitator (Phase 2).

DeepRT (Yang et al., SEC 2021, arXiv 2105.01803, section 4) with the corrections of ``docs/decisions``: the
paper's floor formula can refuse a set that can be scheduled, so Phase 1 here is a true lower bound.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from gateway.core.config import UtilizationTest
from gateway.core.plan_state import AdmissionState
from gateway.core.profile import split
from gateway.core.pseudo_jobs import PseudoJobs
from gateway.core.types import Category

#: Phase 1 sums floats; a use of exactly 1 must not be refused for its last bit.
TOLERANCE = 1e-9
#: The interval condition is tried at no more than this many ends (and starts): it is a filter, not the decision.
_MOST_POINTS = 64


def envelope(table: tuple[int, ...], n: float) -> float:
    """Return the lower convex envelope of the split execution function at `n` >= 0 frames, in ns.

    Args:
        table: E by batch size, index 0 (0 ns) to the largest batch B.
        n: Mean number of frames in a window, not rounded.

    The split function grows by E(B) every B frames, so beyond the point that lies lowest against a line of slope
    E(B)/B the envelope is that line.
    """
    slope = table[-1] / (len(table) - 1)
    foot = min(range(len(table) - 1), key=lambda m: (table[m] - slope * m, m))
    hull: list[tuple[int, int]] = []
    for point in enumerate(table[: foot + 1]):
        while len(hull) >= 2 and _above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    for (left, low), (right, high) in itertools.pairwise(hull):
        if n <= right:
            return low + (high - low) * (n - left) / (right - left)
    return table[foot] + slope * (n - foot)


def _above(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Whether `b` lies on or above the line from `a` to `c`."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


def utilization(state: AdmissionState) -> float:
    """Return Phase 1's estimate of the share of the device's time that the streams of `state` need.

    With the envelope: a lower bound, over unbounded streams only. With DeepRT's formula: over all streams.
    """
    deeprt = state.config.utilization_test is UtilizationTest.DEEPRT
    windows = {window.category: window.window_ns for window in state.windows}
    means: dict[Category, float] = defaultdict(float)
    for stream in state.streams:
        if deeprt or stream.remaining is None:
            means[stream.category] += windows[stream.category] / stream.period_ns
    used = 0.0
    for category, mean in means.items():
        table = state.profile.table(category)
        work = split(table, int(mean + TOLERANCE)) if deeprt else envelope(table, mean)
        used += work / windows[category]
    return used


def interval_demand(state: AdmissionState) -> float:
    """Return the largest share of an interval [A, X] that frames promised within it need; above 1 is infeasible.

    A job that holds a frame which arrives at or after A, due by X, starts at or after A and ends by X; a frame needs at
    least ``min over n of E(n) / n``. Tried for A at the first arrivals and X at the last deadlines of the streams.
    """
    if not state.streams:
        return 0.0
    now_ns = state.now_ns
    first = np.array([s.next_ns - now_ns for s in state.streams], dtype=np.float64)
    period = np.array([s.period_ns for s in state.streams], dtype=np.float64)
    relative = np.array([s.deadline_ns for s in state.streams], dtype=np.float64)
    count = np.array([np.inf if s.remaining is None else float(s.remaining) for s in state.streams])
    cheapest: dict[Category, float] = {}
    for window in state.windows:
        table = state.profile.table(window.category)
        cheapest[window.category] = min(e / n for n, e in enumerate(table) if n)
    cost = np.array([cheapest[s.category] for s in state.streams])
    last = first + period * (count - 1) + relative
    ends = _spread(np.unique(last[np.isfinite(last)]))
    starts = _spread(np.unique(first))
    worst = 0.0
    for start in starts:
        skipped = np.maximum(0.0, np.ceil((start - first) / period))
        until = np.floor((ends[:, None] - relative - first) / period) + 1
        due = np.clip(np.minimum(until, count) - skipped, 0.0, None) @ cost
        length = ends - start
        shares = np.where(length > 0, due / np.where(length > 0, length, 1.0), 0.0)
        worst = max(worst, float(shares.max(initial=0.0)))
    return worst


def _spread(points: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """At most `_MOST_POINTS` of sorted points, the first and the last among them."""
    if len(points) <= _MOST_POINTS:
        return points
    picked: np.ndarray = points[np.linspace(0, len(points) - 1, _MOST_POINTS).astype(int)]  # type: ignore[type-arg]
    return picked


@dataclass(frozen=True, slots=True)
class Imitation:
    """What EDF would do with the jobs of a plan.

    Rows number the ready jobs first, then the pseudo jobs in their order.

    Attributes:
        finish: End of each row's execution, relative ns; 0 where the run stopped before it.
        missed: The first row that would end after its deadline; None when all are in time.
    """

    finish: list[int]
    missed: int | None


def imitate(state: AdmissionState, jobs: PseudoJobs) -> Imitation:
    """Run DeepRT's EDF imitator: non-preemptive, non-idling, ties by (deadline, release, order of opening).

    Cost: O(n log n) on small integers; every job is represented by its EDF rank.
    """
    now_ns = state.now_ns
    held = len(state.ready)
    release = np.concatenate([np.zeros(held, dtype=np.int64), jobs.release])
    deadline = np.concatenate(
        [np.array([job.deadline_ns - now_ns for job in state.ready], dtype=np.int64), jobs.deadline]
    )
    key_release = np.concatenate(
        [np.array([job.release_ns - now_ns for job in state.ready], dtype=np.int64), jobs.release]
    )
    execution = [job.execution_ns for job in state.ready] + jobs.execution.tolist()
    row_of_rank = np.lexsort((np.arange(len(release)), key_release, deadline))
    rank = np.empty_like(row_of_rank)
    rank[row_of_rank] = np.arange(len(release))
    by_release = np.argsort(release, kind="stable")
    return _run(
        t=state.free_ns - now_ns,
        releases=release[by_release].tolist(),
        ranks=rank[by_release].tolist(),
        row_of_rank=row_of_rank.tolist(),
        execution=execution,
        deadline=deadline.tolist(),
    )


def _run(
    *, t: int, releases: list[int], ranks: list[int], row_of_rank: list[int], execution: list[int], deadline: list[int]
) -> Imitation:
    """The imitator's loop over jobs sorted by release; `ranks` are their places in EDF order."""
    finish = [0] * len(releases)
    queue: list[int] = []
    push, pop = heapq.heappush, heapq.heappop
    i, total = 0, len(releases)
    while queue or i < total:
        if not queue and t < releases[i]:
            t = releases[i]
        while i < total and releases[i] <= t:
            push(queue, ranks[i])
            i += 1
        row = row_of_rank[pop(queue)]
        t += execution[row]
        finish[row] = t
        if t > deadline[row]:
            return Imitation(finish, row)
    return Imitation(finish, None)
