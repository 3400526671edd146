"""Brings models into Triton and into use: loaded, known, warm."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gateway.core.profile import Profile
from gateway.errors import ArenaTooSmall, BodyTooLarge, FramegateError
from gateway.runtime.executor import TritonExecutor
from gateway.runtime.models import Catalogue, profiled_pairs
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError

log = logging.getLogger(__name__)

#: A model that is not loaded after this long is reported as failed. Large TensorFlow graphs take half a minute.
_LOAD_TIMEOUT_S = 120.0
#: Loads at one time: enough that one that hangs does not hold up the rest, few enough to spare memory.
_PARALLEL_LOADS = 4


class ModelLoader:
    """Used by the supervisor while the worker counts as lost, so that nothing else runs on the device."""

    def __init__(self, client: TritonClient, executor: TritonExecutor, catalogue: Catalogue, profile: Profile) -> None:
        self._client = client
        self._executor = executor
        self._catalogue = catalogue
        self._profile = profile

    async def load(self, wanted: Sequence[str]) -> None:
        """Load what is not loaded yet, then warm all of it; each failure is noted in the catalogue.

        Raises:
            BackendError: Triton went away meanwhile.
        """
        await self._load(wanted)
        self._catalogue.look(await self._client.index())
        for model in wanted:
            await self._take_in(model)

    async def _load(self, wanted: Sequence[str]) -> None:
        ready = {name for name, _ in self._catalogue.ready_versions()}
        slots = asyncio.Semaphore(_PARALLEL_LOADS)

        async def load(model: str) -> None:
            async with slots:
                try:
                    await self._client.load(model, _LOAD_TIMEOUT_S)
                except BackendError as error:
                    if error.unreachable:
                        raise
                    self._fail(model, f"Loading it failed: {error.message}")

        await asyncio.gather(*(load(model) for model in wanted if model not in ready))

    async def _take_in(self, model: str) -> None:
        """Learn the ready versions of a wanted model and warm them."""
        for name, version in sorted(self._catalogue.ready_versions()):
            if name != model:
                continue
            try:
                self._catalogue.serve(await self._client.metadata(name, version))
                await self._warm(name, version)
            except BackendError as error:
                if error.unreachable:
                    raise
                self._fail(model, error.message)
            except FramegateError as error:
                self._fail(model, error.detail)

    async def _warm(self, model: str, version: str) -> None:
        """Run every batch that may be formed once: the first execution of a shape can take a hundred times as long."""
        for dtype in {tensor.datatype for tensor in self._catalogue.served(model, version).inputs}:
            for category, frames in profiled_pairs(self._profile, model, version, dtype):
                try:
                    self._executor.check_carries(category, self._profile.max_batch(category))
                    await self._executor.warm(category, frames)
                except (ArenaTooSmall, BodyTooLarge):
                    continue  # no stream of this category can be registered: `Gateway.register` says why
                except BackendError as error:
                    raise BackendError(
                        f"Warming {category} with {frames} frames failed: {error.message}", error.code
                    ) from None

    def _fail(self, model: str, reason: str) -> None:
        log.warning("model %s is not served. %s", model, reason)
        self._catalogue.fail(model, reason)
