"""Keeps one Triton usable: connects, loads, warms, watches, and starts again when it is lost.

::

    away ── answers ──> set up: region, models, warm-up ── WorkerBack ──> watched
     ^                          │ it goes away meanwhile                     │
     └────────── back-off ──────┴───────────── WorkerLost ───────────────────┘

A restarted Triton has forgotten its shared-memory registrations and the models that were loaded into it,
and gRPC reconnects without a word. So the watch asks not whether *a* Triton answers, but whether our region
and our models are still there.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from gateway.core.events import Event, LimitBatches, WorkerBack, WorkerLost
from gateway.core.profile import Profile
from gateway.core.types import LOCAL_WORKER
from gateway.errors import FramegateError
from gateway.runtime.arena import Arena
from gateway.runtime.executor import TritonExecutor
from gateway.runtime.inference import Inference
from gateway.runtime.loading import ModelLoader
from gateway.runtime.models import Catalogue
from gateway.runtime.readiness import why_nothing_is_served
from gateway.runtime.region import dead_regions
from gateway.runtime.repairs import Repairs
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, ServerInfo

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_POLL_S = 1.0
#: One late answer on a busy machine is no loss; two in a row are.
_LATE_ANSWERS = 2


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """What the supervisor is told once.

    Attributes:
        models: Models to load and serve; empty for those that are loaded already.
        use_shared_memory: Try shared memory; without it tensors travel in messages.
        probe_timeout_s: Limit of one health probe.
        backoff_max_s: Longest pause between attempts.
    """

    models: tuple[str, ...]
    use_shared_memory: bool = True
    probe_timeout_s: float = 1.0
    backoff_max_s: float = 2.0


class Supervisor:
    """One background task that owns the state of one worker.

    Attributes:
        up: Triton is connected, set up and watched.
        server: Who answered last; None before the first time.
        reason: Why it is not up.
        repairs: Told of jobs that Triton refused.
    """

    def __init__(
        self,
        client: TritonClient,
        *,
        arena: Arena,
        inference: Inference,
        executor: TritonExecutor,
        catalogue: Catalogue,
        profile: Profile,
        config: SupervisorConfig,
    ) -> None:
        self.up = False
        self.server: ServerInfo | None = None
        self.reason = "not connected yet"
        self._client = client
        self._arena = arena
        self._inference = inference
        self._executor = executor
        self._catalogue = catalogue
        self._profile = profile
        self._loader = ModelLoader(client, inference, catalogue, profile)
        self._config = config
        self._post: Callable[[Event], object] = _nowhere
        self._doubt = asyncio.Event()
        self.repairs = Repairs(inference, catalogue, self._loader, profile, self._doubt.set)
        self._loader.on_unfit = self.repairs.broke
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self, post: Callable[[Event], object]) -> None:
        """Begin. The worker counts as lost until everything is set up."""
        self._post = post
        self._loader.on_refused_batch = lambda category, reason: post(LimitBatches(category, reason))
        post(WorkerLost(LOCAL_WORKER))
        self._task = asyncio.get_running_loop().create_task(self._run(), name="triton supervisor")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End the background task; the worker counts as lost."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self._lose("the gateway is stopping")

    def trouble(self, reason: str) -> None:
        """A job failed because Triton did not answer: the worker is lost at once."""
        self._lose(reason)
        self._doubt.set()

    # ------------------------------------------------------------ the loop

    async def _run(self) -> None:
        while True:
            await self._connect()
            self.up, self.reason = True, ""
            self._post(WorkerBack(LOCAL_WORKER))
            await self._watch()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The loop ends only by `stop`. Should a fault of ours end it, that is said, and seen in `up`."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the supervisor of Triton ended", exc_info=error)
            self._lose(f"the supervisor ended: {error}")

    def _lose(self, reason: str) -> None:
        self.reason = reason
        if self.up:
            self.up = False
            self._catalogue.clear()
            level = logging.INFO if self._stopping else logging.WARNING
            log.log(level, "lost Triton at %s: %s", self._client.url, reason)
            self._post(WorkerLost(LOCAL_WORKER))

    async def _connect(self) -> None:
        """Try until all is set up, with growing pauses, each with some chance in it."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._set_up()
            except BackendError as error:
                if error.message != self.reason:
                    log.info("no Triton at %s yet: %s", self._client.url, error.message)
                self.reason = error.message
            else:
                return
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, self._config.backoff_max_s)

    async def _set_up(self) -> None:
        """Take a Triton in whatever state to one that serves all that can be served.

        Raises:
            BackendError: It went away, or is the old one and still busy with a job that was given up.
        """
        if not await self._client.live(self._config.probe_timeout_s):
            raise BackendError("Triton is not live yet")
        self.server = await self._client.server()
        await self._share_region(self.server)
        self._catalogue.look(await self._client.index())
        wanted = self._config.models or tuple(sorted({name for name, _ in self._catalogue.ready_versions()}))
        await self._loader.load(wanted)
        self._doubt.clear()
        serving = ", ".join(f"{name}/{version}" for name, version in sorted(self._catalogue.serving))
        way = "in shared memory" if self._inference.shared else "inside messages"
        log.info(
            "Triton %s at %s serves %s; frames go %s", self.server.version, self._client.url, serving or "nothing", way
        )
        # Without a profile there is nothing to register: this is the profiler, which makes one.
        if self._profile.entries and (reason := why_nothing_is_served(self._catalogue, self._inference, self._profile)):
            log.warning("no stream can be registered. %s", reason)

    async def _share_region(self, server: ServerInfo) -> None:
        """Have Triton open our region, unless it cannot; end calls that were left with a Triton that is gone."""
        region = self._arena.region
        if self._config.use_shared_memory and "system_shared_memory" in server.extensions:
            if region.name in await self._client.region_names():
                await self._wait_for_given_up_calls()
                return
            await self._executor.abandon()
            try:
                await self._client.register_region(region.name, region.key, region.size)
            except BackendError as error:
                if error.unreachable or error.timed_out:
                    raise
                log.warning("Triton refuses shared memory, so frames go inside messages: %s", error.message)
                self._inference.shared = False
            else:
                self._inference.shared = True
                await self._unregister_dead_regions()
            return
        await self._executor.abandon()
        self._inference.shared = False

    async def _unregister_dead_regions(self) -> None:
        """Have Triton close what gateways that were killed left open: their memory is held until then.

        It opened our region, so its ``/dev/shm`` is ours, and a region whose file is not there belongs to nobody.
        """
        try:
            for name in dead_regions(await self._client.region_names()):
                await self._client.unregister_region(name)
                log.info("unregistered shared memory of a dead gateway: %s", name)
        except BackendError as error:
            log.warning("shared memory of dead gateways stays registered: %s", error.message)

    async def _wait_for_given_up_calls(self) -> None:
        """The same Triton is back. While it still holds a job the device is not ours, nor is the job's block."""
        try:
            async with asyncio.timeout(self._config.probe_timeout_s):
                await self._executor.idle()
        except TimeoutError:
            raise BackendError("Triton has not ended a job that was given up") from None

    # ------------------------------------------------------------ the watch

    async def _watch(self) -> None:
        """Return once the worker is lost."""
        late = 0
        while self.up:
            await self._pause()
            try:
                missing = await self._missing()
                if not missing:
                    await self.repairs.repair()
            except BackendError as error:
                late = late + 1 if error.timed_out else _LATE_ANSWERS
                if late >= _LATE_ANSWERS:
                    self._lose(error.message)
                continue
            late = 0
            if missing:
                self._lose(f"it was restarted or changed: {missing} is gone")

    async def _pause(self) -> None:
        """Wait for the next poll, or for a reason to look at once."""
        with suppress(TimeoutError):
            # Not `wait_for`, which until Python 3.12 swallows a cancellation that comes with the event.
            async with asyncio.timeout(_POLL_S):
                await self._doubt.wait()
            self._doubt.clear()

    async def _missing(self) -> str:
        """Return what Triton had and has no more; empty when all is well."""
        region = self._arena.region.name
        if self._inference.shared and region not in await self._client.region_names(self._config.probe_timeout_s):
            return "the shared-memory region"
        before = self._catalogue.serving
        self._catalogue.look(await self._client.index(self._config.probe_timeout_s))
        gone = before - self._catalogue.serving
        if not self._config.models:
            gone = frozenset()  # nothing was asked for in particular: whoever unloads a model means it
        elif self._inference.shared:  # our region is there, so it is the same Triton: only these models are gone
            kept = {name for name, _ in self._catalogue.serving}
            for model in {name for name, _ in gone} - kept:
                self.repairs.missing(model)
            gone = frozenset(key for key in gone if key[0] in kept)
        return ", ".join(f"model {name}/{version}" for name, version in sorted(gone))


def _nowhere(event: Event) -> object:
    raise FramegateError(f"the supervisor has not been started: {event}")
