"""Rules that hold for any sequence of events, with a plan in force and without: conservation, order, bounds, ticks."""

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.actions import DropFrames, StartJob
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import (
    CloseStream,
    FrameCancelled,
    FramesArrived,
    JobFailed,
    JobFinished,
    LimitBatches,
    RegisterStream,
    Tick,
    WorkerBack,
    WorkerLost,
)
from gateway.core.types import LOCAL_WORKER, OnLate, Outcome
from tests.core.factories import MS, Unchecked, deliveries, every, make_category, make_trace, replay
from tests.properties.mirror import Mirror
from tests.properties.rig import check_slots
from tests.properties.strategies import configs, profiles, specs, traces

NAMES = ["s0", "s1", "s2", "s3", "never"]

steps = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 1, 2, 5, 20]),
        st.one_of(
            st.tuples(st.just("frames"), st.sampled_from(NAMES), st.integers(1, 6)),
            st.tuples(st.just("frames"), st.sampled_from(NAMES), st.just(1)),
            st.tuples(st.just("cancel"), st.sampled_from(NAMES), st.integers(0, 12)),
            st.tuples(st.sampled_from(["finish", "finish", "finish", "refuse", "refuse", "limit", "fail"])),
            st.tuples(st.sampled_from(["finish", "close", "lost", "back", "tick"])),
            st.tuples(st.just("overtake"), st.booleans()),
        ),
    ),
    max_size=60,
)
streams = st.lists(
    specs(frames=st.one_of(st.none(), st.integers(1, 9)), on_late=st.sampled_from(OnLate)), min_size=1, max_size=4
)


#: Plain EDF over whatever comes, or the plan of those that are admitted.
engines = st.sampled_from([Unchecked, Engine])
#: Sent that long before the usual end of the running job, if at all.
leads = st.sampled_from([0, 2 * MS])


def to_event(step, engine, closing):
    view = engine.snapshot()
    job_id = view.running.id if view.running else 0
    match step:
        case ("frames", name, n):
            return FramesArrived(name, n)
        case ("cancel", name, seq):
            return FrameCancelled(name, seq)
        case ("finish",):
            return JobFinished(job_id)
        case ("overtake", failed):
            following = view.sent_ahead.id if view.sent_ahead else 0
            return JobFailed(following, "poison", retry=True) if failed else JobFinished(following)
        case ("fail",):
            return JobFailed(job_id, "broken")
        case ("refuse",):
            return JobFailed(job_id, "poison", retry=True)
        case ("limit",):
            return LimitBatches(make_category("abc"[job_id % 3]), "told so")
        case ("close",):
            return CloseStream(next(closing))
        case (("lost" | "back") as name,):
            return (WorkerLost if name == "lost" else WorkerBack)(LOCAL_WORKER)
    return Tick()


def closings():
    return (NAMES[n % len(NAMES)] for n in count())


@settings(max_examples=400)
@given(engines, leads, profiles(), streams, steps, configs(admission_test="exact"))
def test_every_frame_ends_once_and_the_books_balance(kind, lead, profile, specs, steps, config):
    engine, mirror, now_ns, closing = kind(profile, EngineConfig(send_ahead_ns=lead, **config)), Mirror(), 0, closings()
    for name, spec in zip(NAMES, specs, strict=False):
        mirror.carry_out(engine.handle(RegisterStream(name, spec), now_ns), now_ns)
    for wait, step in steps:
        now_ns += wait * MS
        mirror.carry_out(engine.handle(to_event(step, engine, closing), now_ns), now_ns)
        view = engine.snapshot()
        mirror.check(view)
        check_slots(engine, now_ns, overrun=True)
        if kind is Unchecked and view.running is None and not view.worker_lost:
            assert not view.ready, "non-idling: an idle device leaves no ready job"
            assert not config["early_dispatch"] or not mirror.batches
        for job in view.ready:
            assert job.release_ns <= now_ns
        for category in view.categories:
            assert now_ns < category.next_joint_ns <= now_ns + category.window_ns
    _drain(engine, mirror, now_ns)


@settings(max_examples=200)
@given(engines, profiles(), streams, steps, configs(admission_test="exact"))
def test_nothing_that_was_handed_out_is_changed_later(kind, profile, specs, steps, config):
    """At run time nothing keeps the engine from it: see `gateway.core.light_dataclass`."""
    engine, now_ns, closing, given_out = kind(profile, EngineConfig(**config)), 0, closings(), []
    events = [(0, RegisterStream(name, spec)) for name, spec in zip(NAMES, specs, strict=False)]
    for wait, step in [*events, *steps]:
        now_ns += wait * MS
        event = step if isinstance(step, RegisterStream) else to_event(step, engine, closing)
        told = repr(event)
        given_out += [(action, repr(action)) for action in engine.handle(event, now_ns)]
        assert repr(event) == told
        for stream in engine._ledger.streams.values():
            frames = stream.spec.frames
            assert stream.remaining == (None if frames is None else frames - stream.accepted)
    assert [repr(action) for action, _ in given_out] == [told for _, told in given_out]


def _drain(engine, mirror, now_ns):
    """Close everything and let the device work: nothing may be left."""
    happens = [WorkerBack(LOCAL_WORKER), *(CloseStream(name) for name in NAMES)]
    for event in happens:
        mirror.carry_out(engine.handle(event, now_ns), now_ns)
    while mirror.running or mirror.batches:
        if mirror.running:
            now_ns += mirror.running.execution_ns
            event = JobFinished(mirror.running.id)
        else:
            now_ns, event = engine.next_wakeup_ns(), Tick()
        mirror.carry_out(engine.handle(event, now_ns), now_ns)
    view = engine.snapshot()
    mirror.check(view)
    assert mirror.ended.keys() == mirror.accepted
    assert (view.streams, view.categories, engine.next_wakeup_ns()) == ((), (), None)


@settings(max_examples=400)  # a joint that was forgotten showed in one of a few hundred
@given(engines, leads, profiles(), streams, steps, configs(), st.lists(st.integers(0, 60), max_size=4))
def test_asking_for_the_next_wake_up_changes_no_decision(kind, lead, profile, specs, steps, config, when):
    """Streams join in between, so that windows shrink while others hold frames."""
    asked, silent = (kind(profile, EngineConfig(send_ahead_ns=lead, **config)) for _ in range(2))
    now_ns, closing = 0, closings()
    joins = dict(zip([0, *when], zip(NAMES, specs, strict=False), strict=False))
    for place, (wait, step) in enumerate(steps):
        now_ns += wait * MS
        event = RegisterStream(*joins[place]) if place in joins else to_event(step, asked, closing)
        assert asked.handle(event, now_ns) == silent.handle(event, now_ns)
        asked.next_wakeup_ns()
        assert asked.snapshot() == silent.snapshot()


@given(engines, leads, profiles(), streams, steps, configs(admission_test="exact"))
def test_a_tick_does_nothing_that_its_instant_has_not_done(kind, lead, profile, specs, steps, config):
    engine, now_ns, closing = kind(profile, EngineConfig(send_ahead_ns=lead, **config)), 0, closings()
    for name, spec in zip(NAMES, specs, strict=False):
        engine.handle(RegisterStream(name, spec), now_ns)
    for wait, step in steps:
        now_ns += wait * MS
        engine.handle(to_event(step, engine, closing), now_ns)
        view, wakeup_ns = engine.snapshot(), engine.next_wakeup_ns()
        assert wakeup_ns is None or wakeup_ns > now_ns
        assert engine.handle(Tick(), now_ns) == []
        assert (engine.snapshot(), engine.next_wakeup_ns()) == (view, wakeup_ns)


@given(
    engines,
    profiles(),
    traces(most=5, on_late=st.sampled_from(OnLate)),
    configs(),
    st.sampled_from([MS // 2, MS, 3 * MS]),
    st.integers(0, 2),
)
def test_wake_ups_are_enough_and_others_do_no_harm(kind, profile, streams, config, beat_ns, slow):
    """A tick at every beat of a clock changes no decision, even when the device takes longer than profiled."""
    trace = make_trace(streams)

    def execution(job):
        return job.execution_ns * (1 + slow)

    log = replay(kind(profile, EngineConfig(**config)), trace, execution=execution)
    engine = kind(profile, EngineConfig(**config))
    extra = []
    last_ns = 0

    def before(_event, t_ns):
        nonlocal last_ns
        for beat in range(last_ns // beat_ns * beat_ns + beat_ns, t_ns, beat_ns):
            extra.extend(engine.handle(Tick(), beat))
        last_ns = t_ns

    assert replay(engine, trace, before=before, execution=execution) == log
    assert extra == []


@given(profiles(), traces(), configs(early_dispatch=False))
def test_window_bounds_of_an_admitted_set(profile, streams, config):
    """Theorem 1: a frame waits at most W for its joint, and is done within its deadline."""
    trace = make_trace(streams)
    log = replay(Engine(profile, EngineConfig(**config)), trace)
    specs = {entry.stream_id: entry.spec for entry in trace}
    for done in deliveries(log):
        for frame in done.job.frames:
            window_ns = specs[frame.stream_id].deadline_ns // 2
            assert frame.arrival_ns < done.job.release_ns <= frame.arrival_ns + window_ns
            assert done.finished_ns <= frame.arrival_ns + specs[frame.stream_id].deadline_ns


@given(profiles(), traces(on_late=st.sampled_from(OnLate)), configs())
def test_dispatch_follows_edf_and_batches_one_category(profile, streams, config):
    engine = Unchecked(profile, EngineConfig(**config))
    heads = []

    def before(_event, _t_ns):
        heads.append(engine.snapshot().ready)

    log = replay(engine, make_trace(streams), before=before)
    for _, action in log:
        if isinstance(action, StartJob):
            job = action.job
            assert len(job.frames) <= profile.max_batch(job.category)
            assert job.execution_ns == profile.execution_ns(job.category, len(job.frames))
            assert [f.arrival_ns for f in job.frames] == sorted(f.arrival_ns for f in job.frames) or every(
                [a for _, a in log], DropFrames
            )
    for ready in heads:
        keys = [(job.deadline_ns, job.release_ns, job.id) for job in ready]
        assert keys == sorted(keys)


@given(engines, profiles(), traces(on_late=st.sampled_from(OnLate)), configs(), st.integers(0, 9))
def test_frames_dropped_late_expire_on_time(kind, profile, streams, config, slow):
    """Field report 26, with a device that takes up to ten times as long as profiled."""
    log = replay(
        kind(profile, EngineConfig(**config)),
        make_trace(streams),
        execution=lambda job: job.execution_ns * (1 + slow),
    )
    longest_ns = max(entry.p50_ms for entry in profile.entries) * MS
    for t_ns, action in log:
        if isinstance(action, DropFrames):
            if action.outcome is Outcome.CANCELLED:
                assert action.reason == "superseded"
                assert all(f.on_late is OnLate.NEWEST for f in action.frames)
                continue
            assert action.outcome is Outcome.EXPIRED
            assert all(frame.on_late is not OnLate.SERVE for frame in action.frames)
            if action.reason == "too_late":
                assert all(t_ns < f.deadline_ns < t_ns + longest_ns for f in action.frames)
            else:
                assert {frame.deadline_ns for frame in action.frames} == {t_ns}
        if isinstance(action, StartJob):
            assert all(f.deadline_ns > t_ns for f in action.job.frames if f.on_late is not OnLate.SERVE)
