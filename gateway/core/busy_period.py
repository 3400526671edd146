"""Busy periods of a resource that serves windows without preemption, earliest deadline first: is every one in time?

The resource is the device (`gateway.core.sporadic`), or the swap region (`gateway.core.swap_test`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gateway.core.arrival_curve import Curve
from gateway.core.verdict import Reason

_Ints = npt.NDArray[np.int64]

#: At most so many pairs of a step and a category are looked at: 5 ms. When the busy period does not end in sight, since
#: the use is very close to 1 or windows differ by a factor of many thousands, nothing can be said, and the set is
#: refused.
_MOST_PAIRS = 150_000
#: The first look reaches this many times the work of one window of each category.
_FIRST_LOOK = 2
#: Each further look reaches so much farther.
_FARTHER = 4


class Line:
    """The windows of one category in a busy period.

    Args:
        curve: Of the category.
        offset_ns: The earliest release of the first window; each further one is W later at the earliest.
        first_due_ns: The earliest deadline of the first window.
        work: Most work of the first 0, 1, ... windows, up to a given number of them.
        due_offset_ns: That of window k is this + k W, k = 2, 3, ...; None: `offset_ns`.

    Attributes:
        curve, offset_ns, first_due_ns: As given.
    """

    def __init__(
        self,
        curve: Curve,
        offset_ns: int,
        first_due_ns: int,
        work: Callable[[int], _Ints],
        *,
        due_offset_ns: int | None = None,
    ) -> None:
        self.curve = curve
        self.offset_ns = offset_ns
        self.first_due_ns = first_due_ns
        self._due_offset_ns = offset_ns if due_offset_ns is None else due_offset_ns
        self._work = work

    def work(self, until_ns: int) -> _Ints:
        """Most work of the first 0, 1, ... windows, as many as are released by `until_ns`."""
        return self._work(max(1, (until_ns - self.offset_ns) // self.curve.window_ns + 1))

    def steps(self, until_ns: int) -> tuple[_Ints, _Ints]:
        """Releases and deadlines up to `until_ns`."""
        window_ns = self.curve.window_ns
        releases = np.arange(self.offset_ns, until_ns + 1, window_ns)
        dues = np.arange(self._due_offset_ns + 2 * window_ns, until_ns + 1, window_ns)
        if self.first_due_ns <= until_ns:
            dues = np.concatenate([np.array([self.first_due_ns]), dues])
        return releases, dues

    def due_by(self, t: _Ints) -> _Ints:
        """How many windows are due by each instant."""
        return np.where(t < self.first_due_ns, 0, np.maximum((t - self._due_offset_ns) // self.curve.window_ns, 1))

    def released_before(self, t: _Ints) -> _Ints:
        """How many releases lie before each instant."""
        return np.maximum(-((self.offset_ns - t) // self.curve.window_ns), 0)


@dataclass(frozen=True, slots=True)
class Look:
    """What a busy period showed.

    Attributes:
        reason: Why it refuses; None: all are in time.
        busy_ns: How long it is at most.
        slack_ns: The least by which a deadline from the first of the category in question on is kept.
        step_ns, demand_ns: The first deadline that is not met, and the work due by then.
        spare_ns: The least by which any deadline is kept.
    """

    reason: Reason | None
    busy_ns: int = 0
    slack_ns: int = 0
    step_ns: int = 0
    demand_ns: int = 0
    spare_ns: int = 0


def look(
    lines: list[Line],
    first_ns: int,
    held: Sequence[tuple[int, int]] = (),
    mine: int | None = None,
    *,
    early: Sequence[tuple[int, int]] = (),
) -> Look:
    """Check every deadline of a busy period.

    Args:
        lines: Windows to come.
        first_ns: It begins with so much other work.
        held: ``(deadline, work)`` of what waits when it begins.
        mine: Index of the line whose slack is asked for.
        early: ``(instant, work)``: if that is more, it counts instead of `first_ns` for deadlines before the instant.
    """
    held = sorted(held)
    due = np.array([due_ns for due_ns, _ in held], dtype=np.int64)
    cost = np.cumsum([0, *(work_ns for _, work_ns in held)])
    start_ns = max([first_ns, *(work_ns for _, work_ns in early)]) + int(cost[-1])
    reach_ns = _FIRST_LOOK * (start_ns + sum(int(line.work(0)[1]) for line in lines)) + 1
    last = False
    while True:
        pairs = len(lines) * sum(max(0, reach_ns - line.offset_ns) // line.curve.window_ns + 1 for line in lines)
        if pairs > _MOST_PAIRS:
            reach_ns, last = max(1, reach_ns * _MOST_PAIRS // pairs), True
        steps = [line.steps(reach_ns) for line in lines]
        work = [line.work(reach_ns) for line in lines]
        releases = np.unique(np.concatenate([np.array([reach_ns]), *(releases for releases, _ in steps)]))
        releases = releases[releases > 0]
        released = start_ns + sum(w[line.released_before(releases)] for line, w in zip(lines, work, strict=True))
        ended = releases[released <= releases]
        busy_ns = int(ended[0]) if len(ended) else reach_ns
        t = np.unique(np.concatenate([due, *(dues for _, dues in steps)]))
        t = t[t <= busy_ns]
        first = np.full(len(t), first_ns)
        for before_ns, work_ns in early:
            first = np.maximum(first, np.where(t < before_ns, work_ns, 0))
        demand = first + cost[np.searchsorted(due, t, side="right")]
        demand = demand + sum(w[line.due_by(t)] for line, w in zip(lines, work, strict=True))
        late = np.flatnonzero(demand > t)
        if len(late):
            step = int(late[0])
            return Look(Reason.DEADLINE_MISS, busy_ns, 0, int(t[step]), int(demand[step]))
        if len(ended):
            slack = t - demand
            least_ns = 0
            if mine is not None:
                own = slack[t >= lines[mine].first_due_ns]
                least_ns = int(own.min(initial=max(0, lines[mine].first_due_ns - busy_ns) if not len(own) else 2**62))
            return Look(None, busy_ns, least_ns, spare_ns=int(slack.min(initial=2**62)))
        if last:
            return Look(Reason.BEYOND_HORIZON, busy_ns)
        reach_ns *= _FARTHER
