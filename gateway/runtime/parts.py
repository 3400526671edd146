"""Builds what a running gateway consists of, and takes it apart in the right order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gateway.clock import Clock
from gateway.core.engine import Engine
from gateway.core.profile import Profile
from gateway.core.types import StreamSpec
from gateway.runtime import readiness
from gateway.runtime.arena import Arena
from gateway.runtime.delivery import Delivery
from gateway.runtime.driver import Driver, Observer
from gateway.runtime.executor import TritonExecutor
from gateway.runtime.inference import Inference
from gateway.runtime.models import Catalogue
from gateway.runtime.opaque import OpaqueCalls
from gateway.runtime.region import private_region, remove_dead_regions, shared_region
from gateway.runtime.registrar import Registrar
from gateway.runtime.room import PromisedRoom
from gateway.runtime.supervisor import Supervisor, SupervisorConfig
from gateway.settings import Settings, SharedMemory
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError

log = logging.getLogger(__name__)

_MS_PER_S = 1_000
#: Triton 2.51 says for some milliseconds after its last answer that the region is still in use. It is asked again
#: this often, this many times: 2 s in all.
_UNREGISTER_PAUSE_S = 0.04
_UNREGISTER_TRIES = 50


class Parts:
    """Arena, client, executor and supervisor of one Triton; with `start`, the driver on top of them.

    Needs a running event loop.

    Raises:
        ArenaTooSmall: ``/dev/shm`` has no room for the arena.
    """

    driver: Driver
    delivery: Delivery
    registrar: Registrar

    def __init__(self, settings: Settings, profile: Profile) -> None:
        triton = settings.triton
        use_shared_memory = triton.shared_memory is not SharedMemory.OFF
        size = settings.arena.bytes
        if use_shared_memory:
            remove_dead_regions()
        self.arena = Arena(shared_region(size) if use_shared_memory else private_region(size))
        self.client = TritonClient(triton.url, max_message_bytes=triton.max_message_bytes)
        self.catalogue = Catalogue()
        self.inference = Inference(
            self.client,
            self.arena,
            self.catalogue,
            timeout_s=triton.call_timeout_ms / _MS_PER_S,
            max_message_bytes=triton.max_message_bytes,
            opaque=OpaqueCalls(settings.limits.inflight_body_bytes),
        )
        self.executor = TritonExecutor(self.inference, self.arena)
        self.supervisor = Supervisor(
            self.client,
            arena=self.arena,
            inference=self.inference,
            executor=self.executor,
            catalogue=self.catalogue,
            profile=profile,
            config=SupervisorConfig(
                models=tuple(settings.models or dict.fromkeys(entry.model for entry in profile.entries)),
                use_shared_memory=use_shared_memory,
                probe_timeout_s=triton.connect_timeout_ms / _MS_PER_S,
                backoff_max_s=triton.backoff_max_ms / _MS_PER_S,
            ),
        )
        self.promised = PromisedRoom(size, profile)
        self._limits = settings.limits
        self._profile = profile

    def start(self, engine: Engine, clock: Clock, observers: Sequence[Observer]) -> None:
        """Put the engine on top and begin to look for Triton."""
        self.delivery = Delivery(
            self.arena,
            self.executor,
            self.promised,
            results_kept=self._limits.results_kept,
            results_kept_bytes=self._limits.results_kept_bytes,
            closed_streams_kept=self._limits.closed_streams_kept,
        )
        self.driver = Driver(engine, clock, self.executor, self.delivery, observers)
        self.driver.on_broken = self.delivery.give_up
        self.delivery.connect(self.driver.post)
        self.executor.connect(self.driver.post, self.supervisor.trouble, self.supervisor.repairs.examine)
        self.supervisor.start(self.driver.post)
        self.registrar = Registrar(engine, clock, self.driver.post, most_waiting=self._limits.max_streams)
        self.driver.on_can_widen = self.registrar.widen
        self.registrar.start()

    def fitted(self, spec: StreamSpec) -> StreamSpec:
        """Return `spec` with its version filled in. Raises as `gateway.runtime.readiness.fitted`."""
        return readiness.fitted(spec, self.catalogue, self.inference, self._profile)

    def why_nothing_is_served(self) -> str:
        """Return why no stream could be registered now; empty if one could."""
        return readiness.why_nothing_is_served(self.catalogue, self.inference, self._profile)

    async def close(self) -> None:
        """End in this order: nothing new is dispatched, calls end, Triton closes the region, the memory goes."""
        await self.supervisor.stop()
        await self.executor.abandon()
        if hasattr(self, "driver"):
            self.driver.close()
            await self.registrar.close()
        await self._unregister()
        await self.client.close()
        self.arena.close()

    async def _unregister(self) -> None:
        """Have Triton close our region; while it still uses it, it may refuse."""
        if not self.inference.shared:
            return
        name = self.arena.region.name
        reason = ""
        for _ in range(_UNREGISTER_TRIES):
            try:
                await self.client.unregister_region(name)
            except BackendError as error:
                if error.unreachable:
                    return
                reason = error.message
                await asyncio.sleep(_UNREGISTER_PAUSE_S)
            else:
                return
        log.warning("Triton keeps shared-memory region %s registered: %s", name, reason)
