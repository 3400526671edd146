"""Everything at once: strays, demotion, `newest`, poison, limits of batches, cancellations, best effort, late plans.

Cameras that keep their contracts miss nothing, except in batches that were refused, while their stream is suspect, and
under a plan that does not hold any more. With overruns and losses of the worker, only the books have to balance.
"""

from dataclasses import replace
from random import Random

from hypothesis import event, given, settings

from gateway.core.actions import AcceptFrames, RefuseFrames
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import FrameCancelled, JobFailed, JobFinished, LimitBatches, WorkerBack, WorkerLost
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import LOCAL_WORKER, Category, JobDeadline, OnExcess, OnLate, Outcome, ServiceClass
from tests.core.factories import MS, SHAPE, every, make_spec
from tests.properties.rig import Rig
from tests.properties.test_guard import SEEDS

MODELS = "abc"
SMALL = (4, 4, 3)


class Chaos(Rig):
    """`poisoned` streams have frames that no model digests, `dead` models refuse batches.

    `trouble`: jobs take longer than profiled, and the worker is lost now and then.
    """

    def __init__(self, engine, seed, *, trouble, **options):
        super().__init__(engine, seed, **options)
        self.chance = Random(f"chaos {seed}")
        self.trouble, self.overrun = trouble, trouble
        self.poisoned, self.dead, self.newest = set(), set(), set()
        self.often, self.cancels = 0.0, 0.0
        self.hit, self.doubted, self.broken_ns = set(), set(), -1

    def _handle(self, now_ns, event):
        before = len(self.log)
        super()._handle(now_ns, event)
        news = [action for _, action in self.log[before:]]
        view = self.engine.snapshot()
        unsure = {stream.stream_id for stream in view.streams if stream.suspect} - self.poisoned
        for accepted in every(news, AcceptFrames):
            self.doubted |= {(f.stream_id, f.seq) for f in accepted.frames if f.demoted or f.stream_id in unsure}
        if view.broken is not None:
            self.broken_ns = now_ns
        if self.chance.random() < self.cancels:
            others = self.rogues | self._best_effort
            frames = [(s.id, seq) for s in self.engine._ledger.streams.values() if s.id in others for seq in s.frames]
            if frames:
                super()._handle(now_ns, FrameCancelled(*self.chance.choice(frames)))
        if self.trouble and self._finish is not None and self.chance.random() < 0.02:
            self.memory.call_ended(self._finish[2].job_id)
            if self._ahead:
                self.memory.call_ended(self._ahead.id)
            self._finish = self._ahead = None
            super()._handle(now_ns, WorkerLost(LOCAL_WORKER))
            self.at(now_ns + self.chance.randint(0, 40) * MS, WorkerBack(LOCAL_WORKER))

    def _begin(self, now_ns, job):
        """Decide how a job ends that has just started."""
        super()._begin(now_ns, job)
        if self.trouble and self.chance.random() < 0.1:
            took_ns = job.execution_ns * self.chance.choice([1, 2, 3]) + 1
            self._finish = (now_ns + took_ns, 0, JobFinished(job.id, warm_up=self.chance.random() < 0.3))
        unfit = job.category.model in self.dead and len(job.frames) > 1
        if unfit or any(self._poison(frame) for frame in job.frames):
            self._finish = (*self._finish[:2], JobFailed(job.id, "poison", retry=self.chance.random() < 0.9))
            self.hit |= {(frame.stream_id, frame.seq) for frame in job.frames}

    def _poison(self, frame):
        return frame.stream_id in self.poisoned and Random(f"{frame.stream_id} {frame.seq}").random() < self.often

    @property
    def harmed(self):
        return [
            (t_ns, frame, outcome)
            for t_ns, frame, outcome in self.bad
            if frame.stream_id not in self.poisoned
            and (frame.stream_id, frame.seq) not in self.hit | self.doubted
            and frame.arrival_ns > self.broken_ns
            and not (frame.stream_id in self.newest and outcome is Outcome.CANCELLED)
        ]


def draw_profile(rng):
    """Medians at or below E; a small shape of half the models, faster or not."""
    entries = []
    for model in MODELS:
        for batch in range(1, rng.randint(1, 4) + 1):
            ms = rng.randint(1, 20)
            entries.append(ProfileEntry(model, "1", SHAPE, "UINT8", batch, 1000, rng.choice([ms, ms / 2]), ms, ms))
        for batch in range(1, rng.choice([0, rng.randint(1, 4)]) + 1):
            ms = rng.randint(1, 15)
            entries.append(ProfileEntry(model, "1", SMALL, "UINT8", batch, 1000, ms, ms, ms))
    return Profile(tuple(entries))


def draw_config(rng):
    return EngineConfig(
        early_dispatch=rng.random() < 0.7,
        job_deadline=rng.choice([JobDeadline.FRAME, JobDeadline.FRAME, JobDeadline.WINDOW]),
        max_horizon_frames=3_000,
        admission_test=rng.choice(["auto", "exact", "sporadic"]),
        best_effort_blocking_ns=rng.choice([0, 0, 5, 20]) * MS,
        best_effort_window_ns=rng.choice([20, 200]) * MS,
        best_effort_max_waiting=rng.choice([3, 1_024]),
        cold_after_ns=rng.choice([0, 500]) * MS,
        send_ahead_ns=rng.choice([0, 2, 10]) * MS,
    )


def draw_stream(rng):
    """Of either class, finite or not, the gateway's own now and then; times are whole milliseconds or not."""
    off = rng.choice([0, 0.999])
    finite, best_effort = rng.random() < 0.65, rng.random() < 0.2
    period = rng.randint(20, 120) if finite else rng.choice([20, 30, 40, 60, 120])
    jitter_ns = rng.choice([0, 0, 0, 2, 5, 25]) * MS
    spec = make_spec(
        period + rng.uniform(-off, off),
        rng.randint(4, 200) * (5 if best_effort else rng.choice([1, 1, 3])) + rng.uniform(-off, off),
        model=rng.choice(MODELS),
        start_in=rng.randint(0, 40) + off / 2,
        jitter_ns=jitter_ns and jitter_ns + round(rng.uniform(-off, off) * MS),
        burst=rng.choice([1, 1, 1, 2, 4]),
        on_late=rng.choice([OnLate.DROP, OnLate.DROP, OnLate.SERVE, OnLate.NEWEST]),
        on_excess=rng.choice(list(OnExcess)),
        frames=rng.randint(1, 8) if finite else None,
    )
    if best_effort:
        spec = replace(spec, service_class=ServiceClass.BEST_EFFORT, internal=rng.random() < 0.5)
        if spec.internal and rng.random() < 0.5:
            spec = replace(spec, model="opaque", assumed_ns=rng.randint(1, 100) * MS, shape=(8,), dtype="OPAQUE")
    return spec


def run(seed, *, trouble):
    """Run a set of up to nine streams to its end, and see whether the books balance."""
    rng = Random(seed)
    engine = Engine(draw_profile(rng), draw_config(rng))
    names = [f"s{n}" for n in range(rng.randint(4, 9))]
    rig = Chaos(
        engine,
        seed,
        trouble=trouble,
        rogues={name for name in names if rng.randrange(4) == 0},
        missing=rng.choice([0, 0.1, 0.3]),
        shorter=rng.choice([0, 0, 0.2, 1]),
        plan_delay=rng.choice([None, 8, 8]),
    )
    rig.often, rig.cancels = rng.choice([0.2, 0.6, 1]), rng.choice([0, 0.1, 0.3])
    rig.poisoned = {name for name in names if rng.randrange(8) == 0}
    rig.dead = {rng.choice(MODELS)} if rng.random() < 0.2 else set()
    for name in names:
        spec, join_ns = draw_stream(rng), rng.randint(0, 60) * MS
        if spec.on_late is OnLate.NEWEST:
            rig.newest.add(name)
        rig.join(join_ns, name, spec, None if rng.random() < 0.7 else join_ns + rng.randint(1, 200) * MS)
    if rng.random() < 0.3:
        category = Category(rng.choice(MODELS), "1", rng.choice([SHAPE, SMALL]))
        rig.at(rng.randint(0, 150) * MS, LimitBatches(category, "told so"))
    rig.run()
    view = engine.snapshot()
    rig.mirror.check(view)
    assert view.streams == view.categories == ()
    assert rig.mirror.ended.keys() == rig.mirror.accepted
    waiting = engine._waiting
    assert (waiting.batches, waiting.best_effort_frames, waiting.taking) == ({}, 0, 0)
    assert not engine._adaptation._penalties
    for name in ("stale", "exact", "hyperperiod", "sporadic"):
        event(f"{name}: {min(rig.counts[name], 3)}")
    return rig


@settings(max_examples=250)
@given(SEEDS)
def test_who_keeps_his_contract_misses_nothing(seed):
    rig = run(seed, trouble=False)
    assert rig.harmed == []
    refused = {
        action.stream_id for _, action in rig.log if isinstance(action, RefuseFrames) and action.reason == "surplus"
    }
    assert refused <= rig.rogues


@settings(max_examples=150)
@given(SEEDS)
def test_plans_of_a_moment_ago_under_long_best_effort_jobs(seed):
    """Of calls that belong to no camera: no test counts them, and until a plan is in force none is too long."""
    rng = Random(seed)
    config = EngineConfig(admission_test=rng.choice(["auto", "sporadic"]), early_dispatch=rng.random() < 0.7)
    rig = Rig(Engine(draw_profile(rng), config), seed, plan_delay=30)
    calls = make_spec(1_000, 1_000, shape=(8,), dtype="OPAQUE", service_class=ServiceClass.BEST_EFFORT, internal=True)
    for n in range(2):
        call = replace(calls, model=f"opaque{n}", assumed_ns=rng.randint(20, 120) * MS, frames=8, period_ns=5 * MS)
        rig.join(0, f"calls{n}", call)
    for n in range(rng.randint(1, 3)):
        period, deadline = rng.choice([40, 60, 120]), rng.randint(30, 200)
        spec = make_spec(period, deadline, model=rng.choice(MODELS), start_in=30, frames=rng.choice([None, None, 5]))
        rig.join(rng.randint(0, 200) * MS, f"s{n}", spec)
    rig.run()
    assert rig.bad == []
    event(f"stale: {min(rig.counts['stale'], 3)}, met: {rig.counts['trusted met'] > 0}")


@settings(max_examples=150)
@given(SEEDS)
def test_the_books_balance_whatever_the_device_does(seed):
    run(seed, trouble=True)
