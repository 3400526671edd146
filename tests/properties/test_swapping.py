"""What is admitted to take turns in memory misses nothing: by the rules alone, and in the engine.

Whatever the cameras do within their contracts, however much shorter loads, unloads and executions are than planned, and
whatever is loaded ahead or elsewhere. `tests/core/test_swap_anomalies.py` has what happens without a plan.
"""

import random
from collections import Counter

import pytest

from gateway.core import swap_test
from gateway.core.actions import DropFrames
from gateway.core.admission import plan, with_candidate
from gateway.core.config import EngineConfig, ResidencyConfig
from gateway.core.events import (
    FrameCancelled,
    ModelLost,
    PinModel,
    RequestLoad,
    RequestUnload,
    WorkerBack,
    WorkerLost,
)
from gateway.core.plan_state import AdmissionState, MemoryState
from gateway.core.profile import ModelEntry, Profile, ProfileEntry
from gateway.core.types import LOCAL_WORKER, Outcome, ServiceClass
from tests.core.factories import MS, SHAPE, make_spec
from tests.properties.swap_rig import Rig, swap_profile
from tests.properties.swap_rules import Group, SwapRules, some_moods
from tests.properties.windowed_edf import attack

# ---------------------------------------------------------------- by the rules alone


def exact_profile(tables, loads, unloads, warm_up):
    """Planned times are whole ms: the tenth that is added is taken off before."""
    entries = [
        ProfileEntry(model, "1", SHAPE, "UINT8", batch, 1000, ms, ms, ms)
        for model, times in tables.items()
        for batch, ms in enumerate(times, 1)
    ]
    models = [
        ModelEntry(
            m, "1", loads[m] / 1.1, unloads[m] / 1.1, 1, interference_p99=1.0, warm_up_ms=warm_up and warm_up / 1.1
        )
        for m in loads
    ]
    return Profile(tuple(entries), tuple(models))


class Draw:
    """A random set, admitted stream by stream from an idle start by the product's own test."""

    def __init__(self, seed):
        rng = self.rng = random.Random(seed)
        turning, staying = (
            [f"r{i}" for i in range(rng.choice([2, 2, 3]))],
            [f"p{i}" for i in range(rng.choice([0, 1, 2]))],
        )
        names = turning + staying
        self.tables = {m: sorted(rng.randint(1, 6) for _ in range(rng.choice([1, 2, 4]))) for m in names}
        self.loads = {m: rng.randint(1, 12) for m in names}
        self.unloads = {m: rng.randint(1, 5) for m in names}
        self.warm_up = rng.choice([None, 3, 7])
        self.blocking, self.call = rng.choice([0, 2, 8]), rng.choice([0, 1, 15])
        self.profile = exact_profile(
            self.tables | {"x": [1]}, self.loads | {"x": self.call or 1}, self.unloads | {"x": 1}, self.warm_up
        )
        config = EngineConfig(
            admission_test="sporadic",
            best_effort_blocking_ns=self.blocking * MS,
            residency=ResidencyConfig(max_models=len(staying) + 1, warm_up_factor=2),
        )
        used = ("x",) if self.call else ()
        memory = MemoryState(
            "models", len(staying) + 1, region=tuple(turning), weight=1, used=used, resident=tuple(staying)
        )
        self.state = AdmissionState(0, 0, (), (), (), self.profile, config, memory=memory)
        self.specs, self.answer = [], None
        for model in names * 2:
            tight = model in staying
            spec = make_spec(
                rng.randint(15, 60) if tight else rng.randint(40, 300),
                2 * (rng.randint(8, 40) if tight else rng.randint(30, 150)),
                model=model,
                swapping=not tight,
                jitter_ns=rng.choice([0, 0, 5, 40]) * MS,
                burst=rng.choice([1, 1, 2]),
            )
            answer = plan(self.state, spec, f"s{len(self.specs)}")
            if answer.verdict.admitted and answer.swap is not None:
                self.specs.append(spec)
                self.state, self.answer = with_candidate(self.state, spec, f"s{len(self.specs)}"), answer

    def attack(self, moods_seed):
        """Let the adversary loose on what was admitted."""
        rng, local = self.rng, dict(self.answer.swap.local_ns)
        groups = {}
        for window in self.state.windows:
            category = window.category
            own = [spec for spec in self.specs if spec.category() == category]
            focus = rng.randint(100, 400) * MS
            arrivals = [t for spec in own for t in attack(rng, spec, rng.randint(0, 40) * MS, 900 * MS, focus)]
            d_ns = local.get(category)
            groups[category] = Group(
                category.model,
                category.model,
                window.window_ns // MS,
                [ns // MS for ns in self.profile.table(category)],
                sorted(-(-t // MS) for t in arrivals),
                None if d_ns is None else d_ns // MS,
            )
        warm = {
            category.model: [self.profile.warm_up_ns(category, n, 2) // MS for n in ((1, most) if most > 1 else (1,))]
            for category, most in self.answer.swap.largest
        }
        return SwapRules(
            groups.values(),
            self.loads,
            self.unloads,
            warm,
            rng,
            some_moods(moods_seed),
            longest_job=self.blocking,
            longest_call=self.call,
        ).run(900)


def test_what_the_test_admits_the_rules_keep():
    done = swaps = admitted = 0
    for seed in range(60):
        draw = Draw(seed)
        if draw.answer is None:
            continue
        admitted += 1
        for moods in range(4):
            run = draw.attack(1000 * seed + moods)
            assert not run.late, (seed, moods, run.late[0])
            done, swaps = done + run.done, swaps + run.swaps
    assert admitted > 25
    assert done > 1000
    assert swaps > 1000


def test_the_adversary_finds_what_the_test_leaves_out(monkeypatch):
    # Without what may hold up a turn, sets pass that miss.
    honest = swap_test.look
    monkeypatch.setattr(swap_test, "look", lambda lines, first, *rest, **_: honest(lines, 0, *rest))
    late = 0
    for seed in range(60):
        draw = Draw(seed)
        late += draw.answer is not None and any(draw.attack(1000 * seed + moods).late for moods in range(4))
    assert late >= 3


# ---------------------------------------------------------------- in the engine


def drawn(seed, length=1500):
    """Streams that register one after another, of models that stay, take turns and come and go; an adversary each."""
    rng = random.Random(seed)
    turning = [f"r{i}" for i in range(rng.choice([2, 3, 4]))]
    staying = [f"p{i}" for i in range(rng.choice([0, 1, 1, 2]))]
    others = [f"b{i}" for i in range(rng.choice([0, 0, 1, 2]))]
    names = turning + staying + others
    profile = swap_profile(
        {m: sorted(rng.randint(1, 6) for _ in range(rng.choice([1, 2, 4]))) for m in names},
        {m: rng.randint(1, 15) for m in names},
        unload=rng.choice([0.5, 1, 3]),
        warm_up=rng.choice([None, None, 2, 7]),
    )
    config = EngineConfig(
        admission_test=rng.choice(["auto", "sporadic"]),
        early_dispatch=rng.random() < 0.8,
        best_effort_window_ns=rng.choice([20, 100]) * MS,
        residency=ResidencyConfig(
            max_models=len(staying) + 1 + rng.choice([0, 0, 1]),
            prefetch=rng.random() < 0.7,
            warm_up_factor=rng.choice([1, 2, 3.0]),
        ),
    )
    full = rng.choice([0, 0.8, 1])
    rig = Rig(profile, rng, config, lambda _, planned: planned if rng.random() < full else rng.randint(1, planned))
    rig.stale = rng.random() < 0.5
    focus, at = rng.randint(300, length // 2) * MS, 0
    for model in rng.sample(names, len(names)):
        for number in range(rng.choice([1, 1, 2])):
            spec = some_spec(rng, model)
            at += rng.choice([0, 3, rng.randint(0, 200)])
            name = f"{model}.{number}"
            rig.register(at * MS, name, spec)
            rig.frames(name, attack(rng, spec, (at + rng.randint(0, 50)) * MS, length * MS, focus))
            if rng.random() < 0.2:
                rig.close(rng.randint(at, length) * MS, name)
    return rig


def some_spec(rng, model):
    best_effort = model[0] == "b" or rng.random() < 0.15
    if best_effort:
        return make_spec(
            rng.randint(20, 200),
            rng.randint(100, 900),
            model=model,
            service_class=ServiceClass.BEST_EFFORT,
            internal=rng.random() < 0.3,
        )
    if model[0] == "p":
        return make_spec(
            rng.randint(15, 100), rng.randint(25, 100), model=model, jitter_ns=rng.choice([0, 0, 5, 30]) * MS
        )
    return make_spec(
        rng.randint(30, 300),
        rng.randint(80, 300),
        model=model,
        swapping=True,
        burst=rng.choice([1, 1, 2]),
        jitter_ns=rng.choice([0, 0, 5, 50]) * MS,
        frames=rng.choice([None, None, 20]),
    )


@pytest.mark.parametrize("part", range(4))
def test_no_promised_frame_is_late_in_the_engine(part):
    seen = Counter()
    for seed in range(15 * part, 15 * part + 15):
        rig = drawn(seed).run()
        assert not rig.late, (seed, rig.late[0])
        seen["swaps"] += rig.swaps
        seen["met"] += rig.met
        seen["turns"] += any(v.admitted and v.swap is not None for v in rig.verdicts.values())
        view = rig.engine.snapshot()
        assert not view.ready
        assert view.memory.held <= rig.config.residency.max_models
    assert seen["turns"] >= 3
    assert seen["swaps"] > 50
    assert seen["met"] > 300


def test_longer_loads_than_planned_do_break_it():
    late = 0
    for seed in range(30):
        rig = drawn(seed)
        rig.shorter = lambda kind, planned: planned if kind == "execution" else 10 * planned
        late += bool(rig.run().late)
    assert late >= 3


def test_best_effort_beside_turns_is_served_in_the_end():
    """Of models in the region and elsewhere; where there never is room its frames fail at once, and say so."""
    outcomes = Counter()
    for seed in range(20):
        rig = drawn(seed).run()
        for _, action in rig.log:
            if isinstance(action, DropFrames):
                assert action.outcome is not Outcome.FAILED or action.reason.startswith("no_room: "), action
        outcomes.update(rig.engine.snapshot().by_class[ServiceClass.BEST_EFFORT])
    assert outcomes[Outcome.MET] > 10 * outcomes[Outcome.EXPIRED]
    assert outcomes[Outcome.MET] > 100


def troubled(seed):
    """As `drawn`, with loads that fail, unloads that do not come, a lost worker, commands and cancelled frames."""
    rig = drawn(seed, length=900)
    rng, models = rig.rng, sorted({spec.model for spec in rig.admitted.values()})
    rig.trouble = rng.choice([0.02, 0.2])
    for _ in range(rng.randint(1, 12)):
        t, model = rng.randint(1, 900) * MS, rng.choice(models)
        match rng.randrange(5):
            case 0:
                rig.push(t, WorkerLost(LOCAL_WORKER))
                rig.push(t + rng.randint(0, 40) * MS, WorkerBack(LOCAL_WORKER))
            case 1:
                rig.push(t, RequestUnload(model, force=rng.random() < 0.5))
                rig.push(t + rng.randint(0, 90) * MS, RequestLoad(model))
            case 2:
                rig.push(t, ModelLost(model, "somebody else unloaded it"))
            case 3:
                rig.push(t, PinModel(model, pinned=rng.random() < 0.5))
            case 4:
                rig.push(t, FrameCancelled(rng.choice(sorted(rig.admitted)), rng.randrange(9)))
    return rig


def test_whatever_fails_every_frame_ends_and_the_memory_is_kept():
    swaps = 0
    for seed in range(60):
        rig = troubled(seed).run(until=30_000 * MS)
        view = rig.engine.snapshot()
        swaps += rig.swaps
        assert not view.ready, seed
        assert view.running is None, seed
        assert all(not stream.in_flight for stream in view.streams), seed
        assert view.memory.held <= rig.config.residency.max_models, seed
    assert swaps > 400
