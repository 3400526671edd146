"""What Triton says of its models: their inputs and outputs, configuration and statistics."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar

from gateway.errors import TritonUnavailable
from gateway.runtime.condition import RETRY_AFTER_S, Condition
from gateway.triton.types import BackendError, ModelMetadata, ModelState

T = TypeVar("T")


class ModelFacts:
    """See the module's docstring.

    Args:
        condition: Of the gateway.
    """

    def __init__(self, condition: Condition) -> None:
        self._condition = condition

    def states(self) -> list[ModelState]:
        """Return the state of every model, as of the last look at Triton (at most a second old)."""
        return self._condition.parts.catalogue.states()

    def metadata(self, model: str, version: str | None = None) -> ModelMetadata:
        """Return inputs and outputs of a model. Raises `UnknownModel`, `ModelNotLoaded`, `TritonUnavailable`."""
        self._condition.require_triton()
        catalogue = self._condition.parts.catalogue
        found = catalogue.served(model, version or "")
        return found if version else replace(found, versions=catalogue.versions(model))

    async def config(self, model: str, version: str | None = None) -> dict[str, Any]:
        """Return Triton's configuration of a model that is served. Raises as `metadata`."""
        found = self.metadata(model, version)
        return await _of_triton(self._condition.parts.client.plain_config(found.name, found.version))

    async def statistics(self, model: str = "", version: str = "") -> dict[str, Any]:
        """Return Triton's statistics, of all models if none is named. Raises `TritonUnavailable`."""
        self._condition.require_triton()
        return await _of_triton(self._condition.parts.client.statistics(model, version))


async def _of_triton(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except BackendError as error:
        raise TritonUnavailable(f"Triton does not say: {error.message}", retry_after_s=RETRY_AFTER_S) from None
