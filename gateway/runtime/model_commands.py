"""Models by command: load, unload, pin; and what is said of each."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.clock import Clock
from gateway.core.actions import Action, ModelChanged, ModelRefused
from gateway.core.events import ModelLost, PinModel, RequestLoad, RequestUnload
from gateway.core.types import ModelState
from gateway.core.view import ModelView
from gateway.errors import CommandOvertaken, ModelNotUnloaded
from gateway.runtime.condition import Condition
from gateway.runtime.model_errors import RELOAD_FAILED, TAKES_TURNS, UNLOAD_FAILED, load_failed, refused, unloaded
from gateway.runtime.model_states import ModelStates
from gateway.runtime.model_waits import within


class ModelCommands:
    """See the module's docstring.

    Args:
        condition: Of the gateway.
        states: Of the models.
        clock: The engine's.
    """

    def __init__(self, condition: Condition, states: ModelStates, clock: Clock) -> None:
        self._condition = condition
        self._states = states
        self._clock = clock

    def views(self) -> list[ModelView]:
        """See `Gateway.model_views`."""
        return self._states.all(self._condition.parts.catalogue)

    async def pin(self, model: str, *, pinned: bool) -> ModelView:
        """See `Gateway.pin_model`."""
        self._check(model)
        if pinned and self._states.view(model).barred:
            raise unloaded(model)
        self._raise_refusal(model, self._condition.parts.driver.post(PinModel(model, pinned)))
        return self._view(model)

    # ------------------------------------------------------------ load

    async def load(self, model: str) -> ModelView:
        """See `Gateway.load_model`."""
        self._check(model)
        parts = self._condition.parts
        limit_s = parts.models.times.in_all_s
        with parts.waits.waiting(model, self._loaded) as loaded:
            self._raise_refusal(model, parts.driver.post(RequestLoad(model)))
            await within(limit_s, loaded, load_failed(model, f"it is not there after {limit_s:g} s"))
        return self._view(model)

    def _loaded(self, change: ModelChanged) -> bool:
        if change.state is ModelState.FAILED or change.reason.startswith(RELOAD_FAILED):
            raise load_failed(change.model, change.reason.removeprefix(RELOAD_FAILED))
        if change.state is ModelState.ABSENT and self._states.view(change.model).barred:
            raise unloaded(change.model)
        return change.state is ModelState.RESIDENT or change.reason == TAKES_TURNS

    # ------------------------------------------------------------ unload

    async def unload(self, model: str, *, force: bool) -> ModelView:
        """See `Gateway.unload_model`."""
        self._check(model)
        parts = self._condition.parts
        limit_s = parts.models.times.in_all_s
        with parts.waits.waiting(model, self._unloaded) as gone:
            self._raise_refusal(model, parts.driver.post(RequestUnload(model, force)))
            if not self._states.state(model).away:
                late = ModelNotUnloaded(f"Model {model!r} is still there after {limit_s:g} s.", model=model)
                await within(limit_s, gone, late)
        return self._view(model)

    def _unloaded(self, change: ModelChanged) -> bool:
        if change.reason.startswith(UNLOAD_FAILED):
            said = change.reason.removeprefix(UNLOAD_FAILED)
            raise ModelNotUnloaded(f"Model {change.model!r} is still there: {said}", model=change.model)
        if not self._states.view(change.model).barred:
            raise CommandOvertaken(
                f"Model {change.model!r} was to be unloaded, but a later command had it loaded.", model=change.model
            )
        return change.state.away

    # ------------------------------------------------------------ all of them

    def _check(self, model: str) -> None:
        self._condition.require_triton()
        parts = self._condition.parts
        parts.catalogue.require(model)
        loaded = any(name == model for name, _ in parts.catalogue.ready_versions())
        if not (loaded or self._states.managed or self._states.known(model)):
            parts.driver.post(ModelLost(model, "not_loaded"))  # without a budget the engine takes it to be there

    def _raise_refusal(self, model: str, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, ModelRefused) and action.model == model:
                raise refused(action, self._states.view(model), self._clock.now_ns())

    def _view(self, model: str) -> ModelView:
        return next(view for view in self.views() if view.model == model)
