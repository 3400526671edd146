"""The two ways to take the samples of a point: the gateway's own dispatch path, and `perf_analyzer`."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, replace
from typing import Protocol

from gateway.core.profile_entry import ProfileEntry
from gateway.errors import FramegateError
from gateway.triton.types import BackendError
from profiler.bench import Bench
from profiler.pauses import Pauses
from profiler.perf_analyzer import Outcome, PerfAnalyzerError, Request, Split, Tool, run
from profiler.plan import Point
from profiler.samples import entry

#: Not counted: the first executions of a shape, and what the processor needs to reach its speed.
WARM_UP = 5
#: How much of a point's time is planned to be used: executions take longer than the one that was looked at.
_SHARE = 0.7
#: perf_analyzer's own start and end.
_OVERHEAD_S = 2.0
#: What it is given for an output at least.
_MIN_OUTPUT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Taken:
    """Samples of a point.

    Attributes:
        latencies_ms: In the order in which they were taken, at least one.
        settled: Whoever took them has nothing against them.
        split: How the server spent them, if that is known.
    """

    latencies_ms: tuple[float, ...]
    settled: bool = True
    split: Split | None = None


class Engine(Protocol):
    """Measures one point after the other.

    Attributes:
        name: As in the profile's `engine`.
    """

    name: str

    async def take(self, point: Point, samples: int) -> Taken:
        """Take `samples` samples of `point`, or as many as fit into the time that a point has.

        Raises:
            BackendError: Triton refused or failed.
            PerfAnalyzerError: perf_analyzer did.
        """
        ...


async def measure(engine: Engine, point: Point, samples: int) -> ProfileEntry:
    """Return the figures of `point`. Raises as `Engine.take`."""
    taken = await engine.take(point, samples)
    return entry(point.category, point.batch, taken.latencies_ms, settled=taken.settled, split=taken.split)


class Native:
    """Samples through the gateway's own dispatch path, one job at a time, some after a pause (`profiler.pauses`)."""

    name = "native"

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def take(self, point: Point, samples: int) -> Taken:
        """Take samples; see `Engine`."""
        bench, plan = self._bench, self._bench.plan
        started = time.monotonic()
        warmth = await bench.warm_up(point, WARM_UP)
        pauses = Pauses() if plan.pauses else None
        taken: list[float] = []
        while len(taken) < samples:
            if pauses is not None and (pause_s := pauses.next_s(taken[-1] / 1e3 if taken else 0.0)):
                await asyncio.sleep(pause_s)
            taken.append(await bench.sample(point.category, point.batch, warmth.frame))
            bench.on_progress("", 1)
            if time.monotonic() - started > plan.point_limit_s:
                bench.on_progress("", samples - len(taken))
                break
        return Taken(tuple(taken))


class PerfAnalyzer:
    """Samples of `perf_analyzer` at concurrency 1, back to back, with system shared memory where Triton can open it."""

    name = "perf_analyzer"

    def __init__(self, bench: Bench, tool: Tool) -> None:
        self._bench = bench
        self._tool = tool
        bench.pace.start_s = _OVERHEAD_S

    async def check(self) -> None:
        """Refuse a Triton that serves somebody: perf_analyzer makes it forget all shared memory.

        Raises:
            FramegateError: It does; says what to do.
            BackendError: It does not answer.
        """
        if others := await self._bench.others_regions():
            raise FramegateError(
                f"Triton at {self._bench.url} serves a running gateway ({', '.join(others)}), and perf_analyzer would "
                "make it forget all shared memory. Measure with --embedded or --engine native, or stop the gateway."
            )

    async def take(self, point: Point, samples: int) -> Taken:
        """Take samples; see `Engine`."""
        outcome = await self._run(point, samples)
        counted = outcome.latencies_ms[WARM_UP:]
        if not counted:
            raise PerfAnalyzerError(f"perf_analyzer measured {len(outcome.latencies_ms)} requests, all of them warm-up")
        self._bench.on_progress("", samples)
        return Taken(counted, settled=not outcome.unstable, split=outcome.split)

    async def _run(self, point: Point, samples: int) -> Outcome:
        bench, plan = self._bench, self._bench.plan
        began = time.monotonic()
        warmth = await bench.warm_up(point, WARM_UP)
        left_s = plan.point_limit_s - (time.monotonic() - began)
        request = Request(
            url=bench.url,
            model=point.category.model,
            version=point.category.version,
            input_name=point.input_name,
            shape=point.category.shape,
            batch=point.batch,
            requests=WARM_UP + max(1, min(samples, _fitting(left_s, warmth.execution_ms))),
            output_bytes=max(_MIN_OUTPUT_BYTES, warmth.output_bytes),
            shared_memory=bench.parts.inference.shared,
            limit_s=max(1.0, left_s),
        )
        try:
            try:
                return await run(self._tool, request)
            except PerfAnalyzerError as error:
                if not error.unreadable:
                    raise
            left_s = plan.point_limit_s - (time.monotonic() - began)
            return await run(self._tool, replace(request, limit_s=max(1.0, left_s)))
        except PerfAnalyzerError as error:
            await self._forget(error.regions)
            raise

    async def _forget(self, regions: tuple[str, ...]) -> None:
        """Have Triton close what a killed run left open; what it then still holds the next run closes."""
        for region in regions:
            try:
                await self._bench.parts.client.unregister_region(region)
            except BackendError:
                return


def _fitting(left_s: float, execution_ms: float) -> int:
    """Return how many samples fit into the time that is left."""
    return max(0, math.floor((left_s - _OVERHEAD_S) * _SHARE / (max(execution_ms, 1e-3) / 1e3)) - WARM_UP)
