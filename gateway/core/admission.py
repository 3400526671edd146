"""Will this stream fit? Every answer is a `Verdict` with evidence.

- Phase 0, the candidate's own figures: a profile entry, and a deadline no shorter than one frame takes.
- Phase 1, utilisation: a cheap necessary condition that refuses nothing which Phase 2 admits.
- Phase 2, exact: from the recorded state, every job that on-contract streams will cause is run through the EDF
  imitator. Finite streams are followed to their end. With an unbounded stream among them the test covers a stated
  horizon (`Verdict.horizon_ns`, `Verdict.frames_checked`): a miss that it finds is always right; an admission says that
  no job which starts within the horizon misses. The same holds when a set is cut at `EngineConfig.max_horizon_frames`.
  A horizon that does not hold the next window of every stream is no test, and the candidate is refused.

What an admission promises: with on-contract arrivals, executions of exactly the profiled times and early dispatch
off, no frame of any admitted stream misses. Pure functions: the same code serves registration, the check call and
counter-offers, in this process or another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gateway.core.plan_state import AdmissionState, StreamPhase, WindowState
from gateway.core.pseudo_jobs import PseudoJobs, generate
from gateway.core.schedulability import TOLERANCE, imitate, interval_demand, utilization
from gateway.core.types import MAX_INTERVAL_NS, StreamSpec
from gateway.core.verdict import CounterOffer, FirstMiss, Reason, Verdict

_TEST = "exact"
#: A counter-offer asks for at most this many times the period or deadline that was asked for.
_WIDEST_OFFER = 16
#: At most this many smaller shapes are tried.
_MOST_SHAPES = 8


def evaluate(state: AdmissionState, candidate: StreamSpec, stream_id: str = "") -> Verdict:
    """Test `candidate` against `state`.

    `Verdict.utilization` is that of the unbounded streams, except in a refusal by Phase 1's condition on finite
    streams, where it is the share of the overfull interval that they need.

    Args:
        state: As recorded by the engine.
        candidate: What is asked for.
        stream_id: How the evidence names the candidate.

    Cost: about 1 us for each frame within the horizon, plus a constant of about 0.3 ms.
    """
    category = candidate.category(state.worker)
    if not state.profile.has(category):
        return Verdict(admitted=False, test=_TEST, phase=0, reason=Reason.NOT_PROFILED)
    if state.profile.execution_ns(category, 1) > candidate.deadline_ns:
        return Verdict(admitted=False, test=_TEST, phase=0, reason=Reason.DEADLINE_INFEASIBLE)
    planned = with_candidate(state, candidate, stream_id)
    used = utilization(planned)
    demand = max(used, interval_demand(planned))
    if demand > 1 + TOLERANCE:
        return Verdict(admitted=False, test=_TEST, phase=1, reason=Reason.UTILIZATION, utilization=demand)
    return _exact(planned, used)


def with_candidate(state: AdmissionState, candidate: StreamSpec, stream_id: str) -> AdmissionState:
    """Return `state` as it would be right after the candidate's admission: its stream is the last one."""
    category = candidate.category(state.worker)
    window_ns = candidate.deadline_ns // 2
    joint_ns = state.now_ns + window_ns
    opened = WindowState(category, window_ns, window_ns, joint_ns)
    windows = []
    for window in state.windows:
        if window.category != category:
            windows.append(window)
        elif window_ns < window.window_ns:
            opened = replace(
                window,
                window_ns=window_ns,
                narrowest_ns=min(window.narrowest_ns, window_ns),
                joint_ns=min(window.joint_ns, joint_ns),
            )
        else:
            opened = window
    phase = StreamPhase(
        stream_id=stream_id,
        category=category,
        period_ns=candidate.period_ns,
        deadline_ns=candidate.deadline_ns,
        next_ns=state.now_ns + candidate.start_in_ns,
        remaining=candidate.frames,
    )
    return replace(state, windows=(*windows, opened), streams=(*state.streams, phase))


def _exact(planned: AdmissionState, used: float) -> Verdict:
    """Phase 2; the candidate is the last stream of `planned`."""
    jobs = generate(planned)
    if not _in_sight(planned, jobs):
        return Verdict(
            admitted=False,
            test=_TEST,
            phase=2,
            reason=Reason.BEYOND_HORIZON,
            utilization=used,
            horizon_ns=jobs.horizon_ns,
            frames_checked=jobs.frames,
        )
    imitation = imitate(planned, jobs)
    refused = imitation.missed is not None
    return Verdict(
        admitted=not refused,
        test=_TEST,
        phase=2,
        reason=Reason.DEADLINE_MISS if refused else None,
        utilization=used,
        horizon_ns=jobs.horizon_ns,
        frames_checked=jobs.frames,
        worst_latency_ns=None if refused else _worst_latency_ns(planned, jobs, imitation.finish),
        first_miss=None
        if imitation.missed is None
        else _first_miss(planned, jobs, imitation.missed, imitation.finish[imitation.missed]),
    )


def _in_sight(planned: AdmissionState, jobs: PseudoJobs) -> bool:
    """Whether the window of every stream's next frame ends within the horizon."""
    if jobs.complete:
        return True
    reach_ns = planned.now_ns + jobs.horizon_ns
    width_ns = {window.category: window.window_ns for window in planned.windows}
    return all(stream.next_ns + width_ns[stream.category] <= reach_ns for stream in planned.streams)


def _worst_latency_ns(planned: AdmissionState, jobs: PseudoJobs, finish: list[int]) -> int | None:
    mine = jobs.frame_stream == len(planned.streams) - 1
    if not mine.any():
        return None
    ends = np.array(finish[len(planned.ready) :], dtype=np.int64)
    return int((ends[jobs.frame_job[mine]] - jobs.frame_arrival[mine]).max())


def _first_miss(planned: AdmissionState, jobs: PseudoJobs, row: int, finish_ns: int) -> FirstMiss:
    now_ns = planned.now_ns
    if row < len(planned.ready):
        job = planned.ready[row]
        return FirstMiss(
            category=job.category,
            streams=tuple(dict.fromkeys(frame.stream_id for frame in job.frames)),
            frames=len(job.frames),
            release_ns=job.release_ns - now_ns,
            deadline_ns=job.deadline_ns - now_ns,
            finish_ns=finish_ns,
        )
    row -= len(planned.ready)
    streams = np.unique(jobs.frame_stream[jobs.frame_job == row])
    return FirstMiss(
        category=planned.windows[int(jobs.window[row])].category,
        streams=tuple(jobs.stream_ids[i] for i in streams.tolist()),
        frames=int(jobs.size[row]),
        release_ns=int(jobs.release[row]),
        deadline_ns=int(jobs.deadline[row]),
        finish_ns=finish_ns,
    )


def counter_offers(state: AdmissionState, candidate: StreamSpec) -> tuple[CounterOffer, ...]:
    """Return changes of one field with which `candidate` would be admitted now; none when it is admitted as it is.

    The smallest period and the smallest deadline not below what was asked for (up to 16 times it, in steps of at most
    1 %), and the largest smaller profiled shape. EDF without preemption is not monotone, so "smallest" is that of a
    binary search; each offer itself has passed the test. Cost: at most some 40 tests.
    """
    if evaluate(state, candidate).admitted:
        return ()
    offers = []

    def fits_period(value: int) -> bool:
        return evaluate(state, replace(candidate, period_ns=value)).admitted

    def fits_deadline(value: int) -> bool:
        return evaluate(state, replace(candidate, deadline_ns=value)).admitted

    if (period_ns := _smallest(candidate.period_ns, fits_period)) is not None:
        offers.append(CounterOffer("period_ns", period_ns))
    if (deadline_ns := _smallest(candidate.deadline_ns, fits_deadline)) is not None:
        offers.append(CounterOffer("deadline_ns", deadline_ns))
    size = math.prod(candidate.shape)
    shapes = state.profile.shapes(candidate.model, candidate.version, candidate.dtype)
    smaller = [shape for shape in shapes if math.prod(shape) < size]
    for shape in reversed(smaller[-_MOST_SHAPES:]):
        if evaluate(state, replace(candidate, shape=shape)).admitted:
            offers.append(CounterOffer("shape", shape))
            break
    return tuple(offers)


def _smallest(asked: int, fits: Callable[[int], bool]) -> int | None:
    """Binary search for the smallest round value above `asked` that fits; None when the widest does not."""
    step: int = 10 ** max(0, len(str(asked)) - 3)
    low = asked // step
    high = min(asked * _WIDEST_OFFER, MAX_INTERVAL_NS) // step
    if high <= low or not fits(high * step):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * step):
            high = middle
        else:
            low = middle
    return high * step
