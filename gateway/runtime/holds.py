"""Models that are needed before anything can be asked of the engine: for a registration, for a first call.

With a memory budget a model may be away. The engine loads it when frames wait for it; but a stream with deadlines that
stays in memory is to find it there. Of one that never was, the profile says what a stream's frames are; a call has to
know more, and that only Triton says.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.clock import Clock
from gateway.core.actions import ModelChanged, ModelRefused
from gateway.core.events import HoldModel, ReleaseModel
from gateway.core.types import ModelState, ServiceClass, StreamSpec
from gateway.errors import NoRoomForModel
from gateway.runtime.condition import Condition
from gateway.runtime.model_errors import TAKES_TURNS, load_failed, refused, unloaded
from gateway.runtime.model_states import ModelStates
from gateway.runtime.model_waits import within
from gateway.triton.types import ModelMetadata


class Holds:
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

    @asynccontextmanager
    async def for_stream(self, spec: StreamSpec) -> AsyncIterator[None]:
        """Have the model of a stream that is about to register, as far as that needs it.

        A best-effort stream's frames may wait. One that allows swapping is admitted as one of those that stay, if its
        model fits; so that has to be there. For what is refused anyway no other model has to give way.

        Raises:
            UnknownModel, ModelNotLoaded, NoRoomForModel, ModelLoadFailed, TritonUnavailable: It cannot be had.
        """
        if self._states.view(spec.model).barred:
            raise unloaded(spec.model)
        if not self._states.managed or self._can_do_without(spec):
            yield
        else:
            async with self.resident(spec.model, expected=self._condition.parts.expects(spec.model)):
                yield

    def _can_do_without(self, spec: StreamSpec) -> bool:
        """Whether a stream is answered without its model being there."""
        parts = self._condition.parts
        if not (parts.catalogue.knows(spec.model) or parts.expects(spec.model)):
            return False
        return spec.service_class is ServiceClass.BEST_EFFORT or not parts.profiled(spec)

    async def for_check(self, spec: StreamSpec) -> None:
        """Have what is to be known of the model of a stream that might register. Raises as above."""
        if self._states.view(spec.model).barred:
            raise unloaded(spec.model)
        if not self._condition.parts.expects(spec.model):
            await self.metadata(spec.model, spec.version)

    async def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """Return what a call to a model has to know of it; it is loaded for that if it never was. Raises as above."""
        catalogue = self._condition.parts.catalogue
        if catalogue.knows(model):
            return catalogue.known(model, version)
        if self._states.view(model).barred:
            raise unloaded(model)
        async with self.resident(model):
            return catalogue.known(model, version)

    def check_callable(self, model: str, version: str) -> None:
        """Raise unless frames of a model are served now, be it that it is loaded for them. Nothing is loaded.

        Raises:
            UnknownModel, ModelNotLoaded, NoRoomForModel: They are not.
        """
        catalogue, unloadable = self._condition.parts.catalogue, self._condition.parts.unloadable
        if self._states.view(model).barred:
            raise unloaded(model)
        if model in unloadable:
            raise NoRoomForModel(f"Model {model!r} can never be loaded: {unloadable[model]}", model=model)
        if catalogue.knows(model) or not self._states.managed:
            catalogue.known(model, version)
        else:
            catalogue.require_loadable(model)

    @asynccontextmanager
    async def resident(self, model: str, *, expected: bool = False) -> AsyncIterator[None]:
        """Wait until a model is in memory, and keep it there until the end. Without a budget: no matter.

        If there is no room but the model is known, or `expected`, go on all the same: admission says that better, and
        may find that it can take turns. Raises as above.
        """
        parts = self._condition.parts
        if not self._states.managed:
            yield
            return
        parts.catalogue.require_loadable(model)
        holder = secrets.token_hex(8)
        try:
            await self._wait(model, holder, expected=expected)
            yield
        finally:
            parts.driver.post(ReleaseModel(model, holder))

    async def _wait(self, model: str, holder: str, *, expected: bool) -> None:
        parts, limit_s = self._condition.parts, self._condition.parts.models.times.in_all_s
        with parts.waits.waiting(model, self._settle) as settled:
            for action in parts.driver.post(HoldModel(model, holder)):
                if isinstance(action, ModelRefused) and action.model == model:
                    self._weigh(action, expected=expected)
                    return
            if self._states.state(model) is ModelState.RESIDENT:
                return
            await within(limit_s, settled, load_failed(model, f"it is not there after {limit_s:g} s"))

    def _weigh(self, refusal: ModelRefused, *, expected: bool) -> None:
        """Raise unless what is to come can do without the model being there."""
        if refusal.reason == TAKES_TURNS:
            return
        error = refused(refusal, self._states.view(refusal.model), self._clock.now_ns())
        known = expected or self._condition.parts.catalogue.knows(refusal.model)
        if not isinstance(error, NoRoomForModel) or not known:
            raise error

    def _settle(self, change: ModelChanged) -> bool:
        if change.state is ModelState.FAILED:
            raise load_failed(change.model, change.reason)
        if change.state is ModelState.ABSENT and self._states.view(change.model).barred:
            raise unloaded(change.model)
        return change.state is ModelState.RESIDENT
