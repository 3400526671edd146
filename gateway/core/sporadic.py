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

Models that take turns in the swap region have to come round in time first (`gateway.core.swap_test`); then their jobs
are released later than at the joint and due earlier than W after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gateway.core.arrival_curve import Curve, curves_of
from gateway.core.busy_period import Line, Look, look
from gateway.core.plan_state import AdmissionState
from gateway.core.swap_test import turns_of
from gateway.core.turn_demand import TurnDemand
from gateway.core.types import Category
from gateway.core.verdict import FirstMiss, Reason, SwapEvidence


@dataclass(frozen=True, slots=True)
class DemandBound:
    """Result of the sporadic test.

    Attributes:
        reason: Why it refuses; None when it admits.
        utilization: Long-run use of the device at worst, unbounded streams only.
        blocking_ns: B.
        busy_ns: The longest busy period that was looked at.
        worst_latency_ns: Bound on the latency of the last stream's frames; None without one, or when refused.
        first_miss: The step that fails, relative to the start of its busy period.
        turns: Of the models that take turns in the swap region, if there are any and they come round in time.
        swap: The same for people, in a refusal too.
    """

    reason: Reason | None
    utilization: float
    blocking_ns: int = 0
    busy_ns: int = 0
    worst_latency_ns: int | None = None
    first_miss: FirstMiss | None = None
    turns: TurnDemand | None = None
    swap: SwapEvidence | None = None


def sporadic(planned: AdmissionState, *, candidate: bool = True) -> DemandBound:
    """Test the streams of `planned`.

    Args:
        planned: The state with all changes that are asked for.
        candidate: Whether its last stream is one whose worst latency is asked for.

    Cost: bounded; 1 to 2 ms for 40 streams, at most about 20 ms.
    """
    curves = curves_of(planned)
    if any(curve.n1 > planned.config.max_horizon_frames for curve in curves):
        return DemandBound(Reason.BEYOND_HORIZON, 0.0)
    mine = None
    if candidate:
        mine = next(i for i, curve in enumerate(curves) if curve.category == planned.streams[-1].category)
    blocking_ns = _blocking_ns(planned, curves)
    region = planned.memory.region if planned.memory else ()
    if not any(curve.category.model in region for curve in curves):
        return _device(planned, curves, None, blocking_ns, mine)
    generous = _in_turns(planned, curves, blocking_ns, mine, generous=True)
    return generous if generous.reason is None else _in_turns(planned, curves, blocking_ns, mine, generous=False)


def _in_turns(
    planned: AdmissionState, curves: list[Curve], blocking_ns: int, mine: int | None, *, generous: bool
) -> DemandBound:
    """Look at the swap region, and then at the device; `generous`: with room for loads of any model elsewhere."""
    turns = turns_of(planned, curves, blocking_ns, mine, generous=generous)
    if turns.reason is not None:
        return DemandBound(turns.reason, 0.0, blocking_ns, swap=turns.evidence)
    demand = _device(planned, curves, turns, max(blocking_ns, turns.longest_warm_up_ns), mine)
    return replace(demand, turns=turns, swap=turns.evidence)


def _device(
    planned: AdmissionState, curves: list[Curve], turns: TurnDemand | None, blocking_ns: int, mine: int | None
) -> DemandBound:
    """Look at the device, in any busy period to come and in the present one."""
    used = sum(curve.rate() for curve in curves) + (turns.warm_up_rate if turns else 0.0)
    if used >= 1:
        return DemandBound(Reason.UTILIZATION, used)
    steady = [
        turns.steady(curve)
        if turns and curve.category in turns.local_ns
        else Line(curve, 0, curve.first_due_ns - curve.joint_ns, curve.transient)
        for curve in curves
    ]
    later = look(steady, max(0, blocking_ns - 1), turns.left_over if turns else (), mine)
    if later.reason is not None:
        return _refused(planned, later, steady, used, blocking_ns)
    present = [
        turns.present(curve)
        if turns and curve.category in turns.local_ns
        else Line(curve, curve.joint_ns, curve.first_due_ns, curve.carried)
        for curve in curves
    ]
    held = [(job.deadline_ns - planned.now_ns, job.execution_ns) for job in planned.ready]
    now = look(present, planned.free_ns - planned.now_ns, [*held, *(turns.under_way if turns else ())], mine)
    if now.reason is not None:
        return _refused(planned, now, present, used, blocking_ns)
    slack_ns = min(later.slack_ns, now.slack_ns, *([] if turns is None else [turns.slack_ns]))
    return DemandBound(
        reason=None,
        utilization=used,
        blocking_ns=blocking_ns,
        busy_ns=max(later.busy_ns, now.busy_ns),
        worst_latency_ns=None if mine is None else planned.streams[-1].deadline_ns - slack_ns,
    )


def _blocking_ns(planned: AdmissionState, curves: list[Curve]) -> int:
    """Return B: the longest job that can hold up others, those that are ready now among them."""
    longest = [curve.longest_job_ns() for curve in curves]
    longest += [_one_frame_ns(planned, category) for category in planned.best_effort]
    longest += [job.execution_ns for job in planned.ready]
    return max([planned.config.best_effort_blocking_ns, *longest])


def _one_frame_ns(planned: AdmissionState, category: Category) -> int:
    """How long one best-effort frame holds up others; where models are loaded, it may be the first after a load."""
    residency = planned.config.residency
    if residency.managed:
        return planned.profile.warm_up_ns(category, 1, residency.warm_up_factor)
    return planned.profile.execution_ns(category, 1)


def _refused(planned: AdmissionState, seen: Look, lines: list[Line], used: float, blocking_ns: int) -> DemandBound:
    """Say which job would be late at the first step that fails."""
    if seen.reason is not Reason.DEADLINE_MISS:
        return DemandBound(seen.reason, used, blocking_ns, seen.busy_ns)
    return DemandBound(seen.reason, used, blocking_ns, seen.busy_ns, first_miss=_first_miss(planned, seen, lines))


def _first_miss(planned: AdmissionState, seen: Look, lines: list[Line]) -> FirstMiss | None:
    step_ns = seen.step_ns
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
                finish_ns=seen.demand_ns,
            )
    job = next((job for job in planned.ready if job.deadline_ns - planned.now_ns == step_ns), None)
    if job is None:  # a turn that is under way
        return None
    return FirstMiss(
        category=job.category,
        streams=tuple(dict.fromkeys(frame.stream_id for frame in job.frames)),
        frames=len(job.frames),
        release_ns=job.release_ns - planned.now_ns,
        deadline_ns=step_ns,
        finish_ns=seen.demand_ns,
    )
