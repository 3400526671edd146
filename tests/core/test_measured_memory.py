"""Memory that unloading did not give back is found before the next load, and is not given away."""

from gateway.core.actions import LoadModel, ModelRefused
from gateway.core.config import EngineConfig, ResidencyConfig
from gateway.core.engine import Engine
from gateway.core.events import (
    MemoryMeasured,
    ModelLoaded,
    ModelUnloaded,
    RequestLoad,
    RequestUnload,
    WorkerBack,
    WorkerLost,
)
from gateway.core.memory import MemoryBooks
from gateway.core.profile import ModelEntry, Profile
from gateway.core.types import LOCAL_WORKER

BASE, SIZE, BUDGET = 500, 100, 200


def books(*held: str) -> MemoryBooks:
    memory = MemoryBooks(ResidencyConfig(budget_bytes=BUDGET))
    for model in held:
        memory.hold(model, SIZE)
    return memory


def test_the_first_figure_says_what_is_nobodys():
    memory = books("a")
    memory.measured(BASE + SIZE)
    assert memory.lost == 0
    memory.measured(BASE + SIZE + 30)
    assert memory.lost == 30
    memory.measured(BASE + SIZE - 30)
    assert memory.lost == 0, "never negative"


def test_while_others_come_or_go_the_loss_is_only_found_to_be_more():
    """What is on its way is counted whole, though it may not be there yet, or not be there any more."""
    memory = books("a")
    memory.measured(BASE + SIZE + 40, quiet=False)
    assert memory.lost == 0, "what is nobody's is not known yet"
    memory.measured(BASE + SIZE)
    memory.measured(BASE + SIZE + 40, quiet=False)
    assert memory.lost == 40
    memory.measured(BASE + SIZE + 10, quiet=False)
    assert memory.lost == 40
    memory.measured(BASE + SIZE + 10)
    assert memory.lost == 10


def test_models_are_counted_not_weighed_where_the_budget_is_in_models():
    memory = MemoryBooks(ResidencyConfig(max_models=2))
    memory.hold("a", 1)
    memory.measured(BASE)
    memory.measured(BASE + 10_000)
    assert memory.lost == 0


def engine_with(*models: str) -> Engine:
    """Return an engine in whose worker `models` are, and where it has been measured."""
    entries = tuple(ModelEntry(name, "1", 5.0, 2.0, SIZE) for name in ("a", "b", "c"))
    config = EngineConfig(residency=ResidencyConfig(budget_bytes=BUDGET))
    engine = Engine(Profile(models=entries), config)
    engine.handle(WorkerLost(LOCAL_WORKER), 0)
    for model in models:
        engine.handle(ModelLoaded(model, warm=True), 0)
    engine.handle(WorkerBack(LOCAL_WORKER), 0)
    engine.handle(MemoryMeasured(BASE + SIZE * len(models)), 1)
    return engine


def test_a_load_that_waits_for_an_unload_finds_only_what_came_free():
    """c needs what a holds; a gives back 60 of 100, so that b has to go as well."""
    engine = engine_with("a", "b")
    engine.handle(RequestUnload("a"), 2)
    assert engine.handle(RequestLoad("c"), 3) == []
    assert not any(isinstance(x, LoadModel) for x in engine.handle(ModelUnloaded("a", BASE + SIZE + 40), 4))
    assert engine.snapshot().memory.lost == 40
    loads = [x for x in engine.handle(ModelUnloaded("b", BASE + 80), 5) if isinstance(x, LoadModel)]
    assert [load.model for load in loads] == ["c"]
    assert engine.snapshot().memory.lost == 80


def test_a_model_for_which_too_little_is_left_is_refused_with_the_figure():
    engine = engine_with("a")
    engine.handle(RequestUnload("a"), 2)
    engine.handle(ModelUnloaded("a", BASE + 120), 3)
    (refusal,) = (x for x in engine.handle(RequestLoad("b"), 4) if isinstance(x, ModelRefused))
    assert refusal.reason == "no_room"
    assert refusal.memory is not None
    assert (refusal.memory.needed, refusal.memory.free, refusal.memory.lost) == (SIZE, BUDGET - 120, 120)


def test_a_new_worker_has_lost_nothing():
    engine = engine_with("a")
    engine.handle(MemoryMeasured(BASE + SIZE + 70), 2)
    assert engine.snapshot().memory.lost == 70
    engine.handle(WorkerLost(LOCAL_WORKER), 3)
    assert engine.snapshot().memory.lost == 0
