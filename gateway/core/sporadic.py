"""The sporadic test: a demand bound for windowed batches under plain non-preemptive EDF.

After Jeffay, Stanat and Martel (RTSS 1991) and George, Rivierre and Spuri (INRIA RR-2966, 1996), for jobs that are
batches of windows. What it admits misses nothing at or below the profiled times, for any phase, clock drift and jitter
within the contracts, with early dispatch, missing frames and best effort: without plan and without guard.

For a category g with window W, ``N(k)`` is the most frames that k consecutive windows can hold, and ``M(k)`` the most
execution time of such windows (`gateway.core.work_bound`). A job of g is released at a joint and due no earlier than W
after it. If a job is late at d, let t0 be the last instant before d at which no work due by d was waiting. From t0 to d
the device runs work that was released after t0 and is due by d, and before it one job that had started already. So the
set is safe if its long-run use is below 1 and for all ``t = k W`` of all categories

    sum over g of M_g(floor(t / W_g)) + B - 1 ns <= t

up to the end of the longest busy period. B is the longest job of any category, or a best-effort job: early dispatch and
best effort start only while nothing is ready, so each is the one job that had started already.

The same bound is then tried from the state as it is: the present busy period begins with the rest of the running job,
ready jobs and half-filled windows (*carry-in*), and a window that has been open for longer than W, because W shrinks
with this admission, may hold more than a window ever will again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gateway.core.arrival_curve import Curve, curves_of
from gateway.core.plan_state import AdmissionState
from gateway.core.types import Job
from gateway.core.verdict import FirstMiss, Reason

_Ints = npt.NDArray[np.int64]

#: At most so many pairs of a step and a category are looked at: 5 ms. When the busy period does not end in sight, since
#: the device's use is very close to 1 or windows differ by a factor of many thousands, nothing can be said, and the set
#: is refused.
_MOST_PAIRS = 150_000
#: The first look reaches this many times the work of one window of each category.
_FIRST_LOOK = 2
#: Each further look reaches so much farther.
_FARTHER = 4


@dataclass(frozen=True, slots=True)
class Demand:
    """Result of the sporadic test.

    Attributes:
        reason: Why it refuses; None when it admits.
        utilization: Long-run use of the device at worst, unbounded streams only.
        blocking_ns: B.
        busy_ns: The longest busy period that was looked at.
        worst_latency_ns: Bound on the latency of the last stream's frames; None without one, or when refused.
        first_miss: The step that fails, relative to the start of its busy period.
    """

    reason: Reason | None
    utilization: float
    blocking_ns: int = 0
    busy_ns: int = 0
    worst_latency_ns: int | None = None
    first_miss: FirstMiss | None = None


def sporadic(planned: AdmissionState, *, candidate: bool = True) -> Demand:
    """Test the streams of `planned`.

    Args:
        planned: The state with all changes that are asked for.
        candidate: Whether its last stream is one whose worst latency is asked for.

    Cost: bounded; 1 to 2 ms for 40 streams, at most about 20 ms.
    """
    curves = curves_of(planned)
    if any(curve.n1 > planned.config.max_horizon_frames for curve in curves):
        return Demand(Reason.BEYOND_HORIZON, 0.0)
    used = sum(curve.rate() for curve in curves)
    if used >= 1:
        return Demand(Reason.UTILIZATION, used)
    blocking_ns = _blocking_ns(planned, curves)
    mine = None
    if candidate:
        mine = next(i for i, curve in enumerate(curves) if curve.category == planned.streams[-1].category)
    steady = [_Line(curve, 0, curve.first_due_ns - curve.joint_ns, curve.transient) for curve in curves]
    later = _look(steady, max(0, blocking_ns - 1), (), mine)
    if later.reason is not None:
        return _refused(planned, later, steady, used, blocking_ns)
    present = [_Line(curve, curve.joint_ns, curve.first_due_ns, curve.carried) for curve in curves]
    now = _look(present, planned.free_ns - planned.now_ns, planned.ready, mine, planned.now_ns)
    if now.reason is not None:
        return _refused(planned, now, present, used, blocking_ns)
    return Demand(
        reason=None,
        utilization=used,
        blocking_ns=blocking_ns,
        busy_ns=max(later.busy_ns, now.busy_ns),
        worst_latency_ns=planned.streams[-1].deadline_ns - min(later.slack_ns, now.slack_ns) if candidate else None,
    )


def _blocking_ns(planned: AdmissionState, curves: list[Curve]) -> int:
    """Return B: the longest job that can hold up others, those that are ready now among them."""
    longest = [curve.longest_job_ns() for curve in curves]
    longest += [planned.profile.execution_ns(category, 1) for category in planned.best_effort]
    longest += [job.execution_ns for job in planned.ready]
    return max([planned.config.best_effort_blocking_ns, *longest])


class _Line:
    """The windows of one category in a busy period.

    Attributes:
        curve: Of the category.
        offset_ns: The first joint.
        first_due_ns: The earliest deadline of the first window; that of window k is ``offset_ns + k W``, k = 2, 3, ...
    """

    def __init__(self, curve: Curve, offset_ns: int, first_due_ns: int, work: Callable[[int], _Ints]) -> None:
        self.curve = curve
        self.offset_ns = offset_ns
        self.first_due_ns = first_due_ns
        self._work = work

    def work(self, until_ns: int) -> _Ints:
        """Most work of the first 0, 1, ... windows, as many as are released by `until_ns`."""
        return self._work(max(1, (until_ns - self.offset_ns) // self.curve.window_ns + 1))

    def steps(self, until_ns: int) -> tuple[_Ints, _Ints]:
        """Joints and deadlines up to `until_ns`."""
        grid = np.arange(self.offset_ns, until_ns + 1, self.curve.window_ns)
        dues = grid[1:].copy()
        dues[:1] = self.first_due_ns
        if not len(dues) and self.first_due_ns <= until_ns:
            dues = np.array([self.first_due_ns])
        return grid, dues

    def due_by(self, t: _Ints) -> _Ints:
        """How many windows are due by each instant."""
        return np.where(t < self.first_due_ns, 0, np.maximum((t - self.offset_ns) // self.curve.window_ns, 1))

    def released_before(self, t: _Ints) -> _Ints:
        """How many joints lie before each instant."""
        return np.maximum(-((self.offset_ns - t) // self.curve.window_ns), 0)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a busy period showed. `step` and `demand_ns` are of the first deadline that is not met."""

    reason: Reason | None
    busy_ns: int = 0
    slack_ns: int = 0
    step_ns: int = 0
    demand_ns: int = 0


def _look(lines: list[_Line], first_ns: int, ready: tuple[Job, ...], mine: int | None, now_ns: int = 0) -> _Look:
    """Check every deadline of a busy period that begins with `first_ns` of other work and the jobs in `ready`."""
    due = np.array(sorted(job.deadline_ns - now_ns for job in ready), dtype=np.int64)
    cost = [e for _, e in sorted((job.deadline_ns, job.execution_ns) for job in ready)]
    held = np.cumsum([0, *cost])
    start_ns = first_ns + int(held[-1])
    reach_ns = _FIRST_LOOK * (start_ns + sum(int(line.work(0)[1]) for line in lines)) + 1
    last = False
    while True:
        pairs = len(lines) * sum(max(0, reach_ns - line.offset_ns) // line.curve.window_ns + 1 for line in lines)
        if pairs > _MOST_PAIRS:
            reach_ns, last = max(1, reach_ns * _MOST_PAIRS // pairs), True
        steps = [line.steps(reach_ns) for line in lines]
        work = [line.work(reach_ns) for line in lines]
        joints = np.unique(np.concatenate([np.array([reach_ns]), *(joints for joints, _ in steps)]))
        joints = joints[joints > 0]
        released = start_ns + sum(w[line.released_before(joints)] for line, w in zip(lines, work, strict=True))
        ended = joints[released <= joints]
        busy_ns = int(ended[0]) if len(ended) else reach_ns
        t = np.unique(np.concatenate([due, *(dues for _, dues in steps)]))
        t = t[t <= busy_ns]
        demand = first_ns + held[np.searchsorted(due, t, side="right")]
        demand = demand + sum(w[line.due_by(t)] for line, w in zip(lines, work, strict=True))
        late = np.flatnonzero(demand > t)
        if len(late):
            step = int(late[0])
            return _Look(Reason.DEADLINE_MISS, busy_ns, 0, int(t[step]), int(demand[step]))
        if len(ended):
            slack = t - demand
            least_ns = 0
            if mine is not None:
                own = slack[t >= lines[mine].first_due_ns]
                least_ns = int(own.min(initial=max(0, lines[mine].first_due_ns - busy_ns) if not len(own) else 2**62))
            return _Look(None, busy_ns, least_ns)
        if last:
            return _Look(Reason.BEYOND_HORIZON, busy_ns)
        reach_ns *= _FARTHER


def _refused(planned: AdmissionState, look: _Look, lines: list[_Line], used: float, blocking_ns: int) -> Demand:
    """Say which job would be late at the first step that fails."""
    if look.reason is not Reason.DEADLINE_MISS:
        return Demand(look.reason, used, blocking_ns, look.busy_ns)
    return Demand(look.reason, used, blocking_ns, look.busy_ns, first_miss=_first_miss(planned, look, lines))


def _first_miss(planned: AdmissionState, look: _Look, lines: list[_Line]) -> FirstMiss:
    step_ns = look.step_ns
    at = np.array([step_ns])
    for line in lines:
        if int(line.due_by(at)[0]) > int(line.due_by(at - 1)[0]):
            curve = line.curve
            return FirstMiss(
                category=curve.category,
                streams=tuple(s.stream_id for s in planned.streams if s.category == curve.category),
                frames=curve.largest_job(),
                release_ns=max(line.offset_ns, step_ns - curve.window_ns),
                deadline_ns=step_ns,
                finish_ns=look.demand_ns,
            )
    job = next(job for job in planned.ready if job.deadline_ns - planned.now_ns == step_ns)
    return FirstMiss(
        category=job.category,
        streams=tuple(dict.fromkeys(frame.stream_id for frame in job.frames)),
        frames=len(job.frames),
        release_ns=job.release_ns - planned.now_ns,
        deadline_ns=step_ns,
        finish_ns=look.demand_ns,
    )
