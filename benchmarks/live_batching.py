"""Latency and batches of the live gateway on a real Triton with centerface.

``python -m benchmarks.live_batching --json``. Needs the extra `embedded`. Four runs, one after the other:

- `idle`: one 5 fps stream on an idle device; its median latency beside the profiled median of one frame.
- `joints`: early dispatch off, two streams of equal period p and deadline 2p; mean batch, and whether each frame got
  its own answer.
- `early`: early dispatch on, eight staggered cameras, so many frames that at batch 1 the device would be busy for
  30, 70 and 95 % of the time; mean batch as the device fills up.
- `waiting`: the same without early dispatch.

Plans rest on measured medians here, so that 95 % is admitted at all; the product plans with p99.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import uvloop

from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, NS_PER_S, Outcome, StreamSpec
from gateway.runtime.gateway import Gateway
from gateway.runtime.results import FrameResult
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from gateway.zoo.build import build
from profiler.device import device_name
from profiler.plan import Plan
from profiler.quick import measure

MODEL = "centerface"
SHAPE = (96, 128, 3)
BATCHES = (1, 2, 4, 8)
BUSY = (0.30, 0.70, 0.95)
CAMERAS = 8
#: Times p50: joints run two streams whose batches of two fill about a third of the device.
_JOINT_PERIOD_EXECUTIONS = 6


class Camera:
    """One open-loop stream of frames of noise that can be told apart."""

    def __init__(self, seed: int, period_ns: int, deadline_ns: int, start_in_ns: int, frames: int) -> None:
        self.period_ns = period_ns
        self.start_in_ns = start_in_ns
        self.spec = StreamSpec(
            MODEL, "", SHAPE, period_ns, deadline_ns, frames=frames, start_in_ns=start_in_ns, name=f"camera-{seed}"
        )
        random = np.random.default_rng(seed)
        self.pictures = [random.integers(0, 256, SHAPE, dtype=np.uint8) for _ in range(4)]
        self.results: list[FrameResult] = []

    async def run(self, gateway: Gateway, epoch_s: float) -> None:
        """Register, send every frame at its time, wait for all results."""
        registration = await gateway.register(self.spec)
        if registration.stream is None:
            raise SystemExit(f"{self.spec.name} was refused: {registration.verdict}")
        loop = asyncio.get_running_loop()
        waiting = []
        for n in range(self.spec.frames or 0):
            at_s = epoch_s + (self.start_in_ns + n * self.period_ns) / NS_PER_S
            await asyncio.sleep(max(0.0, at_s - loop.time()))
            picture = self.pictures[n % len(self.pictures)]
            waiting += [ticket.result for ticket in gateway.submit(registration.stream.stream_id, picture.tobytes())]
        self.results = list(await asyncio.gather(*waiting))


@asynccontextmanager
async def serving(settings: Settings, profile: Profile, *, early: bool) -> AsyncIterator[Gateway]:
    """A gateway that is ready."""
    # The cameras' timer is off by some milliseconds, and this is about batches.
    scheduling = settings.scheduling.model_copy(update={"early_dispatch": early, "policing": False})
    gateway = Gateway(settings.model_copy(update={"scheduling": scheduling}), profile)
    await gateway.start()
    try:
        while not gateway.ready:  # noqa: ASYNC110 - readiness is polled, as any client of the gateway does
            await asyncio.sleep(0.05)
        yield gateway
    finally:
        await gateway.stop()


async def send(gateway: Gateway, cameras: Sequence[Camera]) -> None:
    """Run all cameras from one epoch."""
    epoch_s = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for camera in cameras:
            group.create_task(camera.run(gateway, epoch_s))


def described(cameras: Sequence[Camera], seconds: float) -> dict[str, Any]:
    """What the frames of one run say. A job of n frames counts once: each of its frames adds 1/n."""
    results = [result for camera in cameras for result in camera.results]
    done = [result for result in results if result.outcome in {Outcome.MET, Outcome.MISSED}]
    jobs = sum(1 / (result.batch or 1) for result in done)
    busy_ms = sum((result.execute_ms or 0.0) / (result.batch or 1) for result in done)
    return {
        "frames": len(results),
        "met": sum(result.outcome is Outcome.MET for result in results),
        "mean_batch": round(len(done) / jobs, 3),
        "device_busy": round(busy_ms / (seconds * 1_000), 3),
        "p50_latency_ms": round(median(result.latency_ms for result in done), 2),
    }


def own_answers(cameras: Sequence[Camera], repository: Path) -> bool:
    """Whether every output that came equals that of the same picture run alone, by ONNX Runtime in this process."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read at import
    import onnxruntime

    session = onnxruntime.InferenceSession(repository / MODEL / "1" / "model.onnx")
    [given] = session.get_inputs()
    names = [output.name for output in session.get_outputs()]
    for camera in cameras:
        alone = [session.run(names, {given.name: picture[np.newaxis]}) for picture in camera.pictures]
        for result in camera.results:
            outputs = result.outputs
            if outputs is None:
                continue  # expired: a stalled machine
            expected = alone[result.seq % len(alone)]
            if not all(
                np.allclose(outputs[name], rows[0], atol=1e-3) for name, rows in zip(names, expected, strict=True)
            ):
                return False
    return True


async def run(settings: Settings, repository: Path, seconds: float) -> dict[str, Any]:
    """Profile, then the four runs."""
    report = await measure(Plan((MODEL,), (SHAPE[:2],), BATCHES, samples=100), settings, device_name())
    typical = Profile(tuple(replace(e, p99_ms=e.p50_ms, max_ms=e.p50_ms, count=100) for e in report.profile.entries))
    one_ms = min(e.p50_ms for e in report.profile.entries if e.batch == 1)
    found: dict[str, Any] = {"device": report.profile.device, "profiled_p50_ms": one_ms}

    camera = Camera(0, NS_PER_S // 5, 2 * NS_PER_S // 5, 0, round(5 * seconds))
    async with serving(settings, typical, early=True) as gateway:
        await send(gateway, [camera])
    found["idle"] = described([camera], seconds)
    found["idle"]["over_profiled_p50_ms"] = round(found["idle"]["p50_latency_ms"] - one_ms, 2)

    period_ns = round(_JOINT_PERIOD_EXECUTIONS * one_ms * NS_PER_MS)
    count = round(seconds * NS_PER_S / period_ns)
    pair = [Camera(n, period_ns, 2 * period_ns, n * period_ns // 2, count) for n in range(2)]
    async with serving(settings, typical, early=False) as gateway:
        await send(gateway, pair)
    found["joints"] = described(pair, seconds) | {"own_answers": own_answers(pair, repository)}

    for name, early in (("early", True), ("waiting", False)):
        found[name] = {}
        for busy in BUSY:
            period_ns = round(CAMERAS * one_ms * NS_PER_MS / busy)
            count = round(seconds * NS_PER_S / period_ns)
            cameras = [
                Camera(n, period_ns, 2 * period_ns, n * period_ns // CAMERAS + period_ns, count) for n in range(CAMERAS)
            ]
            async with serving(settings, typical, early=early) as gateway:
                await send(gateway, cameras)
            found[name][f"{busy:.2f}"] = described(cameras, seconds)
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Latency and batches of the live gateway on a real Triton.")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each run")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    repository = Path("model_repository")
    build(MODEL, repository)
    with tempfile.TemporaryDirectory() as folder, EmbeddedTriton(repository, Path(folder) / "triton.log") as triton:
        settings = Settings(models=[MODEL])
        settings = settings.model_copy(
            update={"triton": settings.triton.model_copy(update={"url": triton.grpc_url, "backoff_max_ms": 200.0})}
        )
        found = uvloop.run(run(settings, repository, arguments.seconds))
    sys.stdout.write(json.dumps(found, indent=None if arguments.json else 2) + "\n")


if __name__ == "__main__":
    main()
