"""What operators and users say of models: load, unload, pin; hold and release.

A command is answered by `ModelRefused` among the actions of its own event, when nothing came of it, or by a
`ModelChanged` of its model, then or later. The last command decides.
"""

from __future__ import annotations

from itertools import count

from gateway.core.actions import Action, ModelRefused
from gateway.core.events import HoldModel, PinModel, ReleaseModel, RequestLoad, RequestUnload
from gateway.core.model import Model
from gateway.core.residency import Residency
from gateway.core.room import no_room
from gateway.core.types import ModelState


class ModelCommands:
    """See the module's docstring.

    Args:
        residency: The engine's.
    """

    def __init__(self, residency: Residency) -> None:
        self._residency = residency
        self._asked = count()

    def load(self, event: RequestLoad, _now_ns: int, actions: list[Action]) -> None:
        """Load a model that is not there, whatever kept it away; load one anew that is."""
        residency, name = self._residency, event.model
        model = residency.know(name)
        if name in residency.region_models:
            self._let_in(model, actions)
            return
        refusal = self._no_room(model, again=model.state is ModelState.RESIDENT and not model.barred)
        if refusal is not None:
            actions.append(refusal)
            return
        if model.barred:
            residency.bar(model, barred=False)
            if model.state is ModelState.RESIDENT:  # it had not gone yet
                residency.enter(model, ModelState.RESIDENT, "command", actions)
                return
        elif model.state is ModelState.RESIDENT:
            if model.called != "reload":
                self._want(model)
                residency.reloads.add(name)
            return
        if model.away:
            model.failure = ""
            residency.resume(model)
        self._want(model)

    def _let_in(self, model: Model, actions: list[Action]) -> None:
        """A model that takes turns is loaded when it has its turn, and not before; from now on, if it was barred."""
        if not model.barred:
            actions.append(ModelRefused(model.name, "takes_turns"))
            return
        self._residency.bar(model, barred=False)
        self._residency.enter(model, model.state, "takes_turns", actions)

    def unload(self, event: RequestUnload, _now_ns: int, actions: list[Action]) -> None:
        """Unload a model as soon as what runs of it has ended, and let only a command load it again."""
        residency, name = self._residency, event.model
        model = residency.know(name)
        if not event.force and any(pin != "hold" for pin in residency.pins(name)):
            actions.append(ModelRefused(name, "pinned"))
            return
        residency.bar(model, barred=True)
        residency.reloads.discard(name)
        model.wanted = False
        model.holders.clear()
        if model.away:
            residency.resume(model)
            model.failure = ""
            residency.enter(model, ModelState.ABSENT, "command", actions)

    def pin(self, event: PinModel, _now_ns: int, actions: list[Action]) -> None:
        """Let a model stay once it is there, and load it as soon as it fits; or let it go."""
        model = self._residency.know(event.model)
        if not event.pinned or model.pinned:
            model.pinned = event.pinned
            return
        refusal = self._no_room(model)
        if refusal is None:
            model.pinned = True
            self._residency.stir()
        else:
            actions.append(refusal)

    def hold(self, event: HoldModel, now_ns: int, actions: list[Action]) -> None:
        """Load a model for somebody who is about to use it, and let it stay until it is released."""
        residency = self._residency
        model = residency.know(event.model)
        refusal = self._why_not(model, now_ns)
        if refusal is not None:
            actions.append(refusal)
            return
        self._ask(model)
        model.holders[event.holder] = None
        if model.state is ModelState.RESIDENT:
            residency.enter(model, ModelState.RESIDENT, "hold", actions)

    def _why_not(self, model: Model, now_ns: int) -> ModelRefused | None:
        if model.barred:
            return ModelRefused(model.name, "unloaded")
        if model.name in self._residency.region_models:
            return ModelRefused(model.name, "takes_turns")
        if model.failure and not model.may_be_tried(now_ns):
            return ModelRefused(model.name, f"failed: {model.failure}")
        return None if model.state is ModelState.RESIDENT else self._no_room(model)

    def release(self, event: ReleaseModel, _now_ns: int, _actions: list[Action]) -> None:
        """A holder is done."""
        model = self._residency.models.get(event.model)
        if model is not None:
            model.holders.pop(event.holder, None)

    def _want(self, model: Model) -> None:
        self._ask(model)
        model.wanted = True

    def _ask(self, model: Model) -> None:
        """A model is about to be wanted by somebody, and nobody else yet."""
        if not model.holders and not model.wanted:
            model.asked = next(self._asked)
        self._residency.stir()

    def _no_room(self, model: Model, *, again: bool = False) -> ModelRefused | None:
        """Return the refusal of a model that can never be loaded, or, `again`, not beside what is there of it."""
        size = self._residency.size(model.name)
        if not self._residency.managed:
            return None
        if size is None:
            return ModelRefused(model.name, "not_sized")
        turns = self._residency.turns
        if turns is not None and not turns.bears(model.name):
            return ModelRefused(model.name, "load_too_long")
        besides = self._residency.reload_size(model.name) if again else 0
        evidence = no_room(self._residency, model.name, size + besides)
        return None if evidence is None else ModelRefused(model.name, "no_room", evidence)
