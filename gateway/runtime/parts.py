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
from gateway.runtime.memory_probe import MemoryProbe
from gateway.runtime.model_control import TritonModels
from gateway.runtime.model_states import ModelStates
from gateway.runtime.model_times import ModelTimes
from gateway.runtime.model_waits import ModelWaits
from gateway.runtime.models import Catalogue
from gateway.runtime.opaque import OpaqueCalls
from gateway.runtime.region import open_region
from gateway.runtime.registrar import Registrar
from gateway.runtime.repository import Repository
from gateway.runtime.room import PromisedRoom
from gateway.runtime.serial import SerialWatch
from gateway.runtime.supervisor import Supervisor, SupervisorConfig
from gateway.runtime.versions import Versions
from gateway.runtime.warm_ups import WarmUps
from gateway.settings import Settings, SharedMemory
from gateway.triton.client import TritonClient
from gateway.triton.metrics_page import MetricsPage
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
    versions: Versions

    def __init__(self, settings: Settings, profile: Profile) -> None:
        triton = settings.triton
        use_shared_memory = triton.shared_memory is not SharedMemory.OFF
        size = settings.arena.bytes
        self.arena = Arena(open_region(settings.arena, shared=use_shared_memory))
        self.client = TritonClient(
            triton.url,
            max_message_bytes=triton.max_message_bytes,
            http_url=triton.http_url if use_shared_memory else "",
        )
        managed = settings.engine_config().residency.managed
        models = tuple(settings.models or dict.fromkeys(entry.model for entry in profile.entries))
        self.unloadable = readiness.never_there(profile, settings.residency.budget_bytes)
        self.catalogue = Catalogue(come_back=managed, wanted=models)
        self.repository = Repository(self.client, self.catalogue)
        self.inference = Inference(
            self.client,
            self.arena,
            self.catalogue,
            timeout_s=triton.call_timeout_ms / _MS_PER_S,
            max_message_bytes=triton.max_message_bytes,
            opaque=OpaqueCalls(settings.limits.inflight_body_bytes),
        )
        warm_ups = WarmUps(self.inference, profile)
        self.executor = TritonExecutor(self.inference, self.arena, warm_ups)
        self.models = TritonModels(
            self.client,
            self.repository,
            self.catalogue,
            warmth=self.inference.warmth,
            times=ModelTimes(settings.residency.load_timeout_s, settings.residency.unload_timeout_s),
            probe=_memory_probe(settings, self.client, profile),
        )
        self.waits = ModelWaits()
        self.supervisor = Supervisor(
            self.client,
            arena=self.arena,
            inference=self.inference,
            warm_ups=warm_ups,
            executor=self.executor,
            repository=self.repository,
            catalogue=self.catalogue,
            models=self.models,
            profile=profile,
            config=SupervisorConfig(
                models=models,
                managed=managed,
                unloadable=self.unloadable,
                use_shared_memory=use_shared_memory,
                probe_timeout_s=triton.connect_timeout_ms / _MS_PER_S,
                backoff_max_s=triton.backoff_max_ms / _MS_PER_S,
            ),
        )
        self.promised = PromisedRoom(size, profile)
        self._limits = settings.limits
        self._rate_limited = triton.rate_limited
        self._profile = profile

    def start(self, engine: Engine, clock: Clock, observers: Sequence[Observer], states: ModelStates) -> None:
        """Put the engine on top, with what is kept of its models' states, and begin to look for Triton."""
        self.delivery = Delivery(
            self.arena,
            self.executor,
            self.promised,
            results_kept=self._limits.results_kept,
            results_kept_bytes=self._limits.results_kept_bytes,
            closed_streams_kept=self._limits.closed_streams_kept,
        )
        observers = (*observers, states, self.waits)
        self.driver = Driver(engine, clock, self.executor, self.delivery, observers, self.models)
        self.driver.on_broken = self._give_up
        self.delivery.connect(self.driver.post)
        self.inference.named = self.delivery.named
        self.executor.connect(self.driver.post, self.supervisor.trouble, self.supervisor.repairs.examine)
        self.models.connect(self.driver.post, self.supervisor.trouble)
        self.versions = Versions(self.catalogue, self.delivery, self._profile, self.driver.post)
        self.models.in_use.on_change = self.versions.changed
        SerialWatch(self.catalogue, self.driver.post, rate_limited=self._rate_limited)
        self.supervisor.start(self.driver.post, states)
        self.models.probe.start(self.driver.post, lambda: self.supervisor.up and self.models.quiet)
        self.registrar = Registrar(engine, clock, self.driver.post, most_waiting=self._limits.max_streams)
        self.driver.on_can_widen = self.registrar.widen
        self.registrar.start()

    def _give_up(self) -> None:
        """The engine has failed: whoever waits for something is told."""
        self.delivery.give_up()
        self.waits.give_up()

    def fitted(self, spec: StreamSpec) -> StreamSpec:
        """Return `spec` with its version filled in. Raises as `gateway.runtime.readiness.fitted`."""
        return readiness.fitted(spec, self.catalogue, self.inference, self._profile)

    def expects(self, model: str) -> bool:
        """See `Catalogue.expects`."""
        return self.catalogue.expects(model, self._profile)

    def profiled(self, spec: StreamSpec) -> bool:
        """Whether the execution times of a stream's frames are known. Raises as `fitted`."""
        return self._profile.has(self.fitted(spec).category())

    def why_nothing_is_served(self) -> str:
        """Return why no stream could be registered now; empty if one could."""
        return readiness.why_nothing_is_served(self.catalogue, self.inference, self._profile, self.unloadable)

    async def close(self) -> None:
        """End in this order: nothing new is dispatched, calls end, Triton closes the region, the memory goes."""
        await self.models.probe.stop()
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


def _memory_probe(settings: Settings, client: TritonClient, profile: Profile) -> MemoryProbe:
    group = settings.residency
    page = MetricsPage(group.metrics_url) if group.metrics_url and group.measure == "auto" else None
    return MemoryProbe(client, page, profile.weight, interval_s=group.metrics_interval_s)
