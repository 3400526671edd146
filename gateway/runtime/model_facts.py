"""What Triton says of its models: their inputs and outputs, configuration and statistics."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar

from gateway.errors import TritonUnavailable
from gateway.runtime.condition import RETRY_AFTER_S, Condition
from gateway.runtime.holds import Holds
from gateway.triton.types import BackendError, IndexEntry, ModelMetadata

T = TypeVar("T")


class ModelFacts:
    """See the module's docstring.

    Args:
        condition: Of the gateway.
        holds: Have models in memory that are needed there.
    """

    def __init__(self, condition: Condition, holds: Holds) -> None:
        self._condition = condition
        self._holds = holds

    def states(self) -> list[IndexEntry]:
        """Return the state of every model, as of the last look at Triton (at most a second old)."""
        return self._condition.parts.catalogue.states()

    def metadata(self, model: str, version: str | None = None) -> ModelMetadata:
        """Return inputs and outputs of a model. Raises `UnknownModel`, `ModelNotLoaded`, `TritonUnavailable`."""
        self._condition.require_triton()
        catalogue = self._condition.parts.catalogue
        found = catalogue.known(model, version or "")
        return found if version else replace(found, versions=catalogue.versions(model))

    def check_callable(self, model: str, version: str = "") -> None:
        """Raise unless a model, or a version of it, can be called now, be it that it is loaded for that.

        Raises:
            UnknownModel, ModelNotLoaded, TritonUnavailable: It cannot.
        """
        self._condition.require_triton()
        self._holds.check_callable(model, version)

    async def learn(self, model: str, version: str | None = None) -> ModelMetadata:
        """Return as `metadata`; a model that never was in memory is loaded for that, where models come and go.

        Raises:
            UnknownModel, ModelNotLoaded, NoRoomForModel, ModelLoadFailed, TritonUnavailable: It cannot be had.
        """
        self._condition.require_triton()
        await self._holds.metadata(model, version or "")
        return self.metadata(model, version)

    async def config(self, model: str, version: str | None = None) -> dict[str, Any]:
        """Return Triton's configuration of a model, which is loaded for that if need be. Raises as `learn`."""
        self._condition.require_triton()
        async with self._holds.resident(model):
            found = self.metadata(model, version)
            return await _of_triton(self._condition.parts.client.plain_config(found.name, found.version))

    async def statistics(self, model: str = "", version: str = "") -> dict[str, Any]:
        """Return Triton's statistics, of all models if none is named; there are none of one that is not in memory.

        Raises:
            UnknownModel, ModelNotLoaded, TritonUnavailable: There are none to return.
        """
        self._condition.require_triton()
        if model:
            self._condition.parts.catalogue.served(model, version)
        return await _of_triton(self._condition.parts.client.statistics(model, version))


async def _of_triton(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except BackendError as error:
        raise TritonUnavailable(f"Triton does not say: {error.message}", retry_after_s=RETRY_AFTER_S) from None
