"""An engine whose worker loads, unloads and runs as an adversary likes, within the planned times; virtual time."""

import heapq
import random
from dataclasses import dataclass, field, replace

from gateway.core.actions import (
    Admitted,
    DeliverFrames,
    DropFrames,
    LoadModel,
    ModelChanged,
    ModelRefused,
    PlanStale,
    Rejected,
    StartJob,
    UnloadModel,
)
from gateway.core.config import EngineConfig, ResidencyConfig
from gateway.core.engine import Engine
from gateway.core.events import (
    EVENT_RANK,
    CloseStream,
    FramesArrived,
    HoldModel,
    JobFinished,
    ModelLoaded,
    ModelLoadFailed,
    ModelLost,
    ModelUnloaded,
    ModelUnloadFailed,
    RegisterStream,
    ReleaseModel,
    Tick,
    WorkerLost,
)
from gateway.core.profile import ModelEntry, Profile, ProfileEntry
from gateway.core.types import ModelState, Outcome, ServiceClass
from tests.core.factories import MS, SHAPE


def swap_profile(tables, loads, *, unload=1.0, warm_up=None, sizes=None):
    """`tables` as `make_profile` has them; `loads` in ms by model. What is planned is a tenth more."""
    return Profile(
        tuple(
            ProfileEntry(model, "1", SHAPE, "UINT8", batch, 1000, ms, ms, ms)
            for model, times in tables.items()
            for batch, ms in enumerate(times, 1)
        ),
        tuple(
            ModelEntry(model, "1", ms, unload, (sizes or {}).get(model, 1), interference_p99=1.0, warm_up_ms=warm_up)
            for model, ms in loads.items()
        ),
    )


#: What the worker says of what it was told; a lost one says nothing.
CALLS = (JobFinished, ModelLoaded, ModelLoadFailed, ModelUnloaded, ModelUnloadFailed)


@dataclass
class Rig:
    """Drives one engine. `shorter` says how long something takes that is planned to take so long."""

    profile: Profile
    rng: random.Random
    config: EngineConfig = field(default_factory=lambda: EngineConfig(residency=ResidencyConfig(max_models=1)))
    shorter: object = None
    order: int = 0
    stale: bool = False
    trouble: float = 0.0
    overtaken: int = 0
    swaps: int = 0

    def __post_init__(self):
        self.engine = Engine(self.profile, self.config)
        self.queue, self.log, self.late, self.admitted, self.verdicts = [], [], [], {}, {}
        self.met = 0
        self.held = []
        self.warm, self.promised = set(), {}  # from when on nothing of a stream may be late
        self.resident, self.now = set(), 0

    def push(self, t, event):
        self.order += 1
        heapq.heappush(self.queue, (t, EVENT_RANK[type(event)], self.order, event))

    def register(self, t, name, spec):
        """A real-time stream is registered once its model is there, or if there is no room for it."""
        self.admitted[name] = spec
        real_time = spec.service_class is ServiceClass.REAL_TIME
        self.push(t, HoldModel(spec.model, name) if real_time else RegisterStream(name, spec))

    def close(self, t, name):
        self.push(t, CloseStream(name))

    def answer(self, t, model):
        for name in [name for name in self.held if self.admitted[name].model == model]:
            self.held.remove(name)
            self.push(t, RegisterStream(name, self.admitted[name]))
            self.push(t, ReleaseModel(model, name))

    def fails(self):
        return self.trouble and self.rng.random() < self.trouble

    def took(self, kind, planned):
        return planned if self.shorter is None else self.shorter(kind, planned)

    def run(self, until=None):
        while True:
            wakeup = self.engine.next_wakeup_ns()
            if wakeup is not None and (not self.queue or (wakeup, EVENT_RANK[Tick]) < self.queue[0][:2]):
                t, event = max(wakeup, self.now), Tick()
            elif self.queue:
                t, _, _, event = heapq.heappop(self.queue)
            else:
                return self
            if until is not None and t > until:
                self.push(t, event)
                return self
            self.handle(t, event)

    def handle(self, t, event):
        self.now = t
        if self.stale and isinstance(event, RegisterStream) and event.plan is None:
            # Planned elsewhere: the answer comes a while later, and is asked for again if it does not hold any more.
            plan = self.engine.plan(event.spec, t, event.stream_id)
            self.push(t + self.rng.choice([0, 1, MS, 5 * MS]), replace(event, plan=plan))
            return
        if isinstance(event, HoldModel):
            self.held.append(event.holder)
        match event:
            case ModelLoaded(model) | ModelUnloadFailed(model):
                self.resident.add(model)
            case ModelLost(model):
                self.resident.discard(model)
            case WorkerLost():
                self.resident.clear()
                self.queue = [each for each in self.queue if not isinstance(each[-1], CALLS)]
                heapq.heapify(self.queue)
        for action in self.engine.handle(event, t):
            self.log.append((t, action))
            self.act(t, action)

    def act(self, t, action):
        match action:
            case StartJob(job):
                assert job.category.model in self.resident, (
                    f"a job of {job.category.model} started, which is not loaded"
                )
                self.push(t + self.took("execution", job.execution_ns), JobFinished(job.id))
            case LoadModel(model):
                self.swaps += 1
                ends = ModelLoadFailed(model, "no luck") if self.fails() else ModelLoaded(model)
                self.push(t + self.took("load", self.profile.load_ns(model)), ends)
            case UnloadModel(model):
                self.resident.discard(model)
                ends = ModelUnloadFailed(model, "still listed") if self.fails() else ModelUnloaded(model)
                self.push(t + self.took("unload", self.profile.unload_ns(model)), ends)
            case DeliverFrames(job, outcomes):
                for frame, outcome in zip(job.frames, outcomes, strict=True):
                    self.end(frame, outcome)
            case DropFrames(frames, outcome):
                for frame in frames:
                    self.end(frame, outcome)
            case _:
                self.follow(t, action)

    def follow(self, t, action):
        """Registrations and models."""
        match action:
            case ModelChanged(model, ModelState.RESIDENT):
                self.warm.add(model)
                self.answer(t, model)
                for name in [name for name, since in self.promised.items() if since is None]:
                    if self.admitted[name].model == model:
                        self.promised[name] = t
            case ModelChanged(model):
                self.warm.discard(model)
            case ModelRefused(model):
                self.answer(t, model)
            case PlanStale(stream_id):
                self.overtaken += 1
                self.stale = self.overtaken < 20
                self.push(t, RegisterStream(stream_id, self.admitted[stream_id]))
            case Admitted(stream_id, category, verdict):
                self.verdicts[stream_id] = verdict
                turning = verdict.swap is not None and category.model in verdict.swap.models
                self.promised[stream_id] = t if turning or category.model in self.warm else None
            case Rejected(stream_id, verdict):
                self.verdicts[stream_id] = verdict

    def end(self, frame, outcome):
        real_time = self.admitted[frame.stream_id].service_class is ServiceClass.REAL_TIME
        since = self.promised.get(frame.stream_id)
        if real_time and since is not None and frame.arrival_ns >= since and outcome is not Outcome.MET:
            self.late.append((frame, outcome, self.now))
        self.met += outcome is Outcome.MET

    def frames(self, name, arrivals):
        for t in arrivals:
            self.push(t, FramesArrived(name))
