"""Will this stream fit? Every answer is a `Plan` that holds a `Verdict` with evidence.

- Phase 0, the candidate's own figures: a profile entry, a deadline no shorter than one frame takes, and with a memory
  budget room for its model (`gateway.core.placement`).
- Phase 1, utilisation: a cheap necessary condition that refuses nothing which Phase 2 admits.
- Phase 2, one of three tests (`EngineConfig.admission_test`), from the state as it was recorded.

What an admission promises, all streams keeping their contracts:

``exact``
    Every frame of finite streams is followed to the end, in every window in which its declared jitter may put it. With
    the guard, which follows the plan's order: nothing misses at the profiled times and anywhere below them, whatever is
    sent early, missing or best effort. Without the guard (plain EDF, DeepRT's own): nothing misses at exactly the
    profiled times, with early dispatch off and all frames coming.
``hyperperiod``
    The same for ever: unbounded streams are followed until the schedule repeats. It rests on their registered phases,
    jitter included; a drifting clock leaves them.
``sporadic``
    Nothing misses under plain EDF for any legal arrivals: any phase, drift and jitter, at and below the profiled times.
    It is the only one that knows of models which take turns in memory (`gateway.core.swap_test`).

``auto`` takes ``exact`` while all streams are finite, their frames can be followed and no models take turns, else
``sporadic``. A best-effort stream is promised nothing and is admitted without a test (``none``), except that under
``sporadic`` one of its frames must not hold up promised work for too long. Pure functions: the same code serves
registration, the check call, capacity plans and counter-offers, in this process or another.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.core.offers import search
from gateway.core.phase_two import SPORADIC, Decision, decide, which_test
from gateway.core.placement import place
from gateway.core.plan import Plan, WindowPlan
from gateway.core.plan_state import AdmissionState, MemoryState, StreamPhase, WindowState
from gateway.core.schedulability import TOLERANCE, interval_demand, utilization
from gateway.core.types import ServiceClass, StreamSpec
from gateway.core.verdict import CounterOffer, MemoryEvidence, Reason, Verdict


def plan(state: AdmissionState, candidate: StreamSpec, stream_id: str = "") -> Plan:
    """Test `candidate` against `state`.

    `Verdict.utilization` is that of the unbounded streams, except in a refusal for too much work, where it is the share
    that refused: of the overfull interval, of the hyperperiod, or of the sporadic demand.

    Args:
        state: As recorded by the engine.
        candidate: What is asked for.
        stream_id: How the evidence names the candidate.

    Cost: about 0.5 us for each frame that is followed, plus a constant of about 0.5 ms; the sporadic test 1 to 20 ms.
    """
    return _plan(state, candidate, stream_id, slots=state.config.guard)


def evaluate(state: AdmissionState, candidate: StreamSpec, stream_id: str = "") -> Verdict:
    """Return the verdict of `plan`, without the plan."""
    return _plan(state, candidate, stream_id, slots=False).verdict


def counter_offers(state: AdmissionState, candidate: StreamSpec) -> tuple[CounterOffer, ...]:
    """Return changes of one field with which `candidate` would be admitted now; see `gateway.core.offers.search`."""
    return search(state, candidate, lambda spec: evaluate(state, spec).admitted)


def widen(state: AdmissionState) -> Plan:
    """Test whether the windows of `state` can grow to half the smallest deadline of the streams they have now.

    They grow after their current joints, all or none. The verdict says whether the plan holds; windows that grow are
    marked `changed`.
    """
    windows = [replace(w, window_ns=w.widest_ns) if w.widest_ns > w.window_ns else w for w in state.windows]
    planned = replace(state, windows=tuple(windows))
    decision = decide(planned, utilization(planned), newcomer=False, slots=state.config.guard)
    return _finish(state, planned, decision)


def retest(state: AdmissionState) -> Plan:
    """Test whether what has been promised still holds, after execution times have changed."""
    used = utilization(state)
    if not state.windows:
        return _finish(state, state, Decision(Verdict(admitted=True, test="none", phase=0, utilization=used)))
    demand = max(used, interval_demand(state))
    if demand > 1 + TOLERANCE:
        test = which_test(state, unbounded=False)
        return _finish(state, state, Decision(_refusal(test, 1, Reason.UTILIZATION, demand)))
    return _finish(state, state, decide(state, used, newcomer=False, slots=state.config.guard))


def bears(state: AdmissionState, blocking_ns: int) -> bool:
    """Whether what has been promised holds by the sporadic test though a job that nothing was promised is so long."""
    longer_ns = max(blocking_ns, state.config.best_effort_blocking_ns)
    verdict = retest(replace(state, config=replace(state.config, best_effort_blocking_ns=longer_ns))).verdict
    return verdict.admitted and verdict.test == SPORADIC


def with_candidate(state: AdmissionState, candidate: StreamSpec, stream_id: str) -> AdmissionState:
    """Return `state` as it would be right after the candidate's admission: its stream is the last one."""
    category = candidate.category(state.worker)
    if candidate.service_class is ServiceClass.BEST_EFFORT:
        used = tuple(dict.fromkeys((*state.best_effort, category)))
        return replace(state, best_effort=used, memory=using(state.memory, category.model))
    window_ns = candidate.deadline_ns // 2
    joint_ns = state.now_ns + window_ns
    opened = WindowState(category, window_ns, window_ns, joint_ns, (), window_ns, candidate.swapping)
    windows = []
    for window in state.windows:
        if window.category != category:
            windows.append(window)
        else:
            swapping = window.swapping and candidate.swapping
            opened = replace(window, widest_ns=min(window.widest_ns, window_ns), swapping=swapping)
            if window_ns < window.window_ns:
                narrowest_ns = min(window.narrowest_ns, window_ns)
                joint_ns = min(window.joint_ns, joint_ns)
                opened = replace(opened, window_ns=window_ns, narrowest_ns=narrowest_ns, joint_ns=joint_ns)
    phase = StreamPhase(
        stream_id=stream_id,
        category=category,
        period_ns=candidate.period_ns,
        deadline_ns=candidate.deadline_ns,
        next_ns=state.now_ns + candidate.start_in_ns,
        remaining=candidate.frames,
        burst=candidate.burst,
        jitter_ns=candidate.jitter_ns,
        group_left=candidate.burst,
    )
    return replace(state, windows=(*windows, opened), streams=(*state.streams, phase))


def _plan(state: AdmissionState, candidate: StreamSpec, stream_id: str, *, slots: bool) -> Plan:
    category = candidate.category(state.worker)
    promised = candidate.service_class is ServiceClass.REAL_TIME
    test = which_test(state, unbounded=candidate.frames is None and promised)
    if candidate.internal and not promised:
        return _finish(state, state, Decision(Verdict(admitted=True, test="none", phase=0)))
    if not state.profile.has(category):
        return _finish(state, state, Decision(_refusal(test, 0, Reason.NOT_PROFILED)))
    if state.profile.execution_ns(category, 1) > candidate.deadline_ns:
        return _finish(state, state, Decision(_refusal(test, 0, Reason.DEADLINE_INFEASIBLE)))
    planned = with_candidate(state, candidate, stream_id)
    if promised and planned.memory is not None:
        placed = place(planned, candidate.model)
        if isinstance(placed, MemoryEvidence):
            return _finish(state, state, Decision(replace(_refusal(test, 0, Reason.MEMORY), memory=placed)))
        planned = replace(planned, memory=placed)
    return _finish(state, planned, _decide(planned, promised=promised, slots=slots))


def _decide(planned: AdmissionState, *, promised: bool, slots: bool) -> Decision:
    """Run the phases that look at all streams; the candidate is `promised` something or not."""
    test = which_test(planned, unbounded=False)
    used = utilization(planned)
    if not promised and (test != SPORADIC or not planned.streams):
        return Decision(Verdict(admitted=True, test="none", phase=0, utilization=used))
    demand = max(used, interval_demand(planned))
    if demand > 1 + TOLERANCE:
        return Decision(_refusal(test, 1, Reason.UTILIZATION, demand))
    return decide(planned, used, newcomer=promised, slots=slots)


def using(memory: MemoryState | None, model: str) -> MemoryState | None:
    """Return the memory when a best-effort stream uses a model too, which may so have to be loaded at any time."""
    if memory is None or model in memory.used or model in memory.region:
        return memory
    return replace(memory, used=(*memory.used, model))


def _refusal(test: str, phase: int, reason: Reason, used: float = 0.0) -> Verdict:
    return Verdict(admitted=False, test=test, phase=phase, reason=reason, utilization=used)


def _finish(state: AdmissionState, planned: AdmissionState, decision: Decision) -> Plan:
    """Put a plan together; a refusal has nothing to install."""
    windows: tuple[WindowPlan, ...] = ()
    if decision.verdict.admitted:
        recorded = {window.category: (window.window_ns, window.joint_ns) for window in state.windows}
        windows = tuple(
            WindowPlan(
                category=window.category,
                window_ns=window.window_ns,
                joint_ns=window.joint_ns,
                changed=recorded.get(window.category) not in (None, (window.window_ns, window.joint_ns)),
            )
            for window in planned.windows
        )
    return Plan(
        verdict=decision.verdict,
        at_ns=state.now_ns,
        generation=state.generation,
        started=state.started,
        windows=windows,
        streams=planned.streams if decision.verdict.admitted else (),
        slots=decision.slots,
        blocking_ns=decision.blocking_ns,
        swap=decision.swap,
    )
