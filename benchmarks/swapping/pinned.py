"""A pinned real-time model at 80 % of what admission allows, alone and while best effort swaps all the time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from statistics import median
from typing import Any

from benchmarks.swapping.models import CLASSES, EXTRA, FACES
from benchmarks.swapping.serving import Feed, SwapLog, make_settings, serving
from benchmarks.swapping.worst_case import Camera, blocking_ms, camera_spec, known, sending
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_S
from gateway.runtime.gateway import Gateway

CAMERAS = FACES
PAIR = (CLASSES, EXTRA)
#: Windows that are long beside what swaps, so that the limit is the device's.
PERIOD_NS, DEADLINE_NS = NS_PER_S // 5, NS_PER_S
#: Of the cameras that were admitted, those that stay.
SHARE = 0.8
MOST = 100
RUNS = ("alone", "swapping")
_PAUSE_S = 1.0
Say = Callable[[str], object]


async def fill(gateway: Gateway) -> list[Camera]:
    """Register cameras until one is refused, and close the last ones of them."""
    phases = random.Random(1)
    cameras: list[Camera] = []
    spec = camera_spec(CAMERAS, PERIOD_NS, DEADLINE_NS)
    while len(cameras) < MOST and (stream := (await gateway.register(spec)).stream) is not None:
        phase_s = phases.uniform(0, spec.period_ns / NS_PER_S)
        cameras.append(Camera(gateway, stream.stream_id, spec, CAMERAS.frame(), phase_s))
    kept = max(1, int(SHARE * len(cameras)))
    for camera in cameras[kept:]:
        await gateway.close_stream(camera.stream_id)
    return cameras[:kept]


@asynccontextmanager
async def swapping(feeds: list[Feed]) -> AsyncIterator[None]:
    """Meanwhile, call one of `feeds` after the other, each of which has to be loaded first."""

    async def call() -> None:
        while feeds:
            for feed in feeds:
                await feed.call()

    task = asyncio.create_task(call())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def run(cameras: list[Camera], feeds: list[Feed], seconds: float) -> Counter[str]:
    """Return how the frames of the cameras ended in `seconds`, with calls that swap if there are `feeds`."""
    for camera in cameras:
        camera.clear()
    async with sending(*cameras), swapping(feeds):
        await asyncio.sleep(seconds)
    return sum(await asyncio.gather(*(camera.outcomes() for camera in cameras)), Counter())


async def measure_pinned(url: str, profile: Profile, say: Say, *, seconds: float, pairs: int) -> dict[str, Any]:
    """Return the share of frames that were not met in pairs of runs, and their medians."""
    log = SwapLog()
    settings = make_settings(url, (CAMERAS, *PAIR), blocking_ms=blocking_ms(profile, *PAIR), max_models=2)
    found: dict[str, list[float]] = {name: [] for name in RUNS}
    async with serving(settings, known(profile, PAIR, [CAMERAS]), log) as gateway:
        cameras = await fill(gateway)
        feeds = [await Feed.open(gateway, model) for model in PAIR]
        await run(cameras, feeds, min(3.0, seconds))  # all has run once then
        for n in range(pairs):
            for name in RUNS if n % 2 == 0 else RUNS[::-1]:
                await asyncio.sleep(_PAUSE_S)
                loads = log.loads
                outcomes = await run(cameras, feeds if name == "swapping" else [], seconds)
                found[name].append(1 - outcomes["met"] / outcomes.total())
                say(f"{len(cameras)} cameras, {name}: {dict(outcomes)}, {log.loads - loads} loads")
    return {
        "cameras": len(cameras),
        "miss": {name: [round(share, 5) for share in found[name]] for name in RUNS},
        "rise_points": round(100 * median(s - a for a, s in zip(found["alone"], found["swapping"], strict=True)), 3),
        "pinned_miss": {name: round(median(found[name]), 5) for name in RUNS},
    }
