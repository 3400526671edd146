"""What it costs to bring a model in and out, and what that costs the others.

Only in a Triton of our own: models are unloaded and loaded here. Calls go over gRPC on a channel of their own, as the
gateway's do; over Triton's HTTP API loads have been seen to hold up inference for seconds.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gateway.core.profile_entry import ModelEntry, ProfileEntry
from gateway.core.types import NS_PER_MS, Category
from gateway.triton.types import BackendError
from profiler.bench import Bench
from profiler.memory import family_pss_bytes
from profiler.plan import noise_frame

_POLL_S = 0.02
_UNLOAD_LIMIT_S = 30.0
_WARM_UP = 5
#: Executions with and without loads beside them: 100 are needed to know a 99th percentile, twice that so that one stall
#: is not it.
_SAMPLES = 200
#: Of each of the two, for slow models.
_LIMIT_S = 25.0
#: With fewer nothing is said.
_LEAST = 20


class Swaps:
    """Unloads and loads the models of one local Triton.

    Args:
        bench: The Triton.
        pid: Of its process, for the memory.
    """

    def __init__(self, bench: Bench, pid: int) -> None:
        self._bench = bench
        self._pid = pid

    async def measure(self, entries: Sequence[ProfileEntry]) -> ModelEntry:
        """Unload and load the model of `entries` once, warm it with the largest batch, and see what it then holds.

        Raises:
            BackendError: Triton refused, failed, or did not unload it in time.
        """
        bench, model = self._bench, entries[0].model
        largest = max(entries, key=lambda e: e.batch * math.prod(e.shape))
        await bench.share()
        start_ns = time.monotonic_ns()
        await self._unload(model)
        unloaded_ns = time.monotonic_ns()
        before = await asyncio.to_thread(family_pss_bytes, self._pid)
        load_ns = time.monotonic_ns()
        await self._load(model)
        loaded_ns = time.monotonic_ns()
        bench.parts.catalogue.serve(await bench.parts.client.metadata(model, largest.version))
        await bench.parts.inference.warm(_category(largest), largest.batch)
        after = await asyncio.to_thread(family_pss_bytes, self._pid)
        return ModelEntry(
            model=model,
            version=largest.version,
            load_ms=round((loaded_ns - load_ns) / NS_PER_MS, 1),
            unload_ms=round((unloaded_ns - start_ns) / NS_PER_MS, 1),
            bytes=max(1, after - before),
        )

    async def beside_loads(self, measured: ModelEntry, entries: Sequence[ProfileEntry], other: str) -> ModelEntry:
        """Return `measured` with how much longer executions take while `other` is unloaded and loaded, over and over.

        Both are measured here, one after the other, at batch 1 of the smallest shape: what lies between two runs is
        no interference. Too few samples in the time there is: `measured` as it is.

        Raises:
            BackendError: Triton refused or failed.
        """
        smallest = min(entries, key=lambda e: (math.prod(e.shape), e.batch))
        alone = await self._sample(smallest, None)
        swapping = asyncio.create_task(self._swap_over_and_over(other))
        try:
            beside = await self._sample(smallest, swapping)
        finally:
            await self._end(swapping, other)
        if min(len(alone), len(beside)) < _LEAST:
            return measured
        p50, p99 = (_percentile(beside, q) / _percentile(alone, q) for q in (50, 99))
        return replace(measured, interference_p50=round(p50, 3), interference_p99=round(p99, 3))

    async def _sample(self, entry: ProfileEntry, swapping: asyncio.Task[None] | None) -> list[float]:
        """Return up to `_SAMPLES` execution times in ms, as long as `swapping`, if given, goes on."""
        frame = memoryview(noise_frame(entry.shape, entry.dtype))
        category = _category(entry)
        await self._bench.share()
        for _ in range(_WARM_UP):
            await self._bench.sample(category, entry.batch, frame)
        samples: list[float] = []
        deadline = time.monotonic() + _LIMIT_S
        while len(samples) < _SAMPLES and time.monotonic() < deadline:
            if swapping is not None and swapping.done():
                await swapping  # its error
            samples.append(await self._bench.sample(category, entry.batch, frame))
            await asyncio.sleep(0)  # a fast model must not keep the control calls from being sent
        return samples

    async def _swap_over_and_over(self, model: str) -> None:
        while True:
            await self._unload(model)
            await self._load(model)

    async def _end(self, swapping: asyncio.Task[None], model: str) -> None:
        """Stop it, and see that the model is there as before."""
        swapping.cancel()
        await asyncio.wait((swapping,))
        if not swapping.cancelled() and swapping.exception() is not None:
            return  # has been raised
        await self._load(model)
        for metadata in [await self._bench.parts.client.metadata(model)]:
            self._bench.parts.catalogue.serve(metadata)

    async def _unload(self, model: str) -> None:
        client = self._bench.parts.client
        deadline = time.monotonic() + _UNLOAD_LIMIT_S
        await client.unload(model)
        while any(state.name == model and state.state in {"ready", "unloading"} for state in await client.index()):
            if time.monotonic() > deadline:
                raise BackendError(f"it was still there after {_UNLOAD_LIMIT_S:g} s")
            await asyncio.sleep(_POLL_S)

    async def _load(self, model: str) -> None:
        await self._bench.parts.client.load(model, self._bench.plan.load_limit_s)


def _category(entry: ProfileEntry) -> Category:
    return Category(entry.model, entry.version, entry.shape, entry.dtype)


def _percentile(samples: Sequence[float], q: float) -> float:
    return float(np.percentile(samples, q, method="higher"))
