"""Brings models into Triton and into use while the worker counts as lost: loaded, known, warm. And broken ones back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from gateway.core.profile import Profile
from gateway.errors import FramegateError
from gateway.runtime.inference import Inference
from gateway.runtime.model_control import TritonModels
from gateway.runtime.models import MODEL_NAME, Catalogue, profiled_pairs
from gateway.runtime.repository import Repository, next_step
from gateway.runtime.warm_ups import WarmUps
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, ModelMetadata

log = logging.getLogger(__name__)

#: Loads at one time: enough that one that hangs does not hold up the rest, few enough to spare memory.
_PARALLEL_LOADS = 4


class ModelLoader:
    """Used by the supervisor: `load` while the worker counts as lost, `reload` beside other models' jobs.

    Args:
        client, repository, catalogue: Of Triton, and what is known of it.
        models: Knows how to unload, and how long a load may take.
        inference, warm_ups, profile: What is run of each model.
        check: Raises `BackendError` when Triton was restarted unseen: what fails then is no fault of a model's.

    Attributes:
        on_unfit: Told of a model that was loaded but fails in its warm-up, and how.
    """

    def __init__(
        self,
        client: TritonClient,
        repository: Repository,
        catalogue: Catalogue,
        *,
        models: TritonModels,
        inference: Inference,
        warm_ups: WarmUps,
        profile: Profile,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._repository = repository
        self._catalogue = catalogue
        self._models = models
        self._inference = inference
        self._warm_ups = warm_ups
        self._profile = profile
        self._check = check
        self.on_unfit: Callable[[str, str], object] = _nobody

    async def load(self, wanted: Sequence[str]) -> dict[str, str]:
        """Load what is not loaded yet, then warm all of it.

        Returns:
            Why models cannot be used, of those that cannot; the catalogue has it too.

        Raises:
            BackendError: Triton went away meanwhile.
        """
        failures = await self._load(wanted)
        await self._repository.look()
        for model in wanted:
            if reason := await self._take_in(model, self._models.times.load_s):
                failures.setdefault(model, reason)
        await self._check()
        return failures

    async def remove(self, models: Iterable[str]) -> None:
        """Unload those of the models that are there, and wait until they are gone. Raises `BackendError`."""
        ready = {name for name, _ in self._catalogue.ready_versions()}
        await asyncio.gather(*(self._models.remove(model) for model in models if model in ready))

    async def reload(self, model: str) -> bool:
        """Unload a broken model, load it again and warm it; return whether it can be used. Failures are noted.

        Raises:
            BackendError: Triton went away meanwhile.
        """
        async with self._models.lock(model):
            try:
                await self._models.remove_broken(model)
                await self._models.loads.load(model, self._models.times.load_s)
                await self._repository.look()
            except BackendError as error:
                if error.unreachable:
                    raise
                self._fail(model, f"Reloading it failed: {error.message}")
                return False
            await self._take_in(model, self._inference.timeout_s)
        return any(name == model for name, _ in self._catalogue.serving)

    async def _load(self, wanted: Sequence[str]) -> dict[str, str]:
        ready = {name for name, _ in self._catalogue.ready_versions()}
        slots = asyncio.Semaphore(_PARALLEL_LOADS)
        failures: dict[str, str] = {}

        async def load(model: str) -> None:
            async with slots:
                if MODEL_NAME.fullmatch(model) is None:
                    failures[model] = self._fail(model, f"Its name is not of the form {MODEL_NAME.pattern}.")
                    return
                try:
                    await self._models.loads.load(model, self._models.times.load_s)
                except BackendError as error:
                    if error.unreachable:
                        raise
                    await self._check()
                    reason = f"Loading it failed: {error.message}{next_step(model, error.message)}"
                    failures[model] = self._fail(model, reason)

        absent = [model for model in wanted if model not in ready]
        suspects = [model for model in absent if self._models.loads.suspect(model)]
        await asyncio.gather(*(load(model) for model in absent if model not in suspects))
        for model in suspects:
            await load(model)
        return failures

    async def _take_in(self, model: str, timeout_s: float) -> str:
        """Learn the ready versions of a wanted model and warm them, each batch within `timeout_s`.

        Returns:
            Why it cannot be used; empty if it can, or is not ready.
        """
        self._inference.warmth.forget(model)
        reason = ""
        for name, version in sorted(self._catalogue.ready_versions()):
            if name != model:
                continue
            try:
                metadata = await self._client.metadata(name, version)
                await self._warm(metadata, timeout_s)
                self._catalogue.serve(metadata)
            except BackendError as error:
                if error.unreachable:
                    raise
                await self._check()
                reason = self._fail(model, error.message)
                self.on_unfit(model, error.message)
            except FramegateError as error:
                reason = self._fail(model, error.detail)
        return reason

    async def _warm(self, model: ModelMetadata, timeout_s: float) -> None:
        """Run every batch that may be formed once: the first execution of a shape can take a hundred times as long."""
        for dtype in {tensor.datatype for tensor in model.inputs}:
            for category, frames in profiled_pairs(self._profile, model.name, model.version, dtype):
                try:
                    await self._warm_ups.run(category, frames, timeout_s, model)
                except BackendError as error:
                    raise BackendError(
                        f"Warming {category} with {frames} frames failed: {error.message}", error.code
                    ) from None

    def _fail(self, model: str, reason: str) -> str:
        log.warning("model %s is not served. %s", model, reason)
        self._catalogue.fail(model, reason)
        return reason


def _nobody(model: str, reason: str) -> None:
    pass
