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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from gateway.core.events import Event, LimitBatches, WorkerBack, WorkerLost
from gateway.core.profile import Profile
from gateway.core.types import LOCAL_WORKER
from gateway.errors import FramegateError
from gateway.runtime.arena import Arena
from gateway.runtime.executor import TritonExecutor
from gateway.runtime.inference import Inference
from gateway.runtime.loading import ModelLoader
from gateway.runtime.model_control import TritonModels
from gateway.runtime.models import Catalogue
from gateway.runtime.readiness import why_nothing_is_served
from gateway.runtime.repairs import Repairs
from gateway.runtime.repository import Repository
from gateway.runtime.sharing import Sharing
from gateway.runtime.upkeep import Upkeep, Wanted
from gateway.runtime.warm_ups import WarmUps
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
        managed: There is a memory budget: models come and go as the engine says.
        unloadable: Models that are larger than it, and what is said of them.
        use_shared_memory: Try shared memory; without it tensors travel in messages.
        probe_timeout_s: Limit of one health probe.
        backoff_max_s: Longest pause between attempts.
    """

    models: tuple[str, ...]
    managed: bool = False
    unloadable: Mapping[str, str] = field(default_factory=dict)
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
        warm_ups: WarmUps,
        executor: TritonExecutor,
        repository: Repository,
        catalogue: Catalogue,
        models: TritonModels,
        profile: Profile,
        config: SupervisorConfig,
    ) -> None:
        self.up = False
        self.server: ServerInfo | None = None
        self.reason = "not connected yet"
        self._client = client
        self._inference = inference
        self._warm_ups = warm_ups
        self._catalogue = catalogue
        self._models = models
        self._profile = profile
        self._config = config
        self._post: Callable[[Event], object] = _nowhere
        self._doubt = asyncio.Event()
        self._sharing = Sharing(
            client,
            arena.region,
            inference,
            executor,
            wanted=config.use_shared_memory,
            probe_timeout_s=config.probe_timeout_s,
        )
        loader = ModelLoader(
            client,
            repository,
            catalogue,
            models=models,
            inference=inference,
            warm_ups=warm_ups,
            profile=profile,
            check=self._sharing.check,
        )
        self.repairs = Repairs(inference, catalogue, loader, profile, self._doubt.set)
        self._upkeep = Upkeep(
            repository,
            catalogue,
            models=models,
            loader=loader,
            repairs=self.repairs,
            served=config.models,
            managed=config.managed,
        )
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self, post: Callable[[Event], object], wanted: Wanted | None = None) -> None:
        """Begin. The worker counts as lost until everything is set up."""
        self._post = post
        self._upkeep.connect(post, wanted)
        self._warm_ups.on_refused_batch = lambda category, reason: post(LimitBatches(category, reason))
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
        await self._models.abandon()

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
            self._models.drop()
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
        await self._sharing.set_up(self.server)
        await self._models.abandon()
        await self._upkeep.set_up()
        self._doubt.clear()
        self._say_what_is_served(self.server)

    def _say_what_is_served(self, server: ServerInfo) -> None:
        """Log what is there, what comes on demand, and what never can."""
        unloadable = self._config.unloadable
        serving = ", ".join(f"{name}/{version}" for name, version in sorted(self._catalogue.serving)) or "nothing"
        awaited = ", ".join(name for name in self._catalogue.on_demand() if name not in unloadable)
        serving += f"; on demand: {awaited}" if awaited else ""
        way = "in shared memory" if self._inference.shared else "inside messages"
        log.info("Triton %s at %s serves %s; frames go %s", server.version, self._client.url, serving, way)
        for model, why in sorted(unloadable.items()):
            log.warning("model %s can never be loaded: %s", model, why)
        # Without a profile there is nothing to register: this is the profiler, which makes one.
        reason = why_nothing_is_served(self._catalogue, self._inference, self._profile, unloadable)
        if self._profile.entries and reason:
            log.warning("no stream can be registered. %s", reason)

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
        """Return what Triton had and has no more; empty when all is well, or is being taken care of."""
        if await self._sharing.lost():
            return "the shared-memory region"
        return await self._upkeep.look(self._config.probe_timeout_s, same=self._inference.shared)


def _nowhere(event: Event) -> object:
    raise FramegateError(f"the supervisor has not been started: {event}")
