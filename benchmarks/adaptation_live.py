"""The adaptation experiment (`benchmarks.adaptation`): what it consists of, and its part on a real Triton."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gateway.core.profile import Profile
from gateway.core.profile_entry import MIN_SAMPLES
from gateway.core.types import NS_PER_MS, NS_PER_S, OnLate, Outcome, StreamSpec
from gateway.errors import FramegateError
from gateway.runtime.gateway import Gateway
from gateway.runtime.tickets import FrameTicket
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from profiler.device import device_name
from profiler.plan import Plan
from profiler.quick import measure

DELAYS_MS = (100, 200, 500, 1_000)
JOBS = 5
#: Means of period and deadline: of the paper's desktop, and of its slow device.
MEAN_MS, SLOW_MEAN_MS = 200.0, 600.0
#: Shorter draws, as shares of the mean, are no camera: 30 fps of a fast device, and what a few frames take.
_SHORTEST_PERIOD, _SHORTEST_DEADLINE = 0.165, 0.3
REFUSALS = 10
MISSED = (Outcome.MISSED, Outcome.EXPIRED, Outcome.FAILED)

MODEL = "mobilenet_v2"
SIDES = (224, 128)
BATCHES = (1, 2, 4)
SAMPLES = 50
#: Plans rest on this many medians here. The p99 of a machine with neighbours is several; the cameras that it admits
#: leave the device idle for most of the time, and an idle device needs no adaptation.
_PLANNED_MEDIANS = 1.1
_SEED = 1
_WARM_S = 2.0
#: Time to register all cameras before the first of them sends.
_LEAD_NS = 4 * NS_PER_S
_KEPT = 0.9
_CALL_TIMEOUT_MS = 20_000.0
#: What the timers of one busy process are off by.
_JITTER_NS = 10 * NS_PER_MS

Say = Callable[[str], object]


def draw(rng: random.Random, models: Sequence[str], sides: Sequence[int], mean_ms: float, seconds: float) -> StreamSpec:
    """Return a camera that sends for so many seconds from some point of its first period on."""
    period_ms = max(_SHORTEST_PERIOD * mean_ms, rng.gammavariate(2, mean_ms / 2))
    deadline_ms = max(_SHORTEST_DEADLINE * mean_ms, rng.gammavariate(2, mean_ms / 2))
    side, start_ms = rng.choice(sides), rng.random() * period_ms
    return StreamSpec(
        rng.choice(models),
        "1",
        (side, side, 3),
        period_ns=round(period_ms * NS_PER_MS),
        deadline_ns=round(deadline_ms * NS_PER_MS),
        frames=max(1, int((seconds * NS_PER_S / NS_PER_MS - start_ms) / period_ms)),
        start_in_ns=round(start_ms * NS_PER_MS),
        on_late=OnLate.SERVE,
    )


def pair_of(without: int, with_it: int) -> dict[str, Any]:
    """Return the two counts, and by what share the second is smaller."""
    return {"without": without, "with": with_it, "cut": round(1 - with_it / without, 3) if without else 0.0}


async def send(gateway: Gateway, spec: StreamSpec, stream_id: str, epoch_s: float) -> int:
    """Send every frame at its time, counted from `epoch_s`; return how many missed their deadlines."""
    loop = asyncio.get_running_loop()
    picture = np.random.default_rng(1).integers(0, 256, spec.shape, dtype=np.uint8).tobytes()
    tickets: list[FrameTicket] = []
    refused = 0
    for n in range(spec.frames or 0):
        at_s = epoch_s + (spec.start_in_ns + n * spec.period_ns) / NS_PER_S
        await asyncio.sleep(max(0.0, at_s - loop.time()))
        try:
            tickets += gateway.submit(stream_id, picture)
        except FramegateError:
            refused += 1
    results = await asyncio.gather(*(ticket.result for ticket in tickets))
    return refused + sum(result.outcome in MISSED for result in results)


async def serving(settings: Settings, profile: Profile, *, adaptation: bool) -> Gateway:
    """Return a gateway that is ready."""
    scheduling = settings.scheduling.model_copy(update={"adaptation": adaptation})
    gateway = Gateway(settings.model_copy(update={"scheduling": scheduling}), profile)
    await gateway.start()
    while not gateway.ready:  # noqa: ASYNC110 - readiness is polled, as any client of the gateway does
        await asyncio.sleep(0.05)
    return gateway


async def fill(gateway: Gateway, seconds: float) -> list[StreamSpec]:
    """Return cameras that are admitted together, less a few: the next time they come at slightly other instants."""
    rng = random.Random(_SEED)
    cameras: list[StreamSpec] = []
    refused = 0
    while refused < REFUSALS:
        spec = replace(draw(rng, [MODEL], SIDES[:1], SLOW_MEAN_MS, seconds), jitter_ns=_JITTER_NS)
        spec = replace(spec, start_in_ns=spec.start_in_ns + _LEAD_NS)
        admitted = (await gateway.register(spec)).stream is not None
        refused = 0 if admitted else refused + 1
        if admitted:
            cameras.append(spec)
    return cameras[: round(len(cameras) * _KEPT)]


async def live_run(gateway: Gateway, cameras: list[StreamSpec], delay_ms: int) -> tuple[list[StreamSpec], int]:
    """Send all cameras' frames; return the cameras that were admitted this time, and how many frames were missed.

    If some were refused, nothing is sent.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    admitted: list[StreamSpec] = []
    starts: list[tuple[StreamSpec, str, float]] = []
    for spec in cameras:
        # All keep the phases that they had: what has passed since the first registration is taken off.
        moved = replace(spec, start_in_ns=spec.start_in_ns - round((loop.time() - began_s) * NS_PER_S))
        stream = (await gateway.register(moved)).stream
        if stream is not None:
            admitted.append(spec)
            starts.append((moved, stream.stream_id, loop.time()))
    if len(admitted) < len(cameras):
        return admitted, 0
    if delay_ms:
        loop.call_at(began_s + _LEAD_NS / NS_PER_S + _WARM_S, gateway.delay_jobs, JOBS, delay_ms)
    return admitted, sum(await asyncio.gather(*(send(gateway, *start) for start in starts)))


async def live_pair(
    settings: Settings, profile: Profile, cameras: list[StreamSpec], delay_ms: int
) -> tuple[list[StreamSpec], list[int]]:
    """Return the misses without and with adaptation, of the cameras that were admitted both times."""
    while True:
        counts: list[int] = []
        wanted = cameras
        for adaptation in (False, True):
            gateway = await serving(settings, profile, adaptation=adaptation)
            cameras, bad = await live_run(gateway, wanted, delay_ms)
            await gateway.stop()
            if len(cameras) < len(wanted):
                break
            counts.append(bad)
        else:
            return cameras, counts


def planned(profile: Profile) -> Profile:
    """Return the profile that the runs go by."""
    return replace(
        profile,
        entries=tuple(
            replace(entry, count=MIN_SAMPLES, p99_ms=_PLANNED_MEDIANS * entry.p50_ms) for entry in profile.entries
        ),
    )


async def live(triton: EmbeddedTriton, seconds: float, say: Say) -> dict[str, Any]:
    """Return the figures."""
    settings = Settings(models=[MODEL])
    group = {"url": triton.grpc_url, "backoff_max_ms": 200.0, "call_timeout_ms": _CALL_TIMEOUT_MS}
    settings = settings.model_copy(update={"triton": settings.triton.model_copy(update=group)})
    plan = Plan((MODEL,), tuple((side, side) for side in SIDES), BATCHES, samples=SAMPLES)
    report = await measure(plan, settings, device_name())
    profile = planned(report.profile)
    say(f"profile: {[(e.shape[0], e.batch, round(e.execution_ms, 1)) for e in profile.entries]} ms")
    gateway = await serving(settings, profile, adaptation=False)
    cameras = await fill(gateway, seconds)
    await gateway.stop()
    counts: dict[str, Any] = {}
    for delay_ms in (0, *DELAYS_MS):
        cameras, pair = await live_pair(settings, profile, cameras, delay_ms)
        frames = sum(spec.frames or 0 for spec in cameras)
        counts[str(delay_ms)] = {"cameras": len(cameras), "frames": frames, **pair_of(*pair)}
        say(f"real Triton, {delay_ms} ms: {counts[str(delay_ms)]}")
    return {
        "device": device_name(),
        "seconds": seconds,
        "planned_ms": {f"{e.shape[0]}x{e.shape[1]} batch {e.batch}": round(e.execution_ms, 2) for e in profile.entries},
        "missed": counts,
    }
