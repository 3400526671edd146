"""Phase 1 of admission: cheap necessary conditions, which refuse nothing that Phase 2 admits.

DeepRT (Yang et al., SEC 2021, arXiv 2105.01803, section 4) with the corrections of ``docs/decisions``: the
paper's floor formula can refuse a set that can be scheduled, so Phase 1 here is a true lower bound. Jitter is ignored:
it only adds work and constraints.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gateway.core.config import UtilizationTest
from gateway.core.expected import places
from gateway.core.plan_state import AdmissionState
from gateway.core.profile import split

#: Phase 1 sums floats; a use of exactly 1 must not be refused for its last bit.
TOLERANCE = 1e-9
#: The interval condition is tried at no more than this many ends (and starts): it is a filter, not the decision.
_MOST_POINTS = 8
#: Later than any instant that is looked at; sums of two fit 64 bits.
_FAR_NS = 2**61


def envelope(table: tuple[int, ...], n: float) -> float:
    """Return the lower convex envelope of the split execution function at `n` >= 0 frames, in ns.

    Args:
        table: E by batch size, index 0 (0 ns) to the largest batch B.
        n: Mean number of frames in a window, not rounded.

    The split function grows by E(B) every B frames, so beyond the point that lies lowest against a line of slope
    E(B)/B the envelope is that line.
    """
    hull = _lower_hull(table)
    for (left, low), (right, high) in itertools.pairwise(hull):
        if n <= right:
            return low + (high - low) * (n - left) / (right - left)
    foot, low = hull[-1]
    return low + table[-1] / (len(table) - 1) * (n - foot)


@lru_cache(maxsize=1024)
def _lower_hull(table: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Corners of the envelope, up to its foot on the line of full batches."""
    slope = table[-1] / (len(table) - 1)
    foot = min(range(len(table) - 1), key=lambda m: (table[m] - slope * m, m))
    hull: list[tuple[int, int]] = []
    for point in enumerate(table[: foot + 1]):
        while len(hull) >= 2 and _above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return tuple(hull)


def _above(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Whether `b` lies on or above the line from `a` to `c`."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


@lru_cache(maxsize=1024)
def _cheapest(table: tuple[int, ...]) -> float:
    """The least that a frame can cost, in a batch of the best size."""
    return min(e / n for n, e in enumerate(table) if n)


def utilization(state: AdmissionState) -> float:
    """Return Phase 1's estimate of the share of the device's time that the streams of `state` need.

    With the envelope: a lower bound, over unbounded streams only. With DeepRT's formula: over all streams.
    """
    deeprt = state.config.utilization_test is UtilizationTest.DEEPRT
    if not deeprt and all(stream.remaining is not None for stream in state.streams):
        return 0.0
    means = [0.0] * len(state.windows)
    for stream, place in zip(state.streams, places(state), strict=True):
        if deeprt or stream.remaining is None:
            means[place] += stream.burst * state.windows[place].window_ns / stream.period_ns
    used = 0.0
    for window, mean in zip(state.windows, means, strict=True):
        if mean:
            table = state.profile.table(window.category)
            work = split(table, int(mean + TOLERANCE)) if deeprt else envelope(table, mean)
            used += work / window.window_ns
    return used


def interval_demand(state: AdmissionState) -> float:
    """Return the largest share of an interval [A, X] that frames promised within it need; above 1 is infeasible.

    A job that holds a frame which arrives at or after A, due by X, starts at or after A and ends by X; a frame needs at
    least ``min over n of E(n) / n``. Tried for A at the first arrivals and X at the last deadlines of the streams.
    """
    if not state.streams:
        return 0.0
    now_ns = state.now_ns
    rows = [
        (
            s.next_ns - now_ns,
            s.period_ns,
            s.deadline_ns,
            s.burst,
            s.group_left,
            s.overdue,
            _FAR_NS if s.remaining is None else min(s.remaining - s.overdue, _FAR_NS),
        )
        for s in state.streams
    ]
    first, period, relative, burst, left, overdue, rest = np.array(rows, dtype=np.int64).T
    # Of the last frames; those of unbounded streams and of others without end in sight are left out.
    groups = np.maximum(0, -((left - rest) // burst))
    near = first + groups.astype(np.float64) * period + relative < _FAR_NS
    last = first[near] + groups[near] * period[near]
    ends = _spread(np.where(rest[near] > 0, np.maximum(0, last), 0) + relative[near])
    if not len(ends):
        return 0.0
    cheapest = [_cheapest(state.profile.table(window.category)) for window in state.windows]
    cost = np.array([cheapest[place] for place in places(state)])
    starts = _spread(np.concatenate([np.maximum(0, first), np.zeros_like(first[overdue > 0])]))

    def frames(groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How many frames so many first groups hold."""
        return np.where(groups > 0, np.minimum(left + (groups - 1) * burst, rest), 0)

    # Frames that should have come already are taken to arrive now, at 0.
    skipped = np.where(starts[:, None] > 0, -((first - starts[:, None]) // period), 0)
    until = np.where(ends[:, None] >= relative, (ends[:, None] - relative - first) // period + 1, 0)
    due = np.maximum(0, frames(until)[None, :, :] - frames(skipped)[:, None, :]).astype(np.float64)
    due += ((starts[:, None] <= 0)[:, None, :] & (ends[:, None] >= relative)[None, :, :]) * overdue
    length = (ends[None, :] - starts[:, None]).astype(np.float64)
    work = due @ cost
    return float(np.divide(work, length, out=np.zeros_like(work), where=length > 0).max(initial=0.0))


def _spread(points: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """At most `_MOST_POINTS` of the points in order, the first and the last among them."""
    ordered = np.unique(points)
    if len(ordered) <= _MOST_POINTS:
        return ordered
    picked: npt.NDArray[np.int64] = ordered[np.linspace(0, len(ordered) - 1, _MOST_POINTS).astype(int)]
    return picked
