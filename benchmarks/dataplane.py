"""The frame path: what the gateway costs and carries, against what one would run instead.

``python -m benchmarks.dataplane --json``. Needs the extras `embedded` and `bench` (LitServe and mosec) and the load
generator `wrk` (``apt-get install wrk``); ``--arms`` can leave out the arms that need what is not there. Front ends
run on the first processor core, Triton, the workers of LitServe and mosec and all clients on the second, in every arm.
The model is Python and returns three values of a frame, in Triton and elsewhere (`frame_path.models`). Parts:

- `frames`: frames as fast as they are taken, at four sizes, round by round: every arm once a round, in an order that
  changes. Arms: `ceiling`, a raw ASGI route that reads the body and answers ``{}``; the gateway over HTTP (`http`) and
  over WebSockets (`ws`), with windows in place of early dispatch (but for 1 kB), so that batches are large;
  `http_early`, with the settings as they are shipped; `http_single`, with jobs of one frame; `ceiling_paced` and
  `http_single_paced`, the raw route and jobs of one frame at one and the same rate; `triton`, Triton's own
  HTTP front end with dynamic batching; `triton_two_cores`, the same with both cores for Triton; `litserve`; `mosec`.
  `wrk` sends HTTP. It knows no WebSockets: those are sent by `frame_path.sender`, and so is HTTP in `http_own_client`.
- `busy`: back-to-back jobs of a model that sleeps for 10 ms, and of one that sleeps for 1 ms, against `perf_analyzer`
  at concurrency 1; with the next job sent ahead of the end of the running one (`gateway`), and not (`gateway_in_turn`).
- `added`: latency that the gateway adds at low load.
- `ingest`: two ingest processes beside none, over HTTP and WebSockets: processor time of a frame in the scheduler and
  in the ingest processes, and the rates that these predict for 8 and 16 cores.
- `soak`: only with ``--soak-seconds``: memory, timers and the loop's lag at 90 % of the capacity.

All figures are kept in ``--out`` as they are found, and ``--resume`` goes on with them. The whole takes half an hour.

The last line of ``--json`` has the keys of `frame_path.report.figures`. A ratio is the median over the rounds of the
ratios within a round. ``cpu_ms``: processor time of the front end per frame, user and kernel, all of its threads, from
``/proc/<pid>/stat``; it equals seconds per thousand frames. ``beside_cpu_ms``: of the gateway's other processes.
``page_faults``: of the front end, per frame. The raw route gets the memory of its bodies from the system anew for some
frames or for all, as its allocator has it (20 to 37 faults a frame), and takes up to half as much again for it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.frame_path import models, wrk
from benchmarks.frame_path.added import measure_added
from benchmarks.frame_path.busy import measure_busy
from benchmarks.frame_path.ingest import measure_ingest
from benchmarks.frame_path.loads import LoadError
from benchmarks.frame_path.report import figures, lines
from benchmarks.frame_path.servers import Place, embedded_triton, missing_rivals
from benchmarks.frame_path.sizes import SIZES, by_name
from benchmarks.frame_path.soak import measure_soak
from benchmarks.frame_path.throughput import ARMS, Throughput
from benchmarks.swapping.results import Results
from profiler.device import device_name
from profiler.perf_analyzer import fetch, find

PARTS = ("frames", "busy", "added", "ingest", "soak")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The frame path against what one would run instead.")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; repeat for several")
    parser.add_argument("--sizes", nargs="+", choices=[size.name for size in SIZES], help="of frames; default: all")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="of the part frames")
    parser.add_argument("--seconds", type=int, default=5, help="length of a run")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each arm")
    parser.add_argument("--soak-seconds", type=float, default=0.0, help="length of the part soak; 600 for the budget")
    parser.add_argument("--out", type=Path, default=Path("run/dataplane"), help="figures")
    parser.add_argument("--resume", action="store_true", help="go on with the figures in --out")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    arguments = parser.parse_args()
    arguments.sizes = arguments.sizes or [size.name for size in SIZES]
    arguments.only = arguments.only or [part for part in PARTS if part != "soak" or arguments.soak_seconds]
    return arguments


def _prepare(arguments: argparse.Namespace) -> list[int]:
    """Check what is needed and return the processor cores. Raises `SystemExit` with what to do."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("two processor cores are needed: one for the front ends")
    if "frames" in arguments.only and (missing := missing_rivals(arguments.arms)):
        raise SystemExit(
            f"Not installed: {', '.join(missing)}. Either pip install -c constraints.txt '.[bench]', or name the arms "
            f"to measure: --arms {' '.join(arm for arm in ARMS if arm not in missing)}"
        )
    if {"frames", "busy", "ingest"} & set(arguments.only):
        wrk.find()
    return cores


def _measure(arguments: argparse.Namespace, results: Results, cores: list[int], folder: Path) -> None:
    only, rounds, seconds = arguments.only, arguments.rounds, arguments.seconds
    os.sched_setaffinity(0, {cores[1]})  # this process is one of the clients
    with ExitStack() as stack:
        names = [model.name for model in models.ALL]
        triton = stack.enter_context(embedded_triton(cores[1:], _made(folder / "triton"), *names))
        place = Place(cores[0], cores[1], triton, folder)
        if "frames" in only:
            with ExitStack() as wide_stack:
                wide = None
                if "triton_two_cores" in arguments.arms:
                    wide_folder = _made(folder / "wide")
                    wide = wide_stack.enter_context(embedded_triton(cores, wide_folder, models.BATCHED.name))
                frames = Throughput(place, wide, results, _say, seconds=seconds, rounds=rounds, arms=arguments.arms)
                frames.measure([by_name(name) for name in arguments.sizes])
        sleepers = {"busy": models.SLEEPER, "busy_1ms": models.NAPPER}
        if "busy" in only and any(key not in results for key in sleepers):
            tool = find() or fetch(_say)
            with embedded_triton(cores[1:], _made(folder / "other"), models.SLEEPER.name, models.NAPPER.name) as other:
                for key, model in sleepers.items():
                    if key in results:
                        continue
                    found = measure_busy(place, other, tool, _say, model=model, seconds=seconds, rounds=rounds)
                    results.keep(key, found)
        if "added" in only and "added" not in results:
            results.keep("added", measure_added(place, _say, seconds=2 * seconds, rounds=rounds))
        if "ingest" in only and "ingest" not in results:
            results.keep("ingest", measure_ingest(place, _say, seconds=seconds, rounds=rounds))
        if "soak" in only and "soak" not in results:
            results.keep("soak", measure_soak(place, _say, seconds=arguments.soak_seconds))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def main() -> None:
    """Print the figures."""
    arguments = _arguments()
    cores = _prepare(arguments)
    results = Results(arguments.out / "results.json", resume=arguments.resume)
    set_up = {"device": device_name(), "seconds": arguments.seconds, "rounds": arguments.rounds}
    if results.get("set_up") not in (None, set_up):
        raise SystemExit(f"The run in {arguments.out} is another one: {results['set_up']}")
    results.keep("set_up", set_up)
    with tempfile.TemporaryDirectory(prefix="framegate-dataplane-") as folder:
        try:
            _measure(arguments, results, cores, Path(folder))
        except LoadError as error:
            raise SystemExit(str(error)) from None
    for line in lines(results):
        _say(line)
    if arguments.json:
        sys.stdout.write(json.dumps(figures(results)) + "\n")


if __name__ == "__main__":
    main()
