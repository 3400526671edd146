"""CPU time of one call to Triton: `grpc.aio` against the lean way over HTTP, with outputs in the answer and in memory.

``python -m benchmarks.transport --json``. Needs the extra `embedded`. One call at a time, as the gateway makes them,
from a process of its own on core 0 with Triton on core 1; frames of 150 kB lie in shared memory. For each model and
batch size, rounds in which every way has its turn, in changing order; the figures are medians over the rounds, ratios
those of one round. CPU time is that of the whole process, gRPC's own threads included.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from gateway.runtime.arena import Arena
from gateway.runtime.output_rooms import OutputRooms
from gateway.runtime.region import shared_region
from gateway.triton.client import TritonClient
from gateway.triton.embedded import EmbeddedTriton
from gateway.triton.types import InferenceCall, InSharedMemory, ModelMetadata, Outputs
from profiler.device import device_name

SHAPE = (224, 224, 3)
FRAME_BYTES = 224 * 224 * 3
#: Elements of one frame's only output, FP32: a few numbers, and a map of 200 kB.
MODELS = {"numbers": 3, "map": 50_000}
BATCHES = (1, 8)
#: Executed by every way first: Triton's first calls of a shape take longer.
_WARM_UPS = 50
_ARENA_BYTES = 64 << 20
_US = 1e6
_MAX_MESSAGE_BYTES = 64 << 20

_CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            frames = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
            values = np.zeros((len(frames), {elements}), np.float32)
            values[:, :3] = frames[:, 0, 0, :]
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("value", values)]))
        return answers
"""
_CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 16
input [ {{ name: "image" data_type: TYPE_UINT8 dims: [ -1, -1, 3 ] }} ]
output [ {{ name: "value" data_type: TYPE_FP32 dims: [ {elements} ] }} ]
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one call, medians over what was done with it."""

    cpu_us: float
    p50_us: float


class Ways:
    """The three ways to make the same call. Make it on the event loop that uses it."""

    def __init__(self, triton: EmbeddedTriton) -> None:
        self._arena = Arena(shared_region(_ARENA_BYTES))
        self._rooms = OutputRooms(self._arena)
        self._grpc = TritonClient(triton.grpc_url, max_message_bytes=_MAX_MESSAGE_BYTES)
        self._http = TritonClient(triton.grpc_url, http_url=triton.http_url, max_message_bytes=_MAX_MESSAGE_BYTES)
        self.names = ("grpc.aio", "http", "http, outputs in memory")

    async def open(self) -> None:
        """Have Triton open the memory."""
        region = self._arena.region
        await self._grpc.register_region(region.name, region.key, region.size)
        if reason := await self._http.try_http(region.name):
            raise SystemExit(reason)

    async def close(self) -> None:
        """Take everything back."""
        await self._grpc.unregister_region(self._arena.region.name)
        await self._grpc.close()
        await self._http.close()
        self._arena.close()

    async def metadata(self, model: str) -> ModelMetadata:
        """Return what Triton says of a model."""
        return await self._grpc.metadata(model)

    async def call(self, way: str, model: ModelMetadata, frames: int) -> Outputs:
        """Make one call, with what the gateway does around it."""
        with self._arena.lend(frames * FRAME_BYTES, clear=False) as span:
            place = InSharedMemory(self._arena.region.name, span.offset, span.size)
            plain = InferenceCall(model.name, model.version, "image", "UINT8", (frames, *SHAPE), place)
            if way != self.names[2]:
                return await (self._grpc if way == self.names[0] else self._http).infer(plain)
            with self._rooms.lend(model, frames) as room:
                call = InferenceCall(model.name, model.version, "image", "UINT8", (frames, *SHAPE), place, room=room)
                return await self._http.infer(call)


async def measure(ways: Ways, way: str, model: ModelMetadata, frames: int, calls: int) -> Figures:
    """Make so many calls, one after another."""
    times_s = []
    began_s = time.process_time()
    for _ in range(calls):
        start_s = time.perf_counter()
        await ways.call(way, model, frames)
        times_s.append(time.perf_counter() - start_s)
    return Figures((time.process_time() - began_s) / calls * _US, median(times_s) * _US)


async def compare(triton: EmbeddedTriton, rounds: int, calls: int) -> list[dict[str, Any]]:
    """Return one row per model, batch size and way."""
    ways = Ways(triton)
    await ways.open()
    rows: list[dict[str, Any]] = []
    try:
        for name in MODELS:
            model = await ways.metadata(name)
            for frames in BATCHES:
                sys.stderr.write(f"{name}, {frames} frames\n")
                found: dict[str, list[Figures]] = {way: [] for way in ways.names}
                for way in ways.names:
                    await measure(ways, way, model, frames, _WARM_UPS)
                for number in range(rounds):
                    turn = number % len(ways.names)
                    for way in ways.names[turn:] + ways.names[:turn]:
                        found[way].append(await measure(ways, way, model, frames, calls))
                rows += _rows(name, frames, found)
    finally:
        await ways.close()
    return rows


def _rows(model: str, frames: int, found: dict[str, list[Figures]]) -> list[dict[str, Any]]:
    reference = next(iter(found.values()))
    return [
        {
            "model": model,
            "frames": frames,
            "way": way,
            "cpu_us": round(median(each.cpu_us for each in figures), 1),
            "cpu_ratio": round(median(a.cpu_us / b.cpu_us for a, b in zip(figures, reference, strict=True)), 3),
            "p50_us": round(median(each.p50_us for each in figures), 1),
        }
        for way, figures in found.items()
    ]


def write_models(repository: Path) -> Path:
    """Write the model repository; return it."""
    for name, elements in MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(_CONFIG.format(name=name, elements=elements))
        (repository / name / "1" / "model.py").write_text(_CODE.format(elements=elements))
    return repository


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures in Markdown."""
    lines = ["| model | frames | way | CPU us a call | of grpc.aio | p50 us |", "|---|---|---|---|---|---|"]
    lines += ["| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="CPU time of a call to Triton, over grpc.aio and over HTTP.")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each way")
    parser.add_argument("--calls", type=int, default=1_000, help="calls in a turn")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        repository = write_models(Path(folder) / "models")
        os.sched_setaffinity(0, cores[-1:])
        with EmbeddedTriton(repository, Path(folder) / "triton.log", models=list(MODELS)) as triton:
            os.sched_setaffinity(0, cores[:1])
            rows = uvloop.run(compare(triton, arguments.rounds, arguments.calls))
    found = {"device": device_name(), "rounds": arguments.rounds, "calls": arguments.calls, "rows": rows}
    sys.stdout.write((json.dumps(found) if arguments.json else table(rows)) + "\n")


if __name__ == "__main__":
    main()
