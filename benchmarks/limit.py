"""Streams up to the limit of admission, and beyond it, on a real Triton.

``python -m benchmarks.limit --json``. Needs the extra `embedded`. Triton runs on one processor core with one thread for
an execution, the gateway and its cameras on another, so that the device is a device. Two runs:

- `admitted`: cameras of two kinds (centerface and mobilenet_v2) are registered in turn until each kind is refused;
  those that were admitted send for a minute.
- `forced`: the same cameras with admission switched off, and copies of them until the device is asked, at the medians
  of the profile, for 1.15 of its time.

The last line is one JSON object: `met_ratio_admitted` and `met_ratio_forced` (frames met of frames sent),
`streams`, `streams_forced`, and what lies behind them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.frame_path.processes import on_cores
from gateway.core.engine import Engine
from gateway.core.events import RegisterStream
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, NS_PER_S, Outcome, StreamSpec
from gateway.errors import FrameSurplus
from gateway.runtime.gateway import Gateway
from gateway.runtime.tickets import FrameTicket
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from gateway.zoo.build import build
from profiler.device import device_name
from profiler.plan import Plan
from profiler.quick import measure

MODELS = ("centerface", "mobilenet_v2")
SIZE = (96, 128)
BATCHES = (1, 2, 4, 8)
#: What the forced streams ask of the device, at the profile's medians.
OVERLOAD = 1.15
#: What the event loop adds to the cameras' timing.
JITTER_NS = 10 * NS_PER_MS
#: More streams than any processor core carries.
MOST = 400
#: With admission off, the device is taken to be this many times as fast as it is.
BLINDNESS = 10_000


def kinds() -> list[StreamSpec]:
    """The two cameras."""
    shape = (*SIZE, 3)
    return [
        StreamSpec("centerface", "", shape, NS_PER_S // 5, 400 * NS_PER_MS, jitter_ns=JITTER_NS, name="faces"),
        StreamSpec("mobilenet_v2", "", shape, NS_PER_S // 10, 300 * NS_PER_MS, jitter_ns=JITTER_NS, name="classes"),
    ]


@dataclass
class Camera:
    """One open-loop stream; its frames are noise."""

    stream_id: str
    spec: StreamSpec
    phase_s: float
    tickets: list[FrameTicket] = field(default_factory=list)
    refused: int = 0

    async def run(self, gateway: Gateway, epoch_s: float, seconds: float) -> None:
        """Send every frame at its time."""
        loop = asyncio.get_running_loop()
        noise = np.random.default_rng(int(self.phase_s * 1e9))
        picture = noise.integers(0, 256, self.spec.shape, dtype=np.uint8).tobytes()
        for n in range(int(seconds * NS_PER_S / self.spec.period_ns)):
            at_s = epoch_s + self.phase_s + n * self.spec.period_ns / NS_PER_S
            await asyncio.sleep(max(0.0, at_s - loop.time()))
            try:
                self.tickets += gateway.submit(self.stream_id, picture)
            except FrameSurplus:
                self.refused += 1  # the loop was so late with the one before


async def ready(gateway: Gateway) -> None:
    """Start it and wait until it serves."""
    await gateway.start()
    while not gateway.ready:  # noqa: ASYNC110 - readiness is polled, as any client of the gateway does
        await asyncio.sleep(0.05)


async def fill(gateway: Gateway) -> tuple[list[Camera], list[dict[str, Any]]]:
    """Register cameras of both kinds in turn until each is refused; return those admitted, and the refusals."""
    rng = random.Random(1)
    cameras: list[Camera] = []
    refused: list[dict[str, Any]] = []
    waiting = kinds()
    while waiting and len(cameras) < MOST:
        for spec in list(waiting):
            registration = await gateway.register(replace(spec, name=f"{spec.name}-{len(cameras)}"))
            if registration.stream is not None:
                phase_s = rng.uniform(0, spec.period_ns / NS_PER_S)
                cameras.append(Camera(registration.stream.stream_id, registration.spec, phase_s))
                continue
            waiting.remove(spec)
            verdict = registration.verdict
            late = verdict.first_miss.late_ns / NS_PER_MS if verdict.first_miss else None
            reason = verdict.reason.value if verdict.reason else None
            refused.append({"kind": spec.name, "test": verdict.test, "reason": reason, "late_ms": late})
    return cameras, refused


def blind(profile: Profile) -> Profile:
    """The same models as if they took no time: with this profile admission is off."""
    return Profile(
        tuple(
            replace(e, p50_ms=e.p50_ms / BLINDNESS, p99_ms=e.p50_ms / BLINDNESS, max_ms=e.p50_ms / BLINDNESS)
            for e in profile.entries
        )
    )


def asked(profile: Profile, specs: Sequence[StreamSpec]) -> float:
    """What streams ask of the device at the profile's medians: the sum of E_p50 / W over categories."""
    engine = Engine(blind(profile))
    for n, spec in enumerate(specs):
        engine.handle(RegisterStream(f"s{n}", spec), 0)
    assert len(engine.snapshot().streams) == len(specs), "admission is not off"
    return BLINDNESS * engine.snapshot().utilization


async def run_cameras(gateway: Gateway, cameras: Sequence[Camera], seconds: float) -> dict[str, Any]:
    """Run all cameras from one epoch, and count how their frames ended."""
    gc.collect()
    gc.freeze()
    epoch_s = asyncio.get_running_loop().time() + 0.2
    async with asyncio.TaskGroup() as group:
        for camera in cameras:
            group.create_task(camera.run(gateway, epoch_s, seconds))
    results = await asyncio.gather(*(ticket.result for camera in cameras for ticket in camera.tickets))
    outcomes = Counter(result.outcome for result in results)
    refused = sum(camera.refused for camera in cameras)
    done = [result for result in results if result.execute_ms is not None]
    latencies = [result.latency_ms for result in done if result.latency_ms is not None]
    busy_ms = sum((result.execute_ms or 0.0) / (result.batch or 1) for result in done)
    return {
        "frames": len(results) + refused,
        "outcomes": {outcome.value: count for outcome, count in sorted(outcomes.items())} | {"refused": refused},
        "met_ratio": round(outcomes[Outcome.MET] / max(1, len(results) + refused), 4),
        "device_busy": round(busy_ms / (seconds * 1e3), 3),
        "mean_batch": round(len(done) / max(1e-9, sum(1 / (result.batch or 1) for result in done)), 2),
        "p99_latency_ms": round(float(np.percentile(latencies, 99)), 1) if latencies else None,
    }


async def admitted(settings: Settings, profile: Profile, seconds: float) -> tuple[list[StreamSpec], dict[str, Any]]:
    """Fill the gateway, run what it took, and return the streams and the figures."""
    gateway = Gateway(settings, profile)
    await ready(gateway)
    try:
        cameras, refused = await fill(gateway)
        if {camera.spec.model for camera in cameras} != set(MODELS):
            raise SystemExit(f"not even one camera of each kind fits: is the machine busy? {refused}")
        figures = await run_cameras(gateway, cameras, seconds)
    finally:
        await gateway.stop()
    specs = [camera.spec for camera in cameras]
    return specs, figures | {"asked_p50": round(asked(profile, specs), 3), "refused": refused}


async def forced(
    settings: Settings, profile: Profile, specs: Sequence[StreamSpec], seconds: float
) -> tuple[int, dict[str, Any]]:
    """Admit everything: the same streams and copies of them until the device is asked for too much."""
    more = list(specs)
    while asked(profile, more) <= OVERLOAD:
        more.append(specs[len(more) % len(specs)])
    rng = random.Random(2)
    gateway = Gateway(settings, blind(profile))
    await ready(gateway)
    try:
        cameras = []
        for spec in more:
            registration = await gateway.register(spec)
            if registration.stream is None:
                raise SystemExit(f"admission is not off: {registration.verdict}")
            phase_s = rng.uniform(0, spec.period_ns / NS_PER_S)
            cameras.append(Camera(registration.stream.stream_id, spec, phase_s))
        figures = await run_cameras(gateway, cameras, seconds)
    finally:
        await gateway.stop()
    return len(more), figures | {"asked_p50": round(asked(profile, more), 3)}


async def run(settings: Settings, seconds: float) -> dict[str, Any]:
    """Profile, fill, run; then overfill and run."""
    report = await measure(Plan(MODELS, (SIZE,), BATCHES, samples=200), settings, device_name())
    profile = report.profile
    specs, within = await admitted(settings, profile, seconds)
    count, beyond = await forced(settings, profile, specs, seconds)
    return {
        "met_ratio_admitted": within["met_ratio"],
        "met_ratio_forced": beyond["met_ratio"],
        "streams": len(specs),
        "streams_forced": count,
        "seconds": seconds,
        "admitted": within,
        "forced": beyond,
        "profile": [
            {"model": e.model, "batch": e.batch, "p50_ms": e.p50_ms, "p99_ms": e.p99_ms} for e in profile.entries
        ],
    }


def cores_and_models() -> tuple[list[int], Path]:
    """Return the processor cores, of which the last one is to be the device, and the folder of the models, built here.

    Raises:
        SystemExit: There is but one core.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("two processor cores are needed: one is the device")
    repository = Path("model_repository")
    for model in MODELS:
        build(model, repository)
    return cores, repository


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Streams up to the limit of admission, and beyond it.")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each run")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    cores, repository = cores_and_models()
    with tempfile.TemporaryDirectory() as folder:
        triton = EmbeddedTriton(repository, Path(folder) / "triton.log", intra_op_threads=1)
        with on_cores(cores[-1:]):
            triton.start()
        try:
            settings = Settings(models=list(MODELS))
            group = settings.triton.model_copy(update={"url": triton.grpc_url, "backoff_max_ms": 200.0})
            settings = settings.model_copy(update={"triton": group})
            with on_cores(cores[:1]):
                found = uvloop.run(run(settings, arguments.seconds))
        finally:
            triton.stop()
    sys.stdout.write(json.dumps(found, indent=None if arguments.json else 2) + "\n")


if __name__ == "__main__":
    main()
