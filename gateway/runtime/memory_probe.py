"""What models really hold, as Triton and the device say: sizes of models, and memory that unloading did not give back.

- A model that was loaded: Triton's statistics, where its backend reports a size. It counts if it is above the
  profile's.
- A model that was unloaded: the device's memory is read until it has come free, or until the figure is certain to be
  newer than the unload. So no load begins on memory that is not there. A model that gave back all that it held is not
  waited for again for a while: figures are up to two seconds old, and a swap can be a hundred times shorter.
- While no model comes or goes: the device's memory, now and then. What is in use beyond the models is *lost*.

On a CPU Triton reports neither, and nothing is measured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gateway.core.events import Event, MemoryMeasured
from gateway.triton.client import TritonClient
from gateway.triton.metrics_page import MetricsPage
from gateway.triton.types import BackendError

log = logging.getLogger(__name__)

#: Between two figures of a device on which nothing comes or goes: models grow with what they are given.
_PERIOD_S = 10.0
#: A model that gave everything back is trusted to do so for as long.
_TRUST_S = 60.0
#: The device rounds, and so does the profile: this share of a model's size given back is all of it.
_ALL = 0.95
#: In the time that a figure may be old, it is asked for so often.
_LOOKS = 8


class MemoryProbe:
    """Of one Triton.

    Args:
        client: Asked for statistics of models.
        page: Asked for the device's memory; None: nobody says.
        weight: What a model is planned to hold, in bytes; None: not known.
        interval_s: How old the device's figure may be.
    """

    def __init__(
        self,
        client: TritonClient,
        page: MetricsPage | None,
        weight: Callable[[str], int | None],
        *,
        interval_s: float,
    ) -> None:
        self._client = client
        self._page = page
        self._weight = weight
        self._interval_s = interval_s
        self._before: dict[str, int] = {}
        self._trusted: dict[str, float] = {}
        self._quiet: Callable[[], bool] = lambda: False
        self._post: Callable[[Event], object] = lambda event: None
        self._quiet_since = 0.0
        self._task: asyncio.Task[None] | None = None
        self._said = ""

    def start(self, post: Callable[[Event], object], quiet: Callable[[], bool]) -> None:
        """Begin to measure whenever `quiet` says that no model comes or goes."""
        self._post, self._quiet = post, quiet
        if self._page is not None:
            self._task = asyncio.get_running_loop().create_task(self._watch(), name="memory probe")

    async def stop(self) -> None:
        """Measure no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    # ------------------------------------------------------------ one model

    async def loaded(self, model: str) -> int | None:
        """Return what a model that has just been loaded holds, if it reports more than is planned; None otherwise."""
        try:
            reported = await self._client.memory_usage(model)
        except BackendError as error:
            log.info("Triton does not say what model %s holds: %s", model, error.message)
            return None
        return reported if reported > (self._weight(model) or 0) else None

    async def leaving(self, model: str) -> None:
        """A model is about to be unloaded."""
        self._before.pop(model, None)
        if self._weight(model) and asyncio.get_running_loop().time() > self._trusted.get(model, 0.0):
            used = await self._used()
            if used is not None:
                self._before[model] = used

    async def gone(self, model: str) -> int | None:
        """Wait until what an unloaded model held has come free, or will not any more.

        Returns:
            What is in use on the device then; None where nobody says, or the model is trusted.
        """
        before, weight = self._before.pop(model, None), self._weight(model)
        if before is None or weight is None:
            return None
        clock = asyncio.get_running_loop().time
        end_s = clock() + self._interval_s
        while True:
            used = await self._used()
            if used is None:
                return None
            if before - used >= _ALL * weight:
                self._trusted[model] = clock() + _TRUST_S
                return used
            if clock() >= end_s:
                log.warning("model %s held %d bytes and gave back %d", model, weight, max(0, before - used))
                return used
            await asyncio.sleep(self._interval_s / _LOOKS)

    # ------------------------------------------------------------ all of them

    def changed(self) -> None:
        """A model has come or gone just now."""
        self._quiet_since = asyncio.get_running_loop().time()

    async def _watch(self) -> None:
        clock = asyncio.get_running_loop().time
        measured_s = float("-inf")
        while True:
            await asyncio.sleep(self._interval_s / _LOOKS)
            if not self._quiet():
                self.changed()
            settled = clock() - self._quiet_since > self._interval_s
            due = measured_s < self._quiet_since or clock() - measured_s > _PERIOD_S
            if settled and due:
                measured_s = clock()
                await self._measure()

    async def _measure(self) -> None:
        since = self._quiet_since
        used = await self._used()
        if used is not None and self._quiet() and since == self._quiet_since:
            self._post(MemoryMeasured(used))

    async def _used(self) -> int | None:
        if self._page is None:
            return None
        try:
            used = await self._page.gpu_bytes()
            reason = "" if used is not None else "Triton has no GPU: sizes of models are the profile's"
        except BackendError as error:
            used, reason = None, error.message
        if reason and reason != self._said:
            log.info("memory is not measured: %s", reason)
        self._said = reason
        return used
