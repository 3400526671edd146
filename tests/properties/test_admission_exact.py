"""The exact test is exact: what it admits misses nothing, what it refuses would miss, and it knows the schedule.

Plain EDF here (no guard, no early dispatch, all frames come, executions as profiled): the engine does what the imitator
says. What the guard adds is in ``test_guard``.
"""

from dataclasses import replace

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from gateway.core.actions import Admitted, DropFrames, Rejected
from gateway.core.admission import counter_offers, evaluate, with_candidate
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import RegisterStream
from gateway.core.hyperperiod import follow
from gateway.core.imitator import imitate, rows_of
from gateway.core.pseudo_jobs import generate
from gateway.core.schedulability import interval_demand, utilization
from gateway.core.sporadic import sporadic
from gateway.core.types import JobDeadline, OnLate, Outcome
from gateway.core.verdict import Reason
from tests.core.factories import MS, Unchecked, deliveries, every, make_trace, replay
from tests.properties.brute_force import edf
from tests.properties.strategies import (
    ROUND,
    SOME_FRAMES,
    configs,
    profiles,
    spec_of_any_kind,
    specs,
    states,
    traces,
)

planned_as = configs(early_dispatch=False, guard=False)
PLAIN = EngineConfig(early_dispatch=False, guard=False)


class Narrow(Engine):
    """Windows never grow: the schedule stays the one that was planned at the last registration."""

    def can_widen(self) -> bool:
        return False


class NarrowUnchecked(Narrow, Unchecked):
    """The same, and everything is admitted."""


@given(profiles(), traces(), planned_as)
def test_an_admitted_set_misses_nothing(profile, streams, config):
    log = replay(Engine(profile, EngineConfig(**config)), make_trace(streams))
    actions = [action for _, action in log]
    event(f"{len(every(actions, Admitted))} admitted")
    assert not every(actions, DropFrames)
    assert {outcome for delivered in deliveries(log) for outcome in delivered.outcomes} <= {Outcome.MET}


@given(profiles(), traces(), planned_as)
def test_the_planned_schedule_is_the_one_that_runs(profile, streams, config):
    """After the last registration each job starts and ends as the imitator said, ties included."""
    engine = NarrowUnchecked(profile, EngineConfig(**config))
    last = max(streams, key=lambda pair: pair[0])[0]
    trace = make_trace([*streams, (last, streams[0][1])])  # the last registration, at the latest instant
    plan = {}

    def before(happens, t_ns):
        if isinstance(happens, RegisterStream) and happens.stream_id == trace[-1].stream_id:
            state = with_candidate(engine.admission_state(t_ns), happens.spec, happens.stream_id)
            jobs = generate(state)
            plan["at"] = t_ns
            plan["running"] = engine.snapshot().running
            plan["jobs"] = jobs
            plan["state"] = state
            plan["imitation"] = imitate(state, jobs)

    log = replay(engine, trace, before=before)
    state, jobs, imitation = plan["state"], plan["jobs"], plan["imitation"]
    assume(imitation.missed is None)  # the imitator stops at the first miss
    rows = rows_of(state, jobs)
    sizes = [len(job.frames) for job in state.ready] + jobs.size.tolist()
    promised = sorted(
        (
            state.now_ns + end - int(rows.execution[row]),
            state.now_ns + end,
            sizes[row],
            state.now_ns + int(rows.deadline[row]),
        )
        for row, end in zip(imitation.order.tolist(), imitation.finish.tolist(), strict=True)
    )
    ran = sorted(
        (done.started_ns, done.finished_ns, len(done.job.frames), done.job.deadline_ns)
        for done in deliveries(log)
        if done.started_ns >= plan["at"] and done.job != plan["running"]
    )
    event(f"{min(len(ran), 6)} jobs or more")
    assert ran == promised


@given(profiles(), traces(), specs())
def test_a_refused_stream_would_make_some_job_late(profile, streams, spec):
    """A refusal by either phase is right, and its evidence is what happens.

    The job is late, not always a frame: the jobs of an overfull window share their deadline.
    """
    serve = [(at, _serve(stream)) for at, stream in streams]
    admitted = [pair for pair, ok in zip(serve, _answers(profile, serve), strict=True) if ok]
    trace = [*admitted, (40, _serve(spec))]  # after every other one of its instant
    (*_, verdict) = every([a for _, a in replay(Narrow(profile, PLAIN), make_trace(trace))], Admitted | Rejected)
    event(str(verdict.verdict.reason))
    if verdict.verdict.reason not in (Reason.DEADLINE_MISS, Reason.UTILIZATION):
        return
    log = replay(NarrowUnchecked(profile, PLAIN), make_trace(trace))
    late = [done for done in deliveries(log) if done.finished_ns > done.job.deadline_ns]
    assert late
    if verdict.verdict.first_miss is not None:
        first = min(late, key=lambda done: done.finished_ns)
        miss = verdict.verdict.first_miss
        assert (first.finished_ns - 40 * MS, len(first.job.frames)) == (miss.finish_ns, miss.frames)
        assert first.job.deadline_ns - 40 * MS == miss.deadline_ns
        assert {frame.stream_id for frame in first.job.frames} == set(miss.streams)


def _serve(spec):
    return replace(spec, on_late=OnLate.SERVE)


def _answers(profile, streams):
    trace = make_trace(streams)
    log = replay(Narrow(profile, PLAIN), trace)
    admitted = {action.stream_id for _, action in log if isinstance(action, Admitted)}
    return [entry.stream_id in admitted for entry in trace]


# ---------------------------------------------------------------- Phase 1 refuses nothing that Phase 2 admits


def phase_1_refuses(planned):
    return max(utilization(planned), interval_demand(planned)) > 1 + 1e-9


# Dense sets: a filter that is never asked says nothing.
dense = st.integers(3, 9)


@settings(max_examples=1_000)
@given(states(periods=dense, frames=st.integers(4, 20)), spec_of_any_kind(periods=dense, frames=st.integers(4, 20)))
def test_of_finite_sets(state, spec):
    planned = with_candidate(state, spec, "new")
    if phase_1_refuses(planned):
        event("phase 1 refuses")
        assert imitate(planned, generate(planned)).missed is not None
        assert edf(planned)[1] is not None
        assert sporadic(planned).reason is not None


@settings(max_examples=1_000)
@given(
    states(most=2, periods=ROUND, widths=ROUND, frames=st.one_of(st.none(), SOME_FRAMES)),
    spec_of_any_kind(periods=ROUND, widths=ROUND, frames=st.none()),
)
def test_of_unbounded_sets(state, spec):
    planned = with_candidate(state, spec, "new")
    if phase_1_refuses(planned):
        event("phase 1 refuses")
        found = follow(planned)
        assert found is None or found.reason is not None
        assert sporadic(planned).reason is not None


# ---------------------------------------------------------------- counter-offers


@pytest.mark.parametrize("test", ["exact", "sporadic", "auto"])
@settings(max_examples=150)
@given(data=st.data())
def test_counter_offers_are_admitted_when_taken(test, data):
    frames = st.one_of(SOME_FRAMES, st.none())
    state = data.draw(states(admission_test=test, periods=ROUND, widths=ROUND, frames=frames, most=3))
    spec = data.draw(spec_of_any_kind(periods=ROUND, widths=ROUND, frames=frames))
    offers = counter_offers(state, spec)
    event(f"{len(offers)} offers")
    assert not (offers and evaluate(state, spec).admitted)
    for offer in offers:
        assert offer.value > getattr(spec, offer.field)
        assert evaluate(state, replace(spec, **{offer.field: offer.value})).admitted


# ---------------------------------------------------------------- the engine asks the same question


@given(profiles(), traces(), specs(), planned_as)
def test_a_check_changes_nothing(profile, streams, spec, config):
    """The decision log is the same with a check before each event."""
    engines = [Engine(profile, EngineConfig(**config)) for _ in range(2)]
    plain = replay(engines[0], make_trace(streams))
    checked = replay(engines[1], make_trace(streams), before=lambda _, t_ns: engines[1].check(spec, t_ns))
    assert plain == checked


@given(profiles(), traces(), specs(), planned_as)
def test_the_verdict_of_a_state_is_that_of_its_engine(profile, streams, spec, config):
    engine = Engine(profile, EngineConfig(**config))

    def before(_happens, t_ns):
        assert evaluate(engine.admission_state(t_ns), spec) == engine.check(spec, t_ns)

    replay(engine, make_trace(streams), before=before)


@given(profiles(), traces())
def test_the_papers_job_deadlines_are_never_later_than_the_frames(profile, streams):
    for mode in JobDeadline:
        config = EngineConfig(early_dispatch=False, guard=False, job_deadline=mode)
        for done in deliveries(replay(Unchecked(profile, config), make_trace(streams))):
            earliest = min(frame.deadline_ns for frame in done.job.frames)
            assert done.job.deadline_ns <= earliest
