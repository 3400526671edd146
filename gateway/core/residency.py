"""Which models are in the worker's memory: their states, and the calls that change them.

::

    absent ─ LoadModel ─> loading ─ ModelLoaded, warm-ups ─> resident
                             └─ ModelLoadFailed ─> failed ─ after a pause, LoadModel ─> loading
    resident ─ UnloadModel ─> unloading ─ ModelUnloaded ─> absent

Computron's engine (Zou et al., arXiv 2306.13835), and past it. Rules:

- *Managed*: a model is resident once the worker has said so. Nothing of it starts unless it is: loaded, and warmed
  (`gateway.core.warm_ups`).
- *Unmanaged*, that is without a budget: a model of which nothing was said is resident, and only commands load and
  unload. Jobs of a model that is not there are not held back, but while a command is being carried out and after an
  unload: the worker answers for them.
- One call at a time for a model; models go their ways in parallel. What the worker says of a call that is not under way
  is ignored: drivers race with each other.
- A load holds its memory from `LoadModel` to `ModelUnloaded`, or gives it back once when it fails; one that was given
  up while the worker is still at it, when that has ended (`gateway.core.memory`).
- What the worker says is in `gateway.core.model_calls`, commands are in `gateway.core.model_commands`; which models are
  loaded and which give way is decided in `gateway.core.demand`, whether one can ever be there in `gateway.core.room`.
  Models of the swap region are moved by `Turns`.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.actions import Action, DropFrames, LoadModel, ModelChanged, UnloadModel
from gateway.core.batch import NEVER_NS, Standing
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.endings import Endings
from gateway.core.memory import MemoryBooks
from gateway.core.model import Model
from gateway.core.profile import Profile
from gateway.core.promises import Promises
from gateway.core.turns import Turns
from gateway.core.types import ModelState, Outcome
from gateway.core.waiting import Waiting
from gateway.core.warm_ups import WarmUp

#: Of a pause; more would be for ever.
_MOST_DOUBLINGS = 40


class Residency:
    """See the module's docstring.

    Args:
        waiting, device, endings, promises, config: The engine's.

    Attributes:
        models: Those that something was said of.
        memory: What they hold.
        managed: Whether there is a budget.
        reloads: Resident models that are to be loaded anew.
        paused: Models that are not to be tried before `Model.retry_ns`.
        turns: Moves the models of the swap region; None: there is none.
        begun: Counts calls to the worker.
    """

    def __init__(
        self, waiting: Waiting, device: Device, endings: Endings, promises: Promises, config: EngineConfig
    ) -> None:
        self.models: dict[str, Model] = {}
        self.memory = MemoryBooks(config.residency)
        self.managed = config.residency.managed
        self.reloads: set[str] = set()
        self.paused: set[str] = set()
        self.turns: Turns | None = None
        self.begun = 0
        self._waiting = waiting
        self._device = device
        self._endings = endings
        self._promises = promises
        self._config = config.residency

    # ------------------------------------------------------------ questions

    @property
    def profile(self) -> Profile:
        """Sizes and times."""
        return self._promises.profile

    @property
    def region_models(self) -> frozenset[str]:
        """Models that take turns in the swap region."""
        return self.memory.region_models

    def promised(self) -> set[str]:
        """Return the models that real-time streams need in memory all the time."""
        batchers = self._waiting.batchers.values()
        return {b.category.model for b in batchers if b.standing is Standing.PROMISED} - self.region_models

    def pins(self, name: str) -> tuple[str, ...]:
        """Return why a model has to stay: ``stream``, ``command``, ``hold``; nothing: it may go."""
        model = self.models.get(name)
        batchers = self._waiting.batchers.values()
        needed = any(b.category.model == name and b.standing is Standing.PROMISED for b in batchers)
        pins: tuple[str, ...] = ("stream",) if needed else ()
        if model is not None:
            pins += ("command",) * model.pinned + ("hold",) * bool(model.holders)
        return pins

    def pinned(self, name: str) -> bool:
        """Whether a model has to stay."""
        return bool(self.pins(name))

    def size(self, name: str) -> int | None:
        """Return what a model holds when it is loaded, in the budget's unit; None: not known."""
        if self.memory.counts:
            return 1
        model = self.models.get(name)
        learnt = None if model is None else model.size
        return self.profile.weight(name) if learnt is None else learnt

    def reload_size(self, name: str) -> int:
        """Return what a model holds besides while it is loaded anew. Two versions of it are still one model."""
        return 0 if self.memory.counts else self.size(name) or 0

    def idle(self, model: Model) -> bool:
        """Whether nothing of a model runs or was sent ahead, and the worker is doing nothing to it."""
        return not model.called and not self._device.uses(model.name)

    @property
    def calling(self) -> bool:
        """Whether any model is being loaded or unloaded."""
        return any(model.called for model in self.models.values())

    @property
    def at_rest(self) -> bool:
        """Whether no model comes or goes, is to by command or hold, or is to be tried again."""
        if not self.models:
            return True
        if self.paused or self.reloads:
            return False
        coming = (ModelState.LOADING, ModelState.UNLOADING)
        return not any(
            m.called or m.state in coming or (m.away and (m.wanted or m.holders)) or (m.barred and not m.away)
            for m in self.models.values()
        )

    # ------------------------------------------------------------ models

    def know(self, name: str, *, absent: bool = False) -> Model:
        """Return what is known of a model; of a new one without a budget that it is there, unless `absent` is given."""
        model = self.models.get(name)
        if model is None:
            absent = absent or self.managed
            model = self.models[name] = Model(name, ModelState.ABSENT if absent else ModelState.RESIDENT)
            if not absent:
                self.memory.hold(name, self.size(name) or 0)
            self._gate(model)
        return model

    def bar(self, model: Model, *, barred: bool) -> None:
        """Let nothing of a model start any more, whatever its state, or again."""
        model.barred = barred
        self._gate(model)

    def enter(self, model: Model, state: ModelState, reason: str, actions: list[Action]) -> None:
        """A model's state is another one now; also said when it is not, as the answer to a command."""
        model.state, model.reason = state, reason
        self._gate(model)
        actions.append(ModelChanged(model.name, state, reason))

    def _gate(self, model: Model) -> None:
        runs = model.state is ModelState.RESIDENT or (model.away and not self.managed)
        if runs and not model.barred:
            self._waiting.barred.discard(model.name)
        else:
            self._waiting.barred.add(model.name)
        self._waiting.lacking = True

    def stir(self) -> None:
        """Something is wanted that was not: it is to be looked at whatever the event."""
        self._waiting.lacking = True

    def regate(self, name: str) -> None:
        """A model of which nothing might start, whatever its state, is on a par with others again."""
        self._gate(self.know(name))

    def set_region(self, models: Iterable[str], weight: int) -> None:
        """Set memory aside for models that take turns in it; no models: there is no swap region."""
        self.memory.region_models = frozenset(models)
        self.memory.region = weight

    def fail_frames(self, name: str, reason: str, actions: list[Action]) -> None:
        """End every frame that waits for a model."""
        batches = list(self._waiting.by_model().get(name, {}).values())
        frames = [frame for batch in batches for frame in reversed(batch.frames)]
        for frame in frames:
            self._waiting.withdraw(frame)
        if frames:
            self._endings.drop(DropFrames(tuple(frames), Outcome.FAILED, reason), actions)

    # ------------------------------------------------------------ calls

    def load(self, name: str, reason: str, actions: list[Action]) -> None:
        """Have the worker load a model that is not there."""
        model = self.know(name)
        assert model.away, f"{name} is {model.state} and cannot be loaded"
        self.memory.hold(name, self.size(name) or 0)
        model.called, model.failure = "load", ""
        self.begun += 1
        self.owe(model)
        self.resume(model)
        actions.append(LoadModel(name, reason))
        self.enter(model, ModelState.LOADING, reason, actions)

    def owe(self, model: Model) -> None:
        """Let a model that comes in stay for all that waits for it now: a load is dear, and there is an end to it."""
        model.owes = max(self._waiting.by_model().get(model.name, ()), default=None)

    def reload(self, model: Model, actions: list[Action]) -> None:
        """Have the worker load a resident model anew; the old one serves on."""
        assert not model.called, f"{model.name} is being changed, and cannot be loaded anew"
        self.memory.hold_twice(model.name, self.reload_size(model.name))
        model.called, model.wanted = "reload", False
        self.begun += 1
        self.reloads.discard(model.name)
        actions.append(LoadModel(model.name, "reload"))

    def unload(self, name: str, reason: str, actions: list[Action]) -> None:
        """Have the worker unload a model that is there, and idle."""
        model = self.models[name]
        assert self.idle(model), f"{name} is in use and cannot be unloaded"
        self.memory.leave(name)
        model.called = "unload"
        self.begun += 1
        self.forget_warm_ups(model)
        self.reloads.discard(name)
        actions.append(UnloadModel(name, reason))
        self.enter(model, ModelState.UNLOADING, reason, actions)

    def forget_warm_ups(self, model: Model) -> None:
        """Let no first execution of a model start any more."""
        model.warm_ups.clear()
        waiting = self._waiting
        for batch in [*waiting.warm_ups, *waiting.ready]:
            if isinstance(batch, WarmUp) and batch.category.model == model.name:
                waiting.forget_warm_up(batch)

    # ------------------------------------------------------------ pauses

    def pause(self, model: Model, words: str, now_ns: int) -> None:
        """Something has failed: let a while pass, longer each time."""
        pause_ns = self._config.backoff_ns << min(model.failures, _MOST_DOUBLINGS)
        model.failures += 1
        model.failure = words
        model.retry_ns = now_ns + min(pause_ns, self._config.longest_backoff_ns)
        self.paused.add(model.name)

    def resume(self, model: Model) -> None:
        """Try again whenever there is a reason."""
        model.retry_ns = None
        self.paused.discard(model.name)

    def next_wakeup_ns(self, now_ns: int) -> int:
        """Return when time alone, after `now_ns`, gives a reason to try a model again; `NEVER_NS`: never."""
        if self._device.lost or not self.paused:
            return NEVER_NS
        due = [self.models[name].retry_ns for name in self.paused if self._would_be_tried(self.models[name])]
        return min((due_ns for due_ns in due if due_ns is not None and due_ns > now_ns), default=NEVER_NS)

    def _would_be_tried(self, model: Model) -> bool:
        """Whether something but its frames, which do not wait for it, wants a model loaded, or it is to go."""
        if not model.away:
            return True
        return self.managed and not model.barred and bool(model.wanted or self.pins(model.name))
