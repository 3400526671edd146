"""The two ways to measure, side by side: `perf_analyzer` and the gateway's own dispatch path.

``python -m benchmarks.profiler --json``. Needs the extra `embedded`, the weights of both models, and perf_analyzer (it
is fetched with pip if there is none). One Triton process, mobilenet_v2 and centerface, two shapes each, batches 1, 2, 4
and 8. The engines take turns point by point, in short rounds, so that whatever else the machine does hits both alike,
and both take their samples back to back. What disturbs an execution only makes it longer, so an engine's p50 is that of
its best round; where the two differ by more than `CLOSE` more rounds are made of both, up to `MAX_ROUNDS`, while there
is time. `pooled_ratio` is that of the medians over all samples of all rounds.

Ends with status 1 where the two still differ by more than a quarter at any point.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import median

import uvloop

from gateway.paths import default_repository
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from gateway.zoo.build import build
from profiler.bench import Bench
from profiler.device import device_name
from profiler.engines import Native, PerfAnalyzer
from profiler.perf_analyzer import Tool, fetch, find
from profiler.plan import Plan, Point

MODELS = ("mobilenet_v2", "centerface")
SHAPES = ((224, 224), (256, 320))
BATCHES = (1, 2, 4, 8)
#: The two p50 differ by no more: the larger by at most a quarter of the smaller.
LIMIT = 1.25
#: Of each engine in a round.
SAMPLES = 40
ROUNDS, MAX_ROUNDS = 2, 8
#: Nearer than this no more rounds are worth their time.
CLOSE = 1.12
#: No more rounds than the first after this long, so that all ends within ten minutes.
NO_MORE_AFTER_S = 360.0


@dataclass(frozen=True)
class Compared:
    """One point. Times in ms; `ratio` is perf_analyzer's p50 by the gateway's."""

    model: str
    shape: tuple[int, ...]
    batch: int
    perf_analyzer_p50_ms: float
    native_p50_ms: float
    ratio: float
    pooled_ratio: float
    samples: int
    rounds: int

    @property
    def apart(self) -> float:
        """The larger p50 by the smaller."""
        return max(self.ratio, 1 / self.ratio)


async def compare(point: Point, native: Native, perf_analyzer: PerfAnalyzer, repeat_until: float) -> Compared:
    """Measure one point with both, in turns; rounds beyond the first few only until `repeat_until` (monotonic, s)."""
    ours: list[Sequence[float]] = []
    theirs: list[Sequence[float]] = []
    for number in range(1, MAX_ROUNDS + 1):
        ours.append((await native.take(point, SAMPLES)).latencies_ms)
        theirs.append((await perf_analyzer.take(point, SAMPLES)).latencies_ms)
        ratio = _best(theirs) / _best(ours)
        if number >= ROUNDS and (max(ratio, 1 / ratio) <= CLOSE or time.monotonic() > repeat_until):
            break
    return Compared(
        model=point.category.model,
        shape=point.category.shape,
        batch=point.batch,
        perf_analyzer_p50_ms=round(_best(theirs), 3),
        native_p50_ms=round(_best(ours), 3),
        ratio=round(ratio, 3),
        pooled_ratio=round(median(chain(*theirs)) / median(chain(*ours)), 3),
        samples=sum(map(len, ours)),
        rounds=len(ours),
    )


def _best(rounds: Sequence[Sequence[float]]) -> float:
    return min(median(samples) for samples in rounds)


async def run(url: str, tool: Tool) -> list[Compared]:
    """Compare all points in the Triton at `url`."""
    settings = Settings()
    settings = settings.model_copy(update={"triton": settings.triton.model_copy(update={"url": url})})
    bench = Bench(Plan(MODELS, SHAPES, BATCHES, SAMPLES, pauses=False), settings, lambda _what, _samples: None)
    try:
        await bench.connect()
        native, perf_analyzer = Native(bench), PerfAnalyzer(bench, tool)
        results = []
        repeat_until = time.monotonic() + NO_MORE_AFTER_S
        for point in bench.points():
            result = await compare(point, native, perf_analyzer, repeat_until)
            say(line(result))
            results.append(result)
        if bench.failures:
            raise SystemExit(f"not measured: {bench.failures}")
        return results
    finally:
        await bench.close()


def say(text: str) -> None:
    """Print on stderr, at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def line(result: Compared) -> str:
    """Return one row of the table."""
    shape = "x".join(map(str, result.shape))
    return (
        f"{result.model:<14}{shape:<11} batch {result.batch}   perf_analyzer {result.perf_analyzer_p50_ms:8.2f} ms"
        f"   native {result.native_p50_ms:8.2f} ms   ratio {result.ratio:5.2f}   {result.samples} of each"
    )


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="end with one JSON object on one line")
    parser.add_argument("--perf-analyzer", type=Path, help="the executable; default: as framegate profile finds it")
    arguments = parser.parse_args()
    began = time.monotonic()
    repository = default_repository()
    tool = find(arguments.perf_analyzer) or fetch(say)
    for model in MODELS:
        build(model, repository)
    with tempfile.TemporaryDirectory() as scratch, EmbeddedTriton(repository, Path(scratch) / "triton.log") as triton:
        results = uvloop.run(run(triton.grpc_url, tool))
    worst = max(result.apart for result in results)
    took_s = round(time.monotonic() - began, 1)
    verdict = "within" if worst <= LIMIT else "NOT within"
    say(f"{verdict} 25 % at every point: at worst a factor of {worst:.2f}; {took_s:.0f} s")
    if arguments.json:
        report = {
            "device": device_name(),
            "cores": len(os.sched_getaffinity(0)),
            "seconds": took_s,
            "worst": round(worst, 3),
            "agree": worst <= LIMIT,
            "points": [asdict(result) for result in results],
        }
        sys.stdout.write(json.dumps(report) + "\n")
    raise SystemExit(0 if worst <= LIMIT else 1)


if __name__ == "__main__":
    main()
