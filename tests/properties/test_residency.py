"""Rules of loading on demand: it costs nothing where all models fit, never stands still, and goes by age."""

import heapq
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.core.actions import AcceptFrames, DeliverFrames, DropFrames, LoadModel, ModelChanged, StartJob, UnloadModel
from gateway.core.config import EngineConfig, Replacement, ResidencyConfig
from gateway.core.engine import Engine
from gateway.core.events import (
    EVENT_RANK,
    FramesArrived,
    JobFinished,
    ModelLoaded,
    ModelUnloaded,
    RegisterStream,
    Tick,
    WorkerBack,
    WorkerLost,
)
from gateway.core.types import LOCAL_WORKER, ModelState, OnLate, ServiceClass
from tests.core.factories import MS, make_profile, make_spec, make_trace, replay
from tests.core.model_drive import sized
from tests.properties.strategies import configs, profiles, traces
from tests.properties.test_guard import SEEDS

ROOMY = ResidencyConfig(max_models=26, warm_up_factor=1.0)


@given(profiles(), configs(), traces(), st.booleans())
def test_where_all_models_are_there_a_budget_changes_nothing(profile, config, trace, lost):
    """The same decisions at the same instants, whether a model counts as resident or was said to be."""

    def run(residency):
        engine = Engine(profile, EngineConfig(**config, residency=residency))
        engine.handle(WorkerLost(LOCAL_WORKER), 0)
        for model in sorted({entry.model for entry in profile.entries}):
            if residency.managed or lost:
                engine.handle(ModelLoaded(model, warm=True), 0)
        engine.handle(WorkerBack(LOCAL_WORKER), 0)
        return replay(engine, make_trace(trace), duration_ns=300 * MS)

    managed, unmanaged = run(ROOMY), run(ResidencyConfig())
    assert managed == unmanaged
    assert not [action for _, action in managed if isinstance(action, LoadModel | UnloadModel | ModelChanged)]


class Loads:
    """Best-effort frames that may wait as long as it takes, around an engine whose loads and unloads all succeed."""

    def __init__(self, seed):
        rng = self.rng = Random(seed)
        names = [f"m{n}" for n in range(rng.randint(2, 6))]
        self.sizes = {name: rng.randint(1, 6) for name in names}
        self.budget = rng.randint(max(self.sizes.values()), sum(self.sizes.values()))
        self.residency = ResidencyConfig(
            budget_bytes=self.budget,
            headroom_bytes=rng.choice([0, 0, 4]),
            replacement=rng.choice(list(Replacement)),
            interference=1.0,
            warm_up_factor=1.0,
            synchronous=rng.random() < 0.2,
        )
        profile = make_profile(**{name: [rng.randint(1, 9)] * rng.randint(1, 4) for name in names})
        config = EngineConfig(best_effort_window_ns=rng.choice([5, 40]) * MS, residency=self.residency)
        self.engine = Engine(sized(profile, **self.sizes), config)
        self.queue, self.served, self.accepted, self.loads = [], 0, 0, 0
        self.waits = {}
        for name in names:
            spec = make_spec(10, 50, model=name, service_class=ServiceClass.BEST_EFFORT, on_late=OnLate.SERVE)
            self.at(0, RegisterStream(name, spec))
            for _ in range(rng.randint(0, 6)):
                self.at(rng.randint(0, 150), FramesArrived(name, rng.randint(1, 3)))

    def at(self, t_ms, event):
        heapq.heappush(self.queue, (t_ms * MS, EVENT_RANK[type(event)], len(self.queue) + self.rng.random(), event))

    def run(self):
        while True:
            wakeup_ns = self.engine.next_wakeup_ns()
            if wakeup_ns is not None and (not self.queue or (wakeup_ns, EVENT_RANK[Tick]) < self.queue[0][:2]):
                now_ns, happens = wakeup_ns, Tick()
            elif self.queue:
                now_ns, _, _, happens = heapq.heappop(self.queue)
            else:
                return self
            actions = self.engine.handle(happens, now_ns)
            self.carry_out(actions, now_ns // MS)
            self.check(actions)

    def carry_out(self, actions, t_ms):
        for action in actions:
            match action:
                case StartJob(job=job):
                    self.at(t_ms + max(1, job.execution_ns // MS), JobFinished(job.id))
                case LoadModel(model=model):
                    self.loads += 1
                    self.at(t_ms + self.rng.randint(1, 60), ModelLoaded(model))
                case UnloadModel(model=model):
                    self.at(t_ms + self.rng.randint(1, 20), ModelUnloaded(model))
                case AcceptFrames(frames=frames):
                    self.accepted += len(frames)
                case DeliverFrames(job=job):
                    self.served += len(job.frames)
                case DropFrames():
                    raise AssertionError(f"nothing is given up here: {action}")

    def check(self, actions):
        view = self.engine.snapshot()
        oldest = {}
        for batch in self.engine._waiting.batches.values():
            oldest.setdefault(batch.category.model, batch.id)
        moving = [m for m in view.residency if m.state in (ModelState.LOADING, ModelState.UNLOADING)]
        if view.running is None and not moving:
            assert not oldest, "nothing moves, and frames wait"
        for job in [action.job for action in actions if isinstance(action, StartJob) and not action.job.warm_up]:
            oldest[job.category.model] = job.id  # it waited when loads were decided on
        self.check_age(actions, view, oldest)

    def check_age(self, actions, view, oldest):
        """Loaded is what fits beside what is older, and it leaves that the memory which it waits for."""
        states = {model.model: model.state for model in view.residency}
        held = sum(model.held for model in view.residency if model.state is not ModelState.UNLOADING)
        keep, room = [], self.budget
        for name in sorted(oldest, key=oldest.__getitem__):
            if self.sizes[name] <= room:
                room -= self.sizes[name]
                keep.append(name)
        for name in [action.model for action in actions if isinstance(action, LoadModel)]:
            assert name in keep
            older = [n for n in keep[: keep.index(name)] if states[n] is ModelState.ABSENT]
            assert held + sum(self.sizes[n] for n in older) <= self.budget, f"{name} takes what {older} wait for"
        self.check_oldest(keep[:1], held, states)
        assert held <= self.budget
        assert view.memory.held <= self.budget + self.residency.headroom_bytes

    def check_oldest(self, oldest, held, states):
        """The oldest waits for what was going when that was enough, and not for what later ones have asked to go."""
        waits = {}
        for name in oldest:
            if states[name] is ModelState.ABSENT and held + self.sizes[name] <= self.budget:
                going = {n for n, state in states.items() if state is ModelState.UNLOADING}
                waits[name] = self.waits.get(name, going) & going
                assert waits[name] or self.residency.synchronous, f"{name} waits for what others need"
        self.waits = waits


@settings(max_examples=300)
@given(SEEDS)
def test_every_frame_is_served_and_nothing_stands_still(seed):
    loads = Loads(seed).run()
    assert loads.served == loads.accepted
    event(f"loads: {min(loads.loads // 4 * 4, 20)}")
