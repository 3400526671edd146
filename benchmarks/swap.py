"""Swapping on a real Triton: the worst case, the paper's workloads, policies, a pinned stream, and chaos.

``python -m benchmarks.swap --json``. Needs the extra `embedded`. It generates models into `--repository` (1.2 GB),
measures their execution and swap times with `profiler`, and then takes its parts in turn; ``--only`` picks some. All
figures are kept in ``--out`` as they are found, and ``--resume`` goes on with them. The whole takes well over an hour.

- `worst_case`: two models alternate, room for one, beside a resident camera. Against a plain client.
- `cells`: three models with room for two and six with room for four, Gamma arrivals (`swapping.workload`).
- `policies`: how many swaps LRU and next-use need for the same periodic frames.
- `pinned`: misses of a pinned model's cameras at 80 % of the limit, alone and beside best effort that swaps.
- `chaos`: loads, unloads and calls at random, failing loads among them; then Triton is killed.

Triton executes with one thread and is not bound to a core: a load goes on beside an execution, as it does where
weights are copied to a GPU, and slows it down a little.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.swapping.cells import Cells
from benchmarks.swapping.chaos import measure_chaos
from benchmarks.swapping.models import CLASSES, EXTRA, FACES, NETS, make_repository
from benchmarks.swapping.pinned import measure_pinned
from benchmarks.swapping.policies import measure_policies
from benchmarks.swapping.report import draw, figures, lines
from benchmarks.swapping.results import Results
from benchmarks.swapping.workload import SEEDS, SETS
from benchmarks.swapping.worst_case import MOST_FRAMES, measure_worst_case
from gateway.core.profile import Profile
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from profiler.device import device_name
from profiler.plan import Plan
from profiler.quick import measure

PARTS = ("worst_case", "cells", "policies", "pinned", "chaos")
#: Of the generated nets, whose times vary little; and of the models whose cameras rest on a 99th percentile.
NET_SAMPLES, CAMERA_SAMPLES = 15, 200
CHAOS_S = 120.0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


async def profiled(url: str, pid: int | None) -> dict[str, Any]:
    """Measure all models: those of cameras with the interference of loads."""
    settings = Settings(triton={"url": url, "backoff_max_ms": 200.0})
    plan = Plan((), (), (1, 2, 4, 8), samples=CAMERA_SAMPLES, server_pid=pid, swaps=3)
    plans = [
        replace(plan, models=(FACES.name,), shapes=(FACES.shape[:2],), loads=True, load_beside=CLASSES.name),
        replace(plan, models=(CLASSES.name,), shapes=(CLASSES.shape[:2],), batches=(1, MOST_FRAMES)),
        replace(plan, models=(EXTRA.name,), batches=(1, MOST_FRAMES), samples=NET_SAMPLES),
        replace(plan, models=tuple(net.name for net in NETS), batches=SETS[-1].batches, samples=NET_SAMPLES, swaps=1),
    ]
    found = [(await measure(each, settings, device_name(), _progress)).profile for each in plans]
    whole = replace(
        found[0],
        entries=tuple(entry for profile in found for entry in profile.entries),
        models=tuple(model for profile in found for model in profile.models),
    )
    return whole.to_dict()


def _progress(what: str, _samples: int) -> None:
    if what:
        _say(f"profile: {what}")


async def benchmark(triton: EmbeddedTriton, results: Results, arguments: argparse.Namespace) -> None:
    """Take the parts that were asked for; what is in `results` is not measured again."""
    url, seconds, only = triton.grpc_url, arguments.seconds, arguments.only
    profile = Profile.from_dict(await results.once("profile", lambda: profiled(url, triton.pid)))
    swaps = 2 * max(2, round(seconds / 6))
    if "worst_case" in only:
        await results.once("worst_case", lambda: measure_worst_case(url, profile, _say, swaps=swaps))
    if "policies" in only:
        await results.once("policies", lambda: measure_policies(url, profile, _say, seconds=seconds))
    if "pinned" in only:
        pairs = arguments.pairs
        await results.once("pinned", lambda: measure_pinned(url, profile, _say, seconds=seconds / 2, pairs=pairs))
    if "cells" in only:
        await Cells(url, profile, results, _say, seconds, arguments.seeds).measure()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Swapping on a real Triton.")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; repeat for several")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a run of a cell; others go with it")
    parser.add_argument(
        "--seeds", type=int, default=len(SEEDS), choices=range(1, len(SEEDS) + 1), help="runs of a cell"
    )
    parser.add_argument("--pairs", type=int, default=5, help="of the pinned stream's runs")
    parser.add_argument("--chaos-seconds", type=float, default=CHAOS_S)
    parser.add_argument("--out", type=Path, default=Path("run/swap"), help="figures and pictures")
    parser.add_argument("--repository", type=Path, default=Path("run/swap-models"), help="where the models go")
    parser.add_argument("--resume", action="store_true", help="go on with the figures in --out")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    arguments.only = arguments.only or list(PARTS)
    results = Results(arguments.out / "results.json", resume=arguments.resume)
    lengths = {name: getattr(arguments, name) for name in ("seconds", "pairs", "chaos_seconds")}
    if results.get("lengths") not in (None, lengths):
        parser.error(f"the run in {arguments.out} is another one: {results['lengths']}")
    results.keep("lengths", lengths)
    repository = make_repository(arguments.repository)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "triton.log"
        if set(arguments.only) != {"chaos"}:
            with EmbeddedTriton(repository, log, intra_op_threads=1) as triton:
                uvloop.run(benchmark(triton, results, arguments))
        if "chaos" in arguments.only and "chaos" not in results:
            results.keep("chaos", measure_chaos(Path(folder), repository, _say, seconds=arguments.chaos_seconds))
    for line in [*lines(results), *(f"drawn: {file}" for file in draw(results, arguments.out))]:
        _say(line)
    if arguments.json:
        sys.stdout.write(json.dumps(figures(results)) + "\n")


if __name__ == "__main__":
    main()
