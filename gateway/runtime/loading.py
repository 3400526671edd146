"""Brings models into Triton and into use: loaded, known, warm. And once more, when one has broken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from gateway.core.profile import Profile
from gateway.core.types import Category
from gateway.errors import ArenaTooSmall, BodyTooLarge, FramegateError
from gateway.runtime.inference import Inference
from gateway.runtime.models import MODEL_NAME, Catalogue, profiled_pairs
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, ModelMetadata

log = logging.getLogger(__name__)

#: A model that is not loaded after this long is reported as failed. Large TensorFlow graphs take half a minute.
_LOAD_TIMEOUT_S = 120.0
#: Loads at one time: enough that one that hangs does not hold up the rest, few enough to spare memory.
_PARALLEL_LOADS = 4
#: Triton 2.51 never ends the unloading of a Python model whose process was killed, but loads it beside that. So no
#: longer than this is waited for the old one's memory.
_UNLOAD_WAIT_S = 3.0
_POLL_S = 0.05
#: What Triton 2.51 says of a model without files: no directory of it, none of a version, none that its policy takes.
_NOT_BUILT = ("failed to poll from model repository", "no version is available", "at least one version must be")
#: States of the index in which a model still takes memory.
_IN_MEMORY = frozenset({"ready", "loading", "unloading"})


class ModelLoader:
    """Used by the supervisor: `load` while the worker counts as lost, `reload` beside other models' jobs.

    Attributes:
        on_unfit: Told of a model that was loaded but fails in its warm-up, and how.
        on_refused_batch: Told of a category whose batches fail, and how, where single frames do not.
    """

    def __init__(self, client: TritonClient, inference: Inference, catalogue: Catalogue, profile: Profile) -> None:
        self._client = client
        self._inference = inference
        self._catalogue = catalogue
        self._profile = profile
        self._single: set[Category] = set()
        self.on_unfit: Callable[[str, str], object] = _nobody
        self.on_refused_batch: Callable[[Category, str], object] = _nobody

    async def load(self, wanted: Sequence[str]) -> None:
        """Load what is not loaded yet, then warm all of it; each failure is noted in the catalogue.

        Raises:
            BackendError: Triton went away meanwhile.
        """
        await self._load(wanted)
        self._catalogue.look(await self._client.index())
        for model in wanted:
            await self._take_in(model, _LOAD_TIMEOUT_S)

    async def reload(self, model: str) -> bool:
        """Unload a broken model, load it again and warm it; return whether it can be used. Failures are noted.

        Raises:
            BackendError: Triton went away meanwhile.
        """
        try:
            await self._unload(model)
            await self._client.load(model, _LOAD_TIMEOUT_S)
            self._catalogue.look(await self._client.index())
        except BackendError as error:
            if error.unreachable:
                raise
            self._fail(model, f"Reloading it failed: {error.message}")
            return False
        await self._take_in(model, self._inference.timeout_s)
        return any(name == model for name, _ in self._catalogue.serving)

    async def _in_memory(self, model: str) -> bool:
        return any(entry.name == model and entry.state in _IN_MEMORY for entry in await self._client.index())

    async def _unload(self, model: str) -> None:
        try:
            await self._client.unload(model)
        except BackendError as error:  # whether that matters is seen when it is loaded
            if error.unreachable:
                raise
            log.warning("Triton does not unload model %s: %s", model, error.message)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_UNLOAD_WAIT_S):
                while await self._in_memory(model):  # noqa: ASYNC110 - Triton has no event for it
                    await asyncio.sleep(_POLL_S)

    async def _load(self, wanted: Sequence[str]) -> None:
        ready = {name for name, _ in self._catalogue.ready_versions()}
        slots = asyncio.Semaphore(_PARALLEL_LOADS)

        async def load(model: str) -> None:
            async with slots:
                if MODEL_NAME.fullmatch(model) is None:
                    self._fail(model, f"Its name is not of the form {MODEL_NAME.pattern}.")
                    return
                try:
                    await self._client.load(model, _LOAD_TIMEOUT_S)
                except BackendError as error:
                    if error.unreachable:
                        raise
                    self._fail(model, f"Loading it failed: {error.message}{_next_step(model, error.message)}")

        await asyncio.gather(*(load(model) for model in wanted if model not in ready))

    async def _take_in(self, model: str, timeout_s: float) -> None:
        """Learn the ready versions of a wanted model and warm them, each batch within `timeout_s`."""
        self._inference.warmth.forget(model)
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
                self._fail(model, error.message)
                self.on_unfit(model, error.message)
            except FramegateError as error:
                self._fail(model, error.detail)

    async def _warm(self, model: ModelMetadata, timeout_s: float) -> None:
        """Run every batch that may be formed once: the first execution of a shape can take a hundred times as long."""
        for dtype in {tensor.datatype for tensor in model.inputs}:
            for category, frames in profiled_pairs(self._profile, model.name, model.version, dtype):
                if frames > 1 and category in self._single:
                    continue
                try:
                    self._inference.check_carries(category, self._profile.max_batch(category))
                    await self._warm_up(category, frames, timeout_s, model)
                except (ArenaTooSmall, BodyTooLarge):
                    continue  # no stream of this category can be registered: `Gateway.register` says why
                except BackendError as error:
                    raise BackendError(
                        f"Warming {category} with {frames} frames failed: {error.message}", error.code
                    ) from None

    async def _warm_up(self, category: Category, frames: int, timeout_s: float, model: ModelMetadata) -> None:
        """Run one batch. One that is refused, although a single frame is not, is no reason not to serve the model."""
        try:
            await self._inference.warm(category, frames, timeout_s, model)
        except BackendError as error:
            if frames == 1 or error.unreachable or error.timed_out:
                raise
            await self._inference.warm(category, 1, timeout_s, model)
            log.warning("%s is run one frame at a time: a batch of %d failed: %s", category, frames, error.message)
            self._single.add(category)
            self.on_refused_batch(category, error.message)

    def _fail(self, model: str, reason: str) -> None:
        log.warning("model %s is not served. %s", model, reason)
        self._catalogue.fail(model, reason)


def _next_step(model: str, said: str) -> str:
    """Return what to do about a model that Triton finds no files of; empty about every other."""
    if not any(words in said for words in _NOT_BUILT):
        return ""
    return (
        f". Its files are not in Triton's model repository. If `framegate zoo list` has it, build it with "
        f"`framegate zoo build {model}`; else put it there."
    )


def _nobody(what: object, reason: str) -> None:
    pass
