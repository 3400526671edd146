"""Has Triton open the memory in which frames lie; without it they travel inside messages."""

from __future__ import annotations

import asyncio
import logging

from gateway.runtime.executor import TritonExecutor
from gateway.runtime.inference import Inference
from gateway.runtime.region import Region, dead_regions
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, ServerInfo

log = logging.getLogger(__name__)


class Sharing:
    """See the module's docstring.

    Args:
        client: Of Triton.
        region: Under the arena.
        inference: Told which way frames go.
        executor: Has the calls that are in Triton's hands.
        wanted: Try shared memory.
        probe_timeout_s: Limit of one answer, and of the wait for calls that were given up.
    """

    def __init__(
        self,
        client: TritonClient,
        region: Region,
        inference: Inference,
        executor: TritonExecutor,
        *,
        wanted: bool,
        probe_timeout_s: float,
    ) -> None:
        self._client = client
        self._region = region
        self._inference = inference
        self._executor = executor
        self._wanted = wanted
        self._probe_timeout_s = probe_timeout_s

    async def set_up(self, server: ServerInfo) -> None:
        """Have Triton open our region, unless it cannot; end calls that were left with a Triton that is gone.

        Raises:
            BackendError: It went away, or is the old one and still busy with a job that was given up.
        """
        region = self._region
        if self._wanted and "system_shared_memory" in server.extensions:
            if region.name in await self._client.region_names():
                await self._wait_for_given_up_calls()
                await self._choose_way()
                if self._inference.rooms.keeps:
                    log.warning("outputs come inside answers from now on: Triton may still write those of a lost call")
                return
            await self._abandon()
            try:
                await self._client.register_region(region.name, region.key, region.size)
            except BackendError as error:
                if error.unreachable or error.timed_out:
                    raise
                log.warning("Triton refuses shared memory, so frames go inside messages: %s", error.message)
                self._inference.shared = False
            else:
                self._inference.shared = True
                await self._choose_way()
                await self._unregister_dead_regions()
            return
        await self._abandon()
        self._inference.shared = False

    async def lost(self) -> bool:
        """Whether Triton had our region open and has not any more. Raises `BackendError`."""
        shared = self._inference.shared
        return shared and self._region.name not in await self._client.region_names(self._probe_timeout_s)

    async def check(self) -> None:
        """Raise `BackendError` when it is not the Triton any more that opened our region: it was restarted meanwhile.

        Channels connect again by themselves, and no call need fail.
        """
        if await self.lost():
            raise BackendError("Triton was restarted while it was set up", "UNAVAILABLE")

    async def _abandon(self) -> None:
        """End the calls of a Triton that is gone: it neither reads nor writes our memory any more."""
        await self._executor.abandon()
        self._inference.rooms.nobody_writes()

    async def _choose_way(self) -> None:
        """Have calls whose frames lie in our region go over HTTP, if that is possible. Raises as `check`."""
        if reason := await self._client.try_http(self._region.name):
            await self.check()  # that may have taken a while
            log.warning("all calls go over gRPC: %s", reason)
        elif self._client.over_http:
            log.info("jobs go to Triton's HTTP endpoint")

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
            async with asyncio.timeout(self._probe_timeout_s):
                await self._executor.idle()
        except TimeoutError:
            raise BackendError("Triton has not ended a job that was given up") from None
