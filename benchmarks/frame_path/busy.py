"""How long the device stands still between two jobs that follow each other.

A model sleeps for 10 ms. The gateway always has frames that wait for it, one frame a job; `perf_analyzer` keeps one
request under way at a time, with the frames in shared memory, on a Triton of its own: it has Triton forget all shared
memory that is registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.frame_path import models, servers
from benchmarks.frame_path.servers import Place
from benchmarks.frame_path.sizes import MAIN, SLEEP_MS, slow_profile
from benchmarks.frame_path.targets import measure
from gateway.triton.embedded import EmbeddedTriton
from profiler.perf_analyzer import Request, Tool, run

CONNECTIONS = 4
#: Three of the tool's time windows, which always agree.
_WINDOWS, _AGREE_PERCENT = 3, 999
_SETTINGS = {"SCHEDULING__POLICING": "false"}
#: Far below what is sent: what is promised has to fit, and here it is the device that says how much is served.
_STREAM = {"period_ms": 100.0, "deadline_ms": 500.0, "jitter_ms": 0.0, "on_late": "serve"}


def measure_busy(
    place: Place, other: EmbeddedTriton, tool: Tool, say: Callable[[str], None], *, seconds: float, rounds: int
) -> dict[str, Any]:
    """Return `rounds` runs of each, in turn, of `seconds` each."""
    model = models.SLEEPER.name
    stream = {"model": model, "shape": list(MAIN.shape), **_STREAM}
    rows: dict[str, list[dict[str, Any]]] = {"gateway": [], "perf_analyzer": []}
    body = place.frame(MAIN)
    with servers.gateway(place, "gateway-busy", slow_profile(model), stream, body=body, settings=_SETTINGS) as target:
        target = replace(target, connections=CONNECTIONS)
        for number in range(rounds):
            for name in list(rows) if number % 2 == 0 else list(rows)[::-1]:
                row = measure(target, seconds) if name == "gateway" else _reference(tool, other, seconds)
                rows[name].append(row)
                say(f"busy {name}: {row}")
    return {"sleep_ms": SLEEP_MS, "connections": CONNECTIONS, "runs": rows}


def _reference(tool: Tool, triton: EmbeddedTriton, seconds: float) -> dict[str, Any]:
    request = Request(
        url=triton.grpc_url,
        model=models.SLEEPER.name,
        version="1",
        input_name=models.INPUT,
        shape=MAIN.shape,
        window_ms=round(seconds * 1e3 / _WINDOWS),
        agree_percent=_AGREE_PERCENT,
    )
    outcome = asyncio.run(run(tool, request))
    began, ended = outcome.started_ns, outcome.ended_ns
    return {
        "frames_per_s": round((len(began) - 1) * 1e9 / (began[-1] - began[0]), 1),
        "frames": len(began),
        "p50_ms": sorted(outcome.latencies_ms)[len(ended) // 2],
    }
