"""How long the device stands still between two jobs that follow each other.

A model sleeps. The gateway always has frames that wait for it, one frame a job; `perf_analyzer` keeps one request under
way at a time, with the frames in shared memory, on a Triton of its own: it has Triton forget all shared memory that is
registered. The gateway runs twice: as it is shipped, sending the next job ahead, and with one job at a time in Triton.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from benchmarks.frame_path import models, servers
from benchmarks.frame_path.models import Model
from benchmarks.frame_path.servers import Place
from benchmarks.frame_path.sizes import MAIN, slow_profile
from benchmarks.frame_path.targets import measure
from gateway.triton.embedded import EmbeddedTriton
from profiler.perf_analyzer import Outcome, PerfAnalyzerError, Request, Tool, run

CONNECTIONS = 4
#: Three of the tool's time windows, which always agree.
_WINDOWS, _AGREE_PERCENT = 3, 999
_SETTINGS = {"SCHEDULING__POLICING": "false"}
_ARMS = {"gateway": _SETTINGS, "gateway_in_turn": _SETTINGS | {"SCHEDULING__SEND_AHEAD_MS": "0"}}
_REFERENCE = "perf_analyzer"
#: Now and then it ends well and has written nothing (`PerfAnalyzerError.unreadable`).
_TRIES = 3
#: Far below what is sent: what is promised has to fit, and here it is the device that says how much is served.
_STREAM = {"period_ms": 100.0, "deadline_ms": 500.0, "jitter_ms": 0.0, "on_late": "serve"}


def measure_busy(
    place: Place,
    other: EmbeddedTriton,
    tool: Tool,
    say: Callable[[str], None],
    *,
    model: Model,
    seconds: float,
    rounds: int,
) -> dict[str, Any]:
    """Return `rounds` runs of each, in turn, of `seconds` each."""
    stream = {"model": model.name, "shape": list(MAIN.shape), **_STREAM}
    body, profile = place.frame(MAIN), slow_profile(model.name, model.pause_ms)
    names = [*_ARMS, _REFERENCE]
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with ExitStack() as stack:
        targets = {}
        for name, settings in _ARMS.items():
            file = f"{name}-{model.name}"
            target = stack.enter_context(servers.gateway(place, file, profile, stream, body=body, settings=settings))
            targets[name] = replace(target, connections=CONNECTIONS)
        for number in range(rounds):
            for name in names if number % 2 == 0 else names[::-1]:
                row = measure(targets[name], seconds) if name in targets else _reference(tool, other, model, seconds)
                rows[name].append(row)
                say(f"busy {model.pause_ms:g} ms, {name}: {row}")
    return {"sleep_ms": model.pause_ms, "connections": CONNECTIONS, "runs": rows}


def _reference(tool: Tool, triton: EmbeddedTriton, model: Model, seconds: float) -> dict[str, Any]:
    request = Request(
        url=triton.grpc_url,
        model=model.name,
        version="1",
        input_name=models.INPUT,
        shape=MAIN.shape,
        window_ms=round(seconds * 1e3 / _WINDOWS),
        agree_percent=_AGREE_PERCENT,
    )
    outcome = _run(tool, request)
    began, ended = outcome.started_ns, outcome.ended_ns
    return {
        "frames_per_s": round((len(began) - 1) * 1e9 / (began[-1] - began[0]), 1),
        "frames": len(began),
        "p50_ms": sorted(outcome.latencies_ms)[len(ended) // 2],
    }


def _run(tool: Tool, request: Request) -> Outcome:
    for _ in range(_TRIES - 1):
        try:
            return asyncio.run(run(tool, request))
        except PerfAnalyzerError as error:
            if not error.unreadable:
                raise
    return asyncio.run(run(tool, request))
