"""`perf_analyzer -i http` against the gateway and against the Triton behind it, on the same model.

``python -m benchmarks.open_inference --json``. Needs the extra `embedded`. For each concurrency, so many rounds, each a
run against one and a run against the other in turn; the figures are medians over the rounds. Each has the whole
machine while it is measured, beside the tool. The gateway's calls are best effort, with nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from gateway.api.app import create_app
from gateway.api.server import Server
from gateway.core.profile import Profile, ProfileEntry
from gateway.runtime.gateway import Gateway
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from gateway.triton.types import ModelMetadata
from gateway.zoo.build import build
from profiler.device import device_name
from profiler.perf_analyzer import Tool, fetch, find

SHAPES = {"centerface": (160, 192, 3), "mobilenet_v2": (224, 224, 3)}
CONCURRENCY = (1, 4, 16)
BATCHES = (1, 2, 4, 8, 16)
WINDOW_MS = 2_000
_US_PER_MS = 1e3
_RUN_LIMIT_S = 120.0
#: A start of the gateway with its warm-up.
_READY_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run, as the tool reports them."""

    calls_per_s: float
    p50_ms: float
    p99_ms: float


def arguments_of(url: str, model: ModelMetadata, shape: tuple[int, ...], concurrency: int, report: Path) -> list[str]:
    """Return the tool's arguments: three time windows, which always agree, and a report in CSV."""
    return [
        *("-m", model.name, "-x", model.version, "-u", url, "-i", "http", "-b", "1"),
        *("--shape", f"{model.inputs[0].name}:{','.join(map(str, shape))}"),
        *("--concurrency-range", str(concurrency), "--measurement-interval", str(WINDOW_MS)),
        *("--stability-percentage", "999", "-f", str(report)),
    ]


def measure(tool: Tool, url: str, model: ModelMetadata, shape: tuple[int, ...], concurrency: int) -> Figures:
    """Run the tool once. Blocks."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.csv"
        subprocess.run(
            [str(tool.path), *arguments_of(url, model, shape, concurrency, report)],
            env=tool.environment(url),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_RUN_LIMIT_S,
            check=True,
        )
        with report.open(newline="") as file:
            [row] = csv.DictReader(file)
    return Figures(
        calls_per_s=float(row["Inferences/Second"]),
        p50_ms=float(row["p50 latency"]) / _US_PER_MS,
        p99_ms=float(row["p99 latency"]) / _US_PER_MS,
    )


@asynccontextmanager
async def serving(settings: Settings, profile: Profile) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway on this loop, and where it answers."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[str] = loop.create_future()
    gateway = Gateway(settings, profile)
    server = Server(create_app(gateway, settings), settings.server, on_ready=ready.set_result)
    serving = loop.create_task(server.serve())
    try:
        yield gateway, (await asyncio.wait_for(ready, _READY_LIMIT_S)).removeprefix("http://")
    finally:
        server.should_exit = True
        await serving


def assumed(model: str, shape: tuple[int, ...]) -> Profile:
    """A profile that knows the shape. Nothing is promised here, so its times matter only in that batches pay."""
    times = [(batch, 10.0 + batch) for batch in BATCHES]
    return Profile(entries=tuple(ProfileEntry(model, "1", shape, "UINT8", n, 100, ms, ms, ms) for n, ms in times))


async def compare(
    tool: Tool, model: ModelMetadata, shape: tuple[int, ...], urls: dict[str, str], *, rounds: int
) -> list[dict[str, Any]]:
    """Return one row per concurrency and server."""
    rows: list[dict[str, Any]] = []
    for concurrency in CONCURRENCY:
        found: dict[str, list[Figures]] = {name: [] for name in urls}
        for number in range(rounds):
            for name in list(urls) if number % 2 == 0 else list(urls)[::-1]:
                run = asyncio.to_thread(measure, tool, urls[name], model, shape, concurrency)
                found[name].append(await run)
        rows += [_row(name, concurrency, figures) for name, figures in found.items()]
    return rows


def _row(name: str, concurrency: int, figures: Sequence[Figures]) -> dict[str, Any]:
    return {
        "server": name,
        "concurrency": concurrency,
        "calls_per_s": round(median(each.calls_per_s for each in figures), 1),
        "p50_ms": round(median(each.p50_ms for each in figures), 2),
        "p99_ms": round(median(each.p99_ms for each in figures), 2),
    }


async def benchmark(triton: EmbeddedTriton, name: str, *, rounds: int) -> dict[str, Any]:
    """Measure model `name` on both."""
    tool = find() or fetch(lambda line: sys.stderr.write(f"{line}\n"))
    shape = SHAPES[name]
    settings = Settings(models=[name], triton={"url": triton.grpc_url}, server={"port": 0})
    async with serving(settings, assumed(name, shape)) as (gateway, url):
        model = gateway.model_facts.metadata(name)
        urls = {"triton": triton.http_url, "gateway": url}
        rows = await compare(tool, model, shape, urls, rounds=rounds)
        version = gateway.triton_version
    return {
        "model": name,
        "shape": shape,
        "device": device_name(),
        "triton": version,
        "windows_ms": [WINDOW_MS] * 3,
        "rounds": rounds,
        "rows": rows,
    }


def table(found: dict[str, Any]) -> str:
    """Return the figures in Markdown."""
    lines = ["| concurrency | server | calls/s | p50 ms | p99 ms |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['concurrency']} | {row['server']} | {row['calls_per_s']} | {row['p50_ms']} | {row['p99_ms']} |"
        for row in found["rows"]
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="perf_analyzer over HTTP against the gateway and its Triton.")
    parser.add_argument("--model", choices=sorted(SHAPES), default="centerface")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, in turn")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    repository = Path("model_repository")
    build(arguments.model, repository)
    with tempfile.TemporaryDirectory() as folder, EmbeddedTriton(repository, Path(folder) / "triton.log") as triton:
        found = uvloop.run(benchmark(triton, arguments.model, rounds=arguments.rounds))
    sys.stdout.write((json.dumps(found) if arguments.json else table(found)) + "\n")


if __name__ == "__main__":
    main()
