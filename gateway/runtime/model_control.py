"""Carries out the engine's decisions about models: each load and unload in Triton, followed to its end.

::

    LoadModel ──> load call ──> versions and metadata learned, in use ──> ModelLoaded
                     ├─> refused ──────────────────────────────────────> ModelLoadFailed
                     └─> no answer in time (`gateway.runtime.late_loads`) ─> ModelLoadFailed, which lingers
    UnloadModel ──> out of use ──> unload call ──> the index does not list it any more ──> ModelUnloaded
                                                     └─> it does after all the time ──> ModelUnloadFailed

The engine asks for one thing at a time of a model; different models come and go beside each other. Nothing here waits
for inference, and inference waits for nothing here: the calls have a channel of their own. When Triton is lost, all of
it is dropped: the engine has forgotten what it asked for, and the supervisor looks at what is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from gateway.core.actions import LoadModel, UnloadModel
from gateway.core.events import Event, ModelLoaded, ModelLoadFailed, ModelUnloaded, ModelUnloadFailed
from gateway.runtime.fatal_loads import FatalLoads
from gateway.runtime.in_use import VersionsInUse
from gateway.runtime.late_loads import LateLoads
from gateway.runtime.memory_probe import MemoryProbe
from gateway.runtime.model_times import ModelTimes
from gateway.runtime.models import Catalogue
from gateway.runtime.repository import Repository, next_step
from gateway.runtime.warmth import Warmth
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError

log = logging.getLogger(__name__)

#: Triton 2.51 never ends the unloading of a Python model whose process was killed, but loads it beside that. So no
#: longer than this is waited for the old one's memory.
_BROKEN_WAIT_S = 3.0
_MS_PER_S = 1_000
#: Reasons of loads that an operator has asked for.
_BY_COMMAND = frozenset({"command", "reload"})

#: How an operation is told of that came to nothing.
Failed = type[ModelLoadFailed] | type[ModelUnloadFailed]


class TritonModels:
    """Implements `gateway.runtime.driver.ModelControl`.

    Args:
        client, repository, catalogue, warmth: Of Triton, and what is known of it.
        times: Limits.
        probe: Measures what models hold.

    Attributes:
        brought: Models that were loaded on demand or by command, and not unloaded since; in order.
        late: Loads that were given up.
        loads: Every load goes through it.
        in_use: The versions that are served.
    """

    def __init__(
        self,
        client: TritonClient,
        repository: Repository,
        catalogue: Catalogue,
        *,
        warmth: Warmth,
        times: ModelTimes,
        probe: MemoryProbe,
    ) -> None:
        self.times = times
        self.loads = FatalLoads(client)
        self.probe = probe
        self.in_use = VersionsInUse(client, repository, catalogue, warmth)
        self._client = client
        self._repository = repository
        self._catalogue = catalogue
        self._warmth = warmth
        self.brought: dict[str, None] = {}
        self.late = LateLoads(
            times,
            unwanted=self.undo,
            over=lambda event: self._post(event),
            lost=lambda reason: self._on_loss(reason),
        )
        self._tasks: dict[str, asyncio.Task[Event | None]] = {}
        self._undoing: dict[str, asyncio.Task[None]] = {}
        self._dropped: set[asyncio.Task[Any]] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._broken: set[str] = set()
        self._post: Callable[[Event], object] = _not_connected
        self._on_loss: Callable[[str], None] = _not_lost

    def connect(self, post: Callable[[Event], object], on_loss: Callable[[str], None]) -> None:
        """Say where ends go, and who is told the reason when Triton does not answer at all."""
        self._post = post
        self._on_loss = on_loss

    def busy(self, model: str) -> bool:
        """Whether a model is on its way in or out by our doing."""
        return model in self._tasks or model in self._undoing

    @property
    def quiet(self) -> bool:
        """Whether no model is on its way in or out by our doing."""
        return not self._tasks and not self._undoing

    def lock(self, model: str) -> asyncio.Lock:
        """Return what to hold while something is done to a model in Triton: one thing at a time."""
        return self._locks.setdefault(model, asyncio.Lock())

    def broke(self, model: str) -> None:
        """Triton says that a model is ready, but it is not: it has to be unloaded before its next load."""
        self._broken.add(model)

    def undo(self, model: str) -> None:
        """Triton has a model that the engine knows nothing of: unload it, beside everything else."""
        if self.busy(model):
            return
        log.warning("model %s is in Triton's memory though nobody here has it there: it is unloaded", model)
        task = asyncio.get_running_loop().create_task(self._undo(model), name=f"undo model {model}")
        self._undoing[model] = task
        task.add_done_callback(lambda ended: self._undoing.pop(model, None))

    # ------------------------------------------------------------ the port

    def load(self, action: LoadModel) -> None:
        """Begin to load."""
        log.info("loading model %s (%s)", action.model, action.reason)
        if action.reason in _BY_COMMAND:
            self.loads.clear(action.model)
        work = partial(self._load, action.model, reload=action.reason == "reload")
        self._begin(action.model, work, ModelLoadFailed)

    def unload(self, action: UnloadModel) -> None:
        """Begin to unload; nothing is sent to the model from now on."""
        log.info("unloading model %s (%s)", action.model, action.reason)
        self._catalogue.leave(action.model)
        self.brought.pop(action.model, None)
        self._begin(action.model, partial(self._unload, action.model), ModelUnloadFailed)

    def drop(self) -> None:
        """Triton is lost: tell of nothing that was under way."""
        dropped: list[asyncio.Task[Any]] = [*self._tasks.values(), *self._undoing.values()]
        for forgotten in (self._tasks, self._undoing, self._broken):
            forgotten.clear()
        for task in dropped:
            task.cancel()
        self._dropped.update(dropped, self.late.drop())

    async def abandon(self) -> None:
        """End all of it: its Triton is gone, or the gateway is going."""
        self.drop()
        if self._dropped:
            await asyncio.wait(self._dropped)
            self._dropped.clear()

    # ------------------------------------------------------------ tasks

    def _begin(self, model: str, work: Callable[[], Awaitable[Event]], failed: Failed) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        task = loop.create_task(self._reported(model, work, failed), name=f"model {model}")
        self._tasks[model] = task
        task.add_done_callback(lambda ended: self._ended(model, ended, failed, loop.time() - began_s))

    async def _reported(self, model: str, work: Callable[[], Awaitable[Event]], failed: Failed) -> Event | None:
        """Do it and return how it ended; None: Triton is gone, and the supervisor knows."""
        try:
            async with self.lock(model):
                return await work()
        except BackendError as error:
            if error.unreachable:
                self._on_loss(error.message)
                return None
            log.warning("model %s: %s", model, error.message)
            return failed(model, error.message)

    def _ended(self, model: str, task: asyncio.Task[Event | None], failed: Failed, took_s: float) -> None:
        """Tell the engine, unless it has forgotten what it asked for."""
        self.probe.changed()
        if self._tasks.get(model) is not task or task.cancelled():
            return
        del self._tasks[model]  # what the engine wants next of this model may begin at once
        if (error := task.exception()) is not None:
            log.error("a load or unload of model %s ended by a fault of the gateway", model, exc_info=error)
            self._post(failed(model, f"a fault of the gateway: {error}"))
        elif (event := task.result()) is not None:
            if not isinstance(event, failed):
                done = "loaded" if failed is ModelLoadFailed else "unloaded"
                log.info("model %s is %s after %.0f ms", model, done, took_s * _MS_PER_S)
            self._post(event)

    # ------------------------------------------------------------ loads

    async def _load(self, model: str, *, reload: bool) -> Event:
        if model in self._broken:
            await self.remove_broken(model)
        try:
            in_time = await self.late.call(model, self.loads.load(model), reload=reload)
        except BackendError as error:
            raise BackendError(f"{error.message}{next_step(model, error.message)}", error.code) from None
        if not in_time:
            words = f"Triton did not load it within {self.times.load_s:g} s"
            log.warning("model %s: %s", model, words)
            return ModelLoadFailed(model, words, lingers=True)
        try:
            await self.in_use.take_in(model)
            self.brought[model] = None
            return ModelLoaded(model, held_bytes=await self.probe.loaded(model))
        except BackendError as error:
            if not error.unreachable and not reload:
                await self.remove(model)
            raise

    async def remove(self, model: str) -> None:
        """Unload a model that the engine has not asked about, if Triton can. Raises `BackendError` without Triton."""
        await self._try_to_remove(model, self.times.unload_s)

    async def remove_broken(self, model: str) -> None:
        """Likewise one whose process has died."""
        await self._try_to_remove(model, _BROKEN_WAIT_S)
        self._broken.discard(model)

    async def _try_to_remove(self, model: str, limit_s: float) -> None:
        try:
            await self._remove(model, limit_s)
            self.late.settle(model)
        except BackendError as error:  # what comes of that is seen at its next load, or by the watch
            if error.unreachable:
                raise
            log.warning("Triton does not unload model %s: %s", model, error.message)

    # ------------------------------------------------------------ unloads

    async def _undo(self, model: str) -> None:
        with suppress(BackendError):  # the watch finds that Triton is lost
            async with self.lock(model):
                await self.remove(model)

    async def _unload(self, model: str) -> Event:
        await self.probe.leaving(model)
        try:
            await self._remove(model, self.times.unload_s)
        except BackendError as error:
            if not error.unreachable:
                await self._keep(model)
            raise
        self._broken.discard(model)
        self._warmth.forget(model)
        return ModelUnloaded(model, await self.probe.gone(model))

    async def _keep(self, model: str) -> None:
        """A model that was to go has not: if it can be used, it is used again."""
        with suppress(BackendError):  # it was, or is about to, or Triton is gone: each is seen elsewhere
            await self.in_use.take_in(model)
            self.brought[model] = None

    async def _remove(self, model: str, limit_s: float) -> None:
        """Unload and wait until Triton does not list the model any more.

        Raises:
            BackendError: Triton refuses, or has it still after `limit_s`.
        """
        await self._client.unload(model)
        await self._repository.until_gone(model, limit_s)


def _not_connected(event: Event) -> object:
    raise RuntimeError(f"the models are not connected to a driver: {event}")


def _not_lost(reason: str) -> None:
    pass
