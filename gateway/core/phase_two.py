"""Phase 2 of admission: which test decides, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.core.config import AdmissionTest
from gateway.core.evidence import first_miss, worst_latency_ns
from gateway.core.hyperperiod import follow
from gateway.core.imitator import imitate, slot_table
from gateway.core.plan import SlotTable, SwapPlan
from gateway.core.plan_state import AdmissionState
from gateway.core.pseudo_jobs import generate
from gateway.core.sporadic import sporadic
from gateway.core.turn_demand import TurnDemand
from gateway.core.verdict import Reason, Verdict

EXACT = "exact"
HYPERPERIOD = "hyperperiod"
SPORADIC = "sporadic"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with what follows from it; see `gateway.core.plan.Plan`."""

    verdict: Verdict
    slots: SlotTable | None = None
    blocking_ns: int = 0
    swap: SwapPlan | None = None


def which_test(state: AdmissionState, *, unbounded: bool) -> str:
    """Return which test the settings ask for if a stream that is `unbounded` or not joins those of `state`.

    ``auto``: exact while all streams are finite and no models take turns in memory.
    """
    unbounded = unbounded or any(stream.remaining is None for stream in state.streams)
    turns = state.memory is not None and bool(state.memory.region)
    match state.config.admission_test:
        case AdmissionTest.SPORADIC:
            return SPORADIC
        case AdmissionTest.EXACT:
            return HYPERPERIOD if unbounded else EXACT
        case AdmissionTest.AUTO:
            return SPORADIC if unbounded or turns else EXACT


def decide(planned: AdmissionState, used: float, *, newcomer: bool, slots: bool) -> Decision:
    """Run the test that the settings ask for.

    Args:
        planned: The state with all changes that are asked for.
        used: Phase 1's utilisation, for the verdict.
        newcomer: The last stream is the candidate, whose worst latency is asked for.
        slots: Make the slot table of an exact test.
    """
    test = which_test(planned, unbounded=False)
    decision: Decision | None = None
    if test == EXACT:
        decision = _exact(planned, newcomer=newcomer, slots=slots)
        if decision is None and planned.config.admission_test is AdmissionTest.AUTO:
            test = SPORADIC
    elif test == HYPERPERIOD:
        decision = _hyperperiod(planned, newcomer=newcomer, slots=slots)
    if test == SPORADIC:
        decision = _sporadic(planned, newcomer=newcomer)
    if decision is None:
        decision = Decision(Verdict(admitted=False, test=test, phase=2, reason=Reason.BEYOND_HORIZON))
    if decision.verdict.reason is Reason.UTILIZATION:
        return decision
    return replace(decision, verdict=replace(decision.verdict, utilization=used))


def _exact(planned: AdmissionState, *, newcomer: bool, slots: bool) -> Decision | None:
    jobs = generate(planned)
    if jobs is None:
        return None
    imitation = imitate(planned, jobs)
    missed = imitation.missed is not None
    verdict = Verdict(
        admitted=not missed,
        test=EXACT,
        phase=2,
        reason=Reason.DEADLINE_MISS if missed else None,
        horizon_ns=jobs.horizon_ns,
        frames_checked=jobs.frames,
        worst_latency_ns=worst_latency_ns(planned, jobs, imitation) if newcomer and not missed else None,
        first_miss=first_miss(planned, jobs, imitation) if missed else None,
    )
    return Decision(verdict, slot_table(planned, jobs, imitation) if slots and not missed else None)


def _hyperperiod(planned: AdmissionState, *, newcomer: bool, slots: bool) -> Decision | None:
    found = follow(planned)
    if found is None:
        return None
    jobs, imitation, admitted = found.jobs, found.imitation, found.reason is None
    verdict = Verdict(
        admitted=admitted,
        test=HYPERPERIOD,
        phase=2,
        reason=found.reason,
        utilization=found.utilization,
        horizon_ns=jobs.horizon_ns,
        frames_checked=jobs.frames,
        worst_latency_ns=worst_latency_ns(planned, jobs, imitation, found.used) if newcomer and admitted else None,
        first_miss=None if imitation.missed is None else first_miss(planned, jobs, imitation),
    )
    table = None
    if slots and admitted:
        table = slot_table(
            planned,
            jobs,
            imitation,
            used=found.used,
            repeat_from=found.repeat_from,
            repeat_ns=found.repeat_ns,
        )
    return Decision(verdict, table)


def _sporadic(planned: AdmissionState, *, newcomer: bool) -> Decision:
    demand = sporadic(planned, candidate=newcomer)
    verdict = Verdict(
        admitted=demand.reason is None,
        test=SPORADIC,
        phase=2,
        reason=demand.reason,
        utilization=demand.utilization,
        horizon_ns=demand.busy_ns,
        worst_latency_ns=demand.worst_latency_ns,
        first_miss=demand.first_miss,
        swap=demand.swap,
    )
    if demand.reason is not None:
        return Decision(verdict)
    return Decision(verdict, blocking_ns=demand.blocking_ns, swap=_swap_plan(planned, demand.turns))


def _swap_plan(planned: AdmissionState, turns: TurnDemand | None) -> SwapPlan | None:
    if turns is None or planned.memory is None:
        return None
    return SwapPlan(
        models=planned.memory.region,
        weight=planned.memory.weight,
        local_ns=tuple(turns.local_ns.items()),
        largest=tuple(turns.largest.items()),
        longest_ns=turns.longest_ns,
        moves=planned.memory.moves,
    )
