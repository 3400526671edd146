"""What others do must not harm streams that keep their contracts: measured over HTTP on a real Triton.

``python -m benchmarks.isolation --json``. Needs the extra `embedded`. Triton runs on one processor core with one thread
for an execution, the shipped gateway and all senders on another, so that the device is a device. What is to disturb is
sent from a process of lower priority: it stands for other machines.

Cameras of two kinds (centerface and mobilenet_v2) are registered in turn until each kind is refused; those are kept
that ask for at least 80 % of what was admitted (at the profile's medians), one of them to misbehave. Then, in rounds,
in an order that changes from round to round:

- `alone`: all keep their contracts.
- `surplus`: that one camera sends at three times its rate.
- `best_effort`: frames of a best-effort stream come at twice the rate that an idle device could serve.
- `half_frames`: 200 connections per second open, send half a frame and vanish.

The last line is one JSON object. `miss_ratio`: frames of the other cameras that were not answered in time (refused ones
among them), of those they sent; medians of the rounds. `rise`: medians of the differences to `alone` of the same round,
in points. `best_effort_share`: the device's time for best effort by what cameras left of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import uvloop

from benchmarks.frame_path.processes import on_cores
from benchmarks.http_load import Answer, Pool, load, send_at
from benchmarks.isolation_streams import BEST_EFFORT_SIZE, Registry, Streams, fill
from benchmarks.limit import MODELS, SIZE, cores_and_models
from gateway.core.profile import Profile
from gateway.runtime.profile_file import read_profile, write_profile
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from profiler.device import device_name
from profiler.plan import Plan
from profiler.quick import measure

RUNS = ("alone", "surplus", "best_effort", "half_frames")
BATCHES = (1, 2, 4, 8)
#: How often its rate the misbehaving camera sends.
SURPLUS = 3
#: Connections per second that break off.
BREAKING = 200
_PAUSE_S = 1.0
#: From the decision to send to the first frame: the other process has to be told.
_LEAD_S = 0.5
#: How much lower the priority of the other process is.
_NICE = 10


async def run(name: str, streams: Streams, pool: Pool, others: Executor, seconds: float) -> dict[str, Any]:
    """Send for `seconds`, and say what came of it."""
    loop = asyncio.get_running_loop()
    epoch_s, shared_s = loop.time() + _LEAD_S, time.monotonic() + _LEAD_S
    vanish = name == "half_frames"
    times_s = [shared_s + n / BREAKING for n in range(int(seconds * BREAKING))] if vanish else []
    if name == "best_effort":
        times_s = streams.best_effort.times_s(shared_s, seconds)
    request = streams.cameras[0].request if vanish else streams.best_effort.request
    sent = loop.run_in_executor(others, partial(load, *pool.address, request, times_s, vanish=vanish))
    async with asyncio.TaskGroup() as group:
        cameras = [
            group.create_task(send_at(pool, camera.request, camera.times_s(epoch_s, seconds)))
            for camera in streams.cameras
        ]
        faster = SURPLUS if name == "surplus" else 1
        rogue = group.create_task(send_at(pool, streams.rogue.request, streams.rogue.times_s(epoch_s, seconds, faster)))
    answers = [answer for camera in cameras for answer in camera.result()]
    return _figures(answers, rogue.result(), await sent, (epoch_s, shared_s + seconds), seconds)


def _figures(
    cameras: Sequence[Answer],
    rogue: Sequence[Answer],
    search: Sequence[Answer],
    span_s: tuple[float, float],
    seconds: float,
) -> dict[str, Any]:
    begin_s, end_s = span_s
    outcomes = Counter(answer.outcome for answer in cameras)
    real_time_ms = sum(answer.busy_ms for answer in (*cameras, *rogue))
    best_effort_ms = sum(answer.busy_ms for answer in search if answer.at_s <= end_s)
    latencies = [float(answer.members["latency_ms"]) for answer in cameras if answer.busy_ms]
    return {
        "miss_ratio": 1 - outcomes["met"] / max(1, len(cameras)),
        "frames": len(cameras),
        "outcomes": dict(sorted(outcomes.items())),
        "refused_at_s": [round(a.at_s - begin_s, 2) for a in cameras if not a.members],
        "rogue": dict(sorted(Counter(answer.outcome for answer in rogue).items())),
        "best_effort": dict(sorted(Counter(answer.outcome for answer in search).items())),
        "best_effort_share": best_effort_ms / (seconds * 1e3 - real_time_ms),
        "real_time_busy": round(real_time_ms / (seconds * 1e3), 3),
        "p99_latency_ms": round(float(np.percentile(latencies, 99)), 1) if latencies else None,
    }


async def rounds(url: str, profile: Profile, seconds: float, pairs: int) -> dict[str, Any]:
    """All runs of all rounds, and what they come to."""
    registry = Registry(url)
    streams = fill(registry, profile)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in RUNS}
    with ProcessPoolExecutor(1, get_context("spawn"), os.nice, (_NICE,)) as others:
        await run("alone", streams, registry.pool, others, min(3.0, seconds))  # connections and caches are warm then
        for n in range(pairs):
            for name in (*RUNS[n % len(RUNS) :], *RUNS[: n % len(RUNS)]):
                await asyncio.sleep(_PAUSE_S)
                found[name].append(await run(name, streams, registry.pool, others, seconds))
                sys.stderr.write(f"{name} {json.dumps(found[name][-1])}\n")
    registry.pool.close()
    misses = {name: [figures["miss_ratio"] for figures in found[name]] for name in RUNS}
    return {
        "miss_ratio": {name: round(median(misses[name]), 5) for name in RUNS},
        "rise": {
            name: round(100 * median(m - a for m, a in zip(misses[name], misses["alone"], strict=True)), 3)
            for name in RUNS[1:]
        },
        "best_effort_share": round(median(f["best_effort_share"] for f in found["best_effort"]), 3),
        "load": round(streams.kept, 3),
        "cameras_admitted": streams.admitted,
        "cameras": len(streams.cameras) + 1,
        "seconds": seconds,
        "pairs": pairs,
        "profile": [
            {"model": e.model, "shape": e.shape, "batch": e.batch, "p50_ms": e.p50_ms, "p99_ms": e.p99_ms}
            for e in profile.entries
        ],
        "runs": found,
    }


@contextmanager
def served(profile: Profile, triton_url: str, folder: Path) -> Iterator[str]:
    """Run `framegate serve` and give its URL."""
    path = folder / "profile.json"
    write_profile(path, profile)
    command = [sys.executable, "-c", "from gateway.cli import app; app()", "serve", "--port", "0"]
    command += ["--triton", triton_url, "--profile", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = next((line for line in process.stdout if line.startswith("ready at ")), None)
            if line is None:
                raise SystemExit("the gateway did not start")
            yield line.split()[-1]
        finally:
            process.terminate()
            process.wait(30)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="What others do must not harm streams that keep their contracts.")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each run")
    parser.add_argument("--pairs", type=int, default=5, help="rounds of all four runs")
    parser.add_argument("--profile", type=Path, help="execution times from elsewhere; else they are measured first")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    cores, repository = cores_and_models()
    found: dict[str, Any]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        triton = EmbeddedTriton(repository, folder / "triton.log", intra_op_threads=1)
        with on_cores(cores[-1:]):
            triton.start()
        try:
            with on_cores(cores[:1]):
                profile = read_profile(arguments.profile) if arguments.profile else _measured(triton.grpc_url)
                with served(profile, triton.grpc_url, folder) as url:
                    found = uvloop.run(rounds(url, profile, arguments.seconds, arguments.pairs))
        finally:
            triton.stop()
    sys.stdout.write(json.dumps(found, indent=None if arguments.json else 2) + "\n")


def _measured(triton_url: str) -> Profile:
    settings = Settings(models=list(MODELS))
    group = settings.triton.model_copy(update={"url": triton_url, "backoff_max_ms": 200.0})
    settings = settings.model_copy(update={"triton": group})
    plan = Plan(MODELS, (SIZE, BEST_EFFORT_SIZE), BATCHES, samples=100)
    profile: Profile = uvloop.run(measure(plan, settings, device_name())).profile
    return profile


if __name__ == "__main__":
    main()
