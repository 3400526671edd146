"""Models that come and go beside streams of both classes: commands, holds, pins, failures, leaks and losses, drawn."""

from random import Random

from gateway.core.config import EngineConfig, Replacement, ResidencyConfig
from gateway.core.engine import Engine
from gateway.core.events import (
    HoldModel,
    JobFailed,
    MemoryMeasured,
    ModelLoaded,
    ModelLost,
    PinModel,
    ReleaseModel,
    RequestLoad,
    RequestUnload,
    WorkerBack,
    WorkerLost,
)
from gateway.core.profile import ModelEntry, Profile, ProfileEntry
from gateway.core.types import LOCAL_WORKER, OnLate, ServiceClass
from tests.core.factories import MS, SHAPE, make_spec
from tests.properties.rig import Rig
from tests.properties.worker import Unreliable, Worker

#: In ms: how often the memory is measured.
_MEASURED = 15


class ModelsRig(Rig):
    """See the module's docstring. Chances are of each after an event.

    Attributes:
        commands: The chance of one.
        losses: That the worker, or a model, is lost.
        refusals: That a job is refused that has just started.
    """

    def __init__(self, engine, seed, **options):
        super().__init__(engine, seed, **options)
        self.chance = Random(f"models {seed}")
        self.commands = self.losses = self.refusals = 0.0
        self.left = 60
        self.pinned = set()

    def _handle(self, now_ns, event):
        super()._handle(now_ns, event)
        self._check_busy()
        if self.worker.lost or self.left <= 0 or not self._heap:
            return
        if self._finish is not None and self._draw(self.refusals):
            job_id = self._finish[2].job_id
            self._finish = (*self._finish[:2], JobFailed(job_id, "refused", retry=self.chance.random() < 0.7))
        if self._draw(self.commands):
            super()._handle(now_ns, self._command(now_ns))
        if self._draw(self.losses):
            self._lose(now_ns)

    def _draw(self, chance):
        if not chance or self.left <= 0 or self.chance.random() >= chance:
            return False
        self.left -= 1
        return True

    def _check_busy(self):
        """The device does not idle while something could start that touches no promise."""
        engine = self.engine
        waiting, device = engine._waiting, engine._device
        stopped = engine.config.residency.synchronous and engine._residency.calling
        if not device.free or stopped or waiting.taking or waiting.ready or waiting.guard:
            return
        region = engine._residency.region_models
        for batch in waiting.batches.values():
            name = batch.category.model
            idles = batch.release_ns is not None and name not in waiting.barred and name not in region
            assert not idles, f"the device idles, and batch {batch.id} of {name} could start"

    # ------------------------------------------------------------ what is done to it

    def _command(self, now_ns):
        model = self.chance.choice([*self.worker.sizes])
        match self.chance.randrange(4):
            case 0:
                return RequestLoad(model)
            case 1:
                return RequestUnload(model, force=self.chance.random() < 0.3)
            case 2:
                pinned = model not in self.pinned
                (self.pinned.add if pinned else self.pinned.discard)(model)
                return PinModel(model, pinned)
            case _:
                holder = f"holder {self.left}"
                self.at(now_ns + self.chance.randint(0, 200) * MS, ReleaseModel(model, holder))
                return HoldModel(model, holder)

    def _lose(self, now_ns):
        """The worker with all that is in it, or one model that somebody else unloads."""
        there = [m for m, state in self.worker.state.items() if state == "there" and not self.worker.called(m)]
        quiet = [m for m in there if self.worker.running is None or self.worker.running.runs_as.model != m]
        if quiet and self.chance.random() < 0.5:
            model = self.chance.choice(quiet)
            self.worker.lose(model)
            super()._handle(now_ns, ModelLost(model, "somebody unloaded it"))
            return
        if self._finish is not None:
            self.call_ended(self._finish[2].job_id)
            self._finish = None
        super()._handle(now_ns, WorkerLost(LOCAL_WORKER))
        self.at(now_ns + self.chance.randint(0, 40) * MS, ("back",))

    def _happen(self, now_ns, event):
        match event:
            case ("back",):
                self._come_back(now_ns)
            case ("measure", left):
                if self.worker.quiet:
                    super()._handle(now_ns, MemoryMeasured(self.worker.measure()))
                if left:
                    self.at(now_ns + _MEASURED * MS, ("measure", left - 1))
            case _:
                super()._happen(now_ns, event)

    def _come_back(self, now_ns):
        """As the supervisor does it: load what the engine says, then say that the worker is back."""
        ready = [model for model in self.worker.sizes if self.chance.random() < 0.2]
        for model in self.engine.models_to_load(ready, sorted(self.worker.sizes)):
            self.worker.find(model)
            super()._handle(now_ns, ModelLoaded(model, warm=True))
        super()._handle(now_ns, MemoryMeasured(self.worker.measure()))
        super()._handle(now_ns, WorkerBack(LOCAL_WORKER))


def draw_profile(rng, sizes):
    entries, models = [], []
    for name, size in sizes.items():
        base = rng.randint(1, 10)
        for batch in range(1, rng.randint(1, 4) + 1):
            ms = base + batch
            entries.append(ProfileEntry(name, "1", SHAPE, "UINT8", batch, 1000, ms, ms, ms))
        models.append(ModelEntry(name, "1", rng.choice([5, 60]), rng.choice([2, 20]), size))
    return Profile(tuple(entries), tuple(models))


def draw_stream(rng, names, on_late, swapping):
    model = rng.choice(names)
    if rng.random() < 0.7:
        return make_spec(
            rng.randint(5, 60),
            rng.choice([100, 400, 2_000]),
            model=model,
            frames=rng.randint(1, 8),
            start_in=rng.randint(0, 60),
            service_class=ServiceClass.BEST_EFFORT,
            on_late=on_late,
        )
    deadline = rng.randint(80, 300) * (5 if swapping else 1)
    period = rng.choice([60, 120]) * (3 if swapping else 1)
    return make_spec(
        period, deadline, model=model, frames=rng.choice([5, None]), start_in=40, swapping=swapping, on_late=on_late
    )


def draw_residency(rng, sizes, in_models):
    unit = "models" if in_models else "bytes"
    most = sum(sizes.values())
    budget = rng.randint(1, most) if in_models else rng.randint(max(sizes.values()), most)
    return ResidencyConfig(
        **{"max_models" if in_models else "budget_bytes": budget, f"headroom_{unit}": rng.choice([0, 0, 1, 3])},
        replacement=rng.choice(list(Replacement)),
        prefetch=rng.random() < 0.7,
        synchronous=rng.random() < 0.2,
        interference=1.0,
        warm_up_factor=rng.choice([1.0, 2.0]),
        backoff_ns=20 * MS,
        longest_backoff_ns=80 * MS,
    )


def draw_worker(rng, seed, profile, residency, *, trouble):
    sizes = {entry.model: 1 if residency.max_models else entry.bytes for entry in profile.models}
    chances = {"fails": rng.choice([0, 0.3]), "hangs": rng.choice([0, 0.1]), "stays": rng.choice([0, 0.1])}
    if not residency.max_models:
        chances["leaks"] = rng.choice([0, 0, 0.4])
    return Worker(
        Random(f"worker {seed}"),
        sizes,
        residency.max_models or residency.budget_bytes,
        residency.headroom_models or residency.headroom_bytes,
        Unreliable((1, 1), (0, 0), **(chances if trouble else {})),
        most={entry.model: (int(entry.load_ms), int(entry.unload_ms)) for entry in profile.models},
        in_models=bool(residency.max_models),
    )


def draw(seed, *, trouble, swapping=True):
    """Return a rig with its streams. Without trouble nothing goes wrong, and all frames are served however late."""
    rng = Random(seed)
    in_models = rng.random() < 0.5
    names = [f"m{n}" for n in range(rng.randint(2, 6))]
    sizes = {name: 1 if in_models else rng.randint(1, 10) for name in names}
    profile, residency = draw_profile(rng, sizes), draw_residency(rng, sizes, in_models)
    config = EngineConfig(
        early_dispatch=rng.random() < 0.7,
        best_effort_window_ns=rng.choice([5, 50]) * MS,
        best_effort_blocking_ns=rng.choice([0, 20]) * MS,
        residency=residency,
    )
    worker = draw_worker(rng, seed, profile, residency, trouble=trouble)
    plan_delay = rng.choice([None, None, 8])
    rig = ModelsRig(Engine(profile, config), seed, worker=worker, shorter=rng.choice([0, 1]), plan_delay=plan_delay)
    rig.overrun = trouble
    if trouble:
        rig.commands, rig.losses = rng.choice([0, 0.05, 0.2]), rng.choice([0, 0.01])
        rig.refusals = rng.choice([0, 0, 0.1])
        rig.at(0, ("measure", 100))
    swaps = swapping and rng.random() < 0.5
    for n in range(rng.randint(2, 9)):
        on_late = rng.choice([OnLate.SERVE, OnLate.SERVE, OnLate.DROP]) if trouble else OnLate.SERVE
        join_ns = rng.randint(0, 100) * MS
        leave_ns = None if not trouble or rng.random() < 0.7 else join_ns + rng.randint(1, 200) * MS
        rig.join(join_ns, f"s{n}", draw_stream(rng, names, on_late, swaps and rng.random() < 0.7), leave_ns)
    return rig
