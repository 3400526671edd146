"""What it costs to bring a model in and out, and what that costs the others.

Only in a Triton of our own: models are unloaded and loaded here. Calls go over gRPC on a channel of their own, as the
gateway's do; over Triton's HTTP API loads have been seen to hold up inference for seconds.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from gateway.core.profile_entry import ModelEntry, ProfileEntry
from gateway.core.types import NS_PER_MS, Category
from gateway.triton.types import BackendError
from profiler.bench import Bench
from profiler.memory import family_pss_bytes
from profiler.plan import noise_frame

#: Between questions whether a model is gone, which a small one is within some tens of milliseconds.
_POLL_S = 0.01
_UNLOAD_LIMIT_S = 30.0
_WARM_UP = 5
#: Executions with and without loads beside them: 100 are needed to know a 99th percentile, twice that so that one stall
#: is not it. And so many swaps of the other model: in a part of one, fast models would see much of it or nothing.
_SAMPLES, _SWAPS_BESIDE = 200, 3
#: Of each of the two, for slow models.
_LIMIT_S = 25.0
#: With fewer nothing is said.
_LEAST = 20


@dataclass(frozen=True, slots=True)
class _Swap:
    """One unload and load. `warm_up_ms`: the first execution after it; `held_bytes`: what memory grew by in all."""

    unload_ms: float
    load_ms: float
    warm_up_ms: float
    held_bytes: int


class Swaps:
    """Unloads and loads the models of one local Triton.

    Args:
        bench: The Triton.
        pid: Of its process, for the memory.
    """

    def __init__(self, bench: Bench, pid: int) -> None:
        self._bench = bench
        self._pid = pid
        self._swaps = 0

    async def measure(self, entries: Sequence[ProfileEntry]) -> ModelEntry:
        """Unload and load the model of `entries` as often as the plan says, each time warmed with the largest batch.

        Raises:
            BackendError: Triton refused, failed, or did not unload it in time.
        """
        largest = max(entries, key=lambda e: e.batch * math.prod(e.shape))
        await self._bench.share()
        swaps = [await self._once(largest) for _ in range(self._bench.plan.swaps)]
        loads_ms, unloads_ms = [swap.load_ms for swap in swaps], [swap.unload_ms for swap in swaps]
        return ModelEntry(
            model=largest.model,
            version=largest.version,
            load_ms=_rounded(median(loads_ms)),
            unload_ms=_rounded(median(unloads_ms)),
            bytes=max(1, *(swap.held_bytes for swap in swaps)),
            swaps=len(swaps),
            load_max_ms=_rounded(max(loads_ms)),
            unload_max_ms=_rounded(max(unloads_ms)),
            warm_up_ms=_rounded(max(swap.warm_up_ms for swap in swaps)),
        )

    async def _once(self, largest: ProfileEntry) -> _Swap:
        """Unload the model of `largest`, load it, run that batch, and see what it then holds."""
        bench, model = self._bench, largest.model
        begin_ns = time.monotonic_ns()
        await self._unload(model)
        unload_ms = _since_ms(begin_ns)
        before = await asyncio.to_thread(family_pss_bytes, self._pid)
        begin_ns = time.monotonic_ns()
        await self._load(model)
        load_ms = _since_ms(begin_ns)
        bench.parts.catalogue.serve(await bench.parts.client.metadata(model, largest.version))
        begin_ns = time.monotonic_ns()
        await bench.parts.inference.warm(_category(largest), largest.batch)
        warm_up_ms = _since_ms(begin_ns)
        after = await asyncio.to_thread(family_pss_bytes, self._pid)
        return _Swap(unload_ms, load_ms, warm_up_ms, after - before)

    async def beside_loads(self, measured: ModelEntry, entries: Sequence[ProfileEntry], other: str) -> ModelEntry:
        """Return `measured` with how much longer executions take while `other` is unloaded and loaded, over and over.

        Both are measured here, one after the other, at batch 1 of the smallest shape: what lies between two runs is
        no interference. Too few samples in the time there is: `measured` as it is.

        Raises:
            BackendError: Triton refused or failed.
        """
        smallest = min(entries, key=lambda e: (math.prod(e.shape), e.batch))
        self._swaps = 0
        swapping = asyncio.create_task(self._swap_over_and_over(other))
        try:
            beside = await self._sample(smallest, swapping, lambda n: n >= _SAMPLES and self._swaps >= _SWAPS_BESIDE)
        finally:
            await self._end(swapping, other)
        alone = await self._sample(smallest, None, lambda n: n >= max(_SAMPLES, len(beside)))
        if min(len(alone), len(beside)) < _LEAST:
            return measured
        p50, p99 = (_percentile(beside, q) / _percentile(alone, q) for q in (50, 99))
        return replace(measured, interference_p50=round(p50, 3), interference_p99=round(p99, 3))

    async def _sample(
        self, entry: ProfileEntry, swapping: asyncio.Task[None] | None, enough: Callable[[int], bool]
    ) -> list[float]:
        """Return execution times in ms until there are `enough`, as long as `swapping`, if given, goes on."""
        frame = memoryview(noise_frame(entry.shape, entry.dtype))
        category = _category(entry)
        await self._bench.share()
        for _ in range(_WARM_UP):
            await self._bench.sample(category, entry.batch, frame)
        samples: list[float] = []
        deadline = time.monotonic() + _LIMIT_S
        while not enough(len(samples)) and time.monotonic() < deadline:
            if swapping is not None and swapping.done():
                await swapping  # its error
            samples.append(await self._bench.sample(category, entry.batch, frame))
            await asyncio.sleep(0)  # a fast model must not keep the control calls from being sent
        return samples

    async def _swap_over_and_over(self, model: str) -> None:
        while True:
            await self._unload(model)
            await self._load(model)
            self._swaps += 1

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


def _since_ms(begin_ns: int) -> float:
    return (time.monotonic_ns() - begin_ns) / NS_PER_MS


def _rounded(value_ms: float) -> float:
    """Round to a tenth of a millisecond, which is what is between two looks; never to 0."""
    return max(0.1, round(value_ms, 1))


def _percentile(samples: Sequence[float], q: float) -> float:
    return float(np.percentile(samples, q, method="higher"))
