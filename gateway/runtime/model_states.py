"""Where models stand: by the engine, and, where it says nothing, by what Triton last said."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.actions import Action, ModelChanged
from gateway.core.engine import Engine
from gateway.core.events import Event
from gateway.core.types import ModelState
from gateway.core.view import ModelView
from gateway.runtime.models import Catalogue


class ModelStates:
    """See the module's docstring.

    Implements `gateway.runtime.upkeep.Wanted` and, to know states without a snapshot of all that the engine
    knows, `gateway.runtime.driver.Observer`.

    Args:
        engine: For reading.

    Attributes:
        managed: Whether there is a memory budget.
    """

    def __init__(self, engine: Engine) -> None:
        self.managed = engine.config.residency.managed
        self._engine = engine
        self._states: dict[str, ModelState] = {}

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        """Take note of changes."""
        for action in actions:
            if isinstance(action, ModelChanged):
                self._states[action.model] = action.state

    def models_to_load(self, ready: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
        """See `Engine.models_to_load`."""
        return self._engine.models_to_load(ready, wanted)

    def state(self, model: str) -> ModelState:
        """Return where a model stands by the engine: without a budget, one that it knows nothing of is there."""
        return self._states.get(model, ModelState.ABSENT if self.managed else ModelState.RESIDENT)

    def known(self, model: str) -> bool:
        """Whether the engine has been told anything of a model."""
        return any(view.model == model for view in self._engine.model_views())

    def view(self, model: str) -> ModelView:
        """Return all that the engine says of a model; O(streams)."""
        for view in self._engine.model_views():
            if view.model == model:
                return view
        return ModelView(model, self.state(model))

    def all(self, catalogue: Catalogue) -> list[ModelView]:
        """Return how every model of the repository stands, in order of name."""
        views = {view.model: view for view in self._engine.model_views()}
        for entry in catalogue.states():
            if entry.name not in views:
                views[entry.name] = ModelView(entry.name, ModelState.ABSENT)
        return [views[name] for name in sorted(views)]
