"""The exact test for unbounded streams: follow the schedule until it repeats.

Once all finite streams have ended and all others have started, arrivals and windows repeat every hyperperiod, the
least common multiple of the periods and of the windows. EDF decides by the state alone, so when the device and the
waiting jobs look the same at two boundaries of hyperperiods, all that lies between comes again and again. The test
holds for the phases that are registered (or announced as jitter), not for drifting clocks: that is what the sporadic
test is for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gateway.core.imitator import Imitation, imitate, rows_of
from gateway.core.plan_state import AdmissionState
from gateway.core.pseudo_jobs import PseudoJobs, generate
from gateway.core.verdict import Reason

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Repetition:
    """What the schedule does.

    Attributes:
        jobs, imitation: As far as they were followed.
        reason: Why the set is refused; None when it repeats without a miss.
        utilization: Exact use of the device over one hyperperiod.
        used: Rows, in order of execution, before the second of the two boundaries.
        repeat_from: Rows before the first of them.
        repeat_ns: From one to the other.
    """

    jobs: PseudoJobs
    imitation: Imitation
    reason: Reason | None
    utilization: float
    used: int = 0
    repeat_from: int = 0
    repeat_ns: int = 0


def follow(planned: AdmissionState) -> Repetition | None:
    """Return the repetition of the schedule of `planned`, which has unbounded streams.

    Returns:
        None when it is not found within `EngineConfig.max_horizon_frames` frames.
    """
    cap = planned.config.max_horizon_frames
    hyper_ns = hyperperiod_ns(planned)
    start_ns = settled_ns(planned)
    count = 1
    while True:
        jobs = generate(planned, start_ns + count * hyper_ns)
        if jobs is None:
            return None
        imitation = imitate(planned, jobs)
        within = (jobs.release > start_ns) & (jobs.release <= start_ns + hyper_ns)
        work_ns = int(jobs.execution[within].sum())
        used = work_ns / hyper_ns
        if imitation.missed is not None:
            return Repetition(jobs, imitation, Reason.DEADLINE_MISS, used)
        if work_ns > hyper_ns:
            return Repetition(jobs, imitation, Reason.UTILIZATION, used)
        found = _boundaries(planned, jobs, imitation, [start_ns + k * hyper_ns for k in range(count + 1)])
        if found is not None:
            first, second, length_ns = found
            return Repetition(jobs, imitation, None, used, second, first, length_ns)
        each = int(jobs.size[within].sum())
        more = min(count, (cap - jobs.frames) // max(1, each))
        if more < 1:
            return None
        count += more


def hyperperiod_ns(planned: AdmissionState) -> int:
    """Return the least common multiple of the periods of unbounded streams and of their categories' windows."""
    width = {window.category: window.window_ns for window in planned.windows}
    unbounded = [s for s in planned.streams if s.remaining is None]
    return math.lcm(*(s.period_ns for s in unbounded), *(width[s.category] for s in unbounded))


def settled_ns(planned: AdmissionState) -> int:
    """Return an instant (relative) after which only windows end that hold nothing but steady arrivals.

    Such a window opens after the first groups of unbounded streams, which may be broken or clamped to the present, and
    after the last of finite ones.
    """
    now_ns = planned.now_ns
    ends = [0, *(t - now_ns for t in planned.planned_ns), *(w.joint_ns - now_ns for w in planned.windows)]
    for stream in planned.streams:
        groups = 0
        if stream.remaining is not None:
            groups = max(0, -(-(stream.remaining - stream.overdue - stream.group_left) // stream.burst))
        ends.append(stream.next_ns - now_ns + groups * stream.period_ns + stream.jitter_ns)
    return max(ends) + max(window.window_ns for window in planned.windows)


def _boundaries(
    planned: AdmissionState, jobs: PseudoJobs, imitation: Imitation, instants: list[int]
) -> tuple[int, int, int] | None:
    """Find two instants at which the state is the same: rows before each, and the time between."""
    order, finish = imitation.order, imitation.finish
    rows = rows_of(planned, jobs)
    begin = finish - rows.execution[order]
    begin_of_row = np.empty_like(begin)
    begin_of_row[order] = begin
    before = np.searchsorted(begin, instants)
    released = rows.held + np.searchsorted(jobs.release, instants, side="right")
    seen: dict[tuple[int, tuple[tuple[int, ...], ...]], tuple[int, int]] = {}
    for instant_ns, done, known in zip(instants, before.tolist(), released.tolist(), strict=True):
        pending: tuple[tuple[int, ...], ...] = ()
        if known > done:
            waiting = np.flatnonzero(begin_of_row[:known] >= instant_ns)
            if waiting[0] < rows.held:
                continue  # a job that was ready at the start never comes again
            waiting -= rows.held
            columns = (
                jobs.deadline - instant_ns,
                jobs.release - instant_ns,
                jobs.window,
                jobs.chunk,
                jobs.size,
                jobs.job,
            )
            pending = tuple(sorted(zip(*(column[waiting].tolist() for column in columns), strict=True)))
        busy_ns = max(0, int(finish[done - 1]) - instant_ns) if done else 0
        state = (busy_ns, pending)
        if state in seen:
            first, first_ns = seen[state]
            return first, done, instant_ns - first_ns
        seen[state] = (done, instant_ns)
    return None
