"""What adaptation is worth: DeepRT's Figure 10, in the simulator and on a real Triton.

``python -m benchmarks.adaptation [--json] [--simulated-only]``. Five jobs in a row are delayed by 100, 200, 500 or
1000 ms, and the frames that miss their deadlines are counted, with adaptation and without. Cameras are as in the
paper: period and deadline are independent Gamma draws (k = 2) with a mean of 200 ms, and all frames are served however
late they are. Cameras have an end, so that the exact test decides and its plan is followed; they come until ten in a
row are refused, so that the device is as full as admission lets it be.

- Simulator: ``profiles/synthetic-gpu.json``, which nobody has measured; three models at 224x224 and 160x160;
  executions take 80 to 100 % of the profiled time. One trace for each of `SEEDS`, `SIMULATED_S` seconds of frames; the
  first delayed job is that of second 5.
- Real Triton (extra `embedded`): mobilenet_v2 at 224x224, measured at the start by the quick profiler, with 128x128 to
  go down to; plans rest on 1.1 medians; means of 600 ms, as the paper takes for its slow device. The delays come 2 s
  after the first frames, through the request parameter that the embedded backends take for fault injection. 0 ms shows
  what is late without any delay.

The chart goes to ``docs/images/adaptation.png`` (``--image``).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks import synthetic_profile
from benchmarks.adaptation_live import DELAYS_MS, JOBS, MEAN_MS, MISSED, MODEL, REFUSALS, Say, draw, live, pair_of
from gateway.core.actions import Admitted
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import RegisterStream
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS
from gateway.runtime.profile_file import read_profile
from gateway.sim.driver import simulate
from gateway.sim.execution import delayed, uniform
from gateway.sim.report import SimulationReport
from gateway.sim.trace import TraceEntry
from gateway.triton.embedded import EmbeddedTriton
from gateway.zoo.build import build

SEEDS = (1, 2, 3, 4)
SIMULATED_S = 60
MODELS = ("mobilenet_v2", "resnet50", "centerface")
SIDES = (224, 160)
_FIRST_DELAYED_S = 5
_FASTEST = 0.8
_LIVE_S = 25.0


def full_trace(profile: Profile, seed: int, seconds: float) -> list[TraceEntry]:
    """Return the admitted cameras of one seed: all register at 0."""
    rng = random.Random(seed)
    engine = Engine(profile)
    trace: list[TraceEntry] = []
    refused = 0
    while refused < REFUSALS:
        entry = TraceEntry(f"camera-{len(trace)}", 0, draw(rng, MODELS, SIDES, MEAN_MS, seconds))
        actions = engine.handle(RegisterStream(entry.stream_id, entry.spec), 0)
        if any(isinstance(action, Admitted) for action in actions):
            trace.append(entry)
            refused = 0
        else:
            refused += 1
    return trace


def simulated_run(
    profile: Profile, trace: list[TraceEntry], seed: int, *, adaptation: bool, first: int, delay_ms: int
) -> SimulationReport:
    """Run one trace; `first` jobs start before the delayed ones."""
    execution = delayed(uniform(_FASTEST, seed), first, JOBS, delay_ms * NS_PER_MS)
    return simulate(trace, profile, EngineConfig(adaptation=adaptation), execution=execution)


def missed(report: SimulationReport) -> int:
    """Return how many frames missed their deadlines, or were never answered."""
    return sum(report.outcomes[outcome.value] for outcome in MISSED)


def simulated(profile: Profile, say: Say, seeds: Sequence[int] = SEEDS, seconds: float = SIMULATED_S) -> dict[str, Any]:
    """Return the figures of all seeds, and their sums by delay."""
    sums = {delay_ms: [0, 0] for delay_ms in DELAYS_MS}
    traces = []
    for seed in seeds:
        trace = full_trace(profile, seed, seconds)
        quiet = simulated_run(profile, trace, seed, adaptation=True, first=0, delay_ms=0)
        first = round(quiet.jobs * _FIRST_DELAYED_S / seconds)
        by_delay = {}
        for delay_ms in DELAYS_MS:
            pair = [
                missed(simulated_run(profile, trace, seed, adaptation=on, first=first, delay_ms=delay_ms))
                for on in (False, True)
            ]
            by_delay[str(delay_ms)] = pair_of(*pair)
            sums[delay_ms] = [total + count for total, count in zip(sums[delay_ms], pair, strict=True)]
        traces.append(
            {
                "seed": seed,
                "cameras": len(trace),
                "frames": quiet.frames,
                "busy": round(quiet.busy, 3),
                "missed_without_delay": missed(quiet),
                "missed": by_delay,
            }
        )
        say(f"simulated, seed {seed}: {len(trace)} cameras, {quiet.frames} frames, {by_delay}")
    return {
        "profile": profile.device,
        "seconds": seconds,
        "missed": {str(delay_ms): pair_of(*pair) for delay_ms, pair in sums.items()},
        "traces": traces,
    }


def chart(found: dict[str, Any], path: Path) -> None:
    """Draw missed frames by delay, a panel for each of the runs."""
    from matplotlib.figure import Figure

    panels = [
        (found[kind], title)
        for kind, title in (("simulated", "simulator, synthetic GPU"), ("triton", "real Triton on a CPU"))
        if kind in found
    ]
    figure = Figure(figsize=(4.6 * len(panels), 3.4), layout="constrained")
    for place, (run, title) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), place + 1)
        where = np.arange(len(DELAYS_MS))
        for shift, name, colour in ((-0.2, "without", "#9aa3ad"), (0.2, "with", "#1f77b4")):
            counts = [run["missed"][str(delay_ms)][name] for delay_ms in DELAYS_MS]
            bars = axes.bar(where + shift, counts, 0.4, color=colour, label=f"{name} adaptation")
            axes.bar_label(bars, fontsize=7)
        axes.set_xticks(where, [str(delay_ms) for delay_ms in DELAYS_MS])
        axes.set_xlabel(f"delay of {JOBS} jobs in a row, ms each")
        axes.set_ylabel("frames that missed their deadlines")
        axes.set_title(title, fontsize=10)
        axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the figures and draw the chart."""
    parser = argparse.ArgumentParser(description="Deadline misses after delayed jobs, with and without adaptation.")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--simulated-only", action="store_true", help="leave the real Triton out")
    parser.add_argument("--seconds", type=float, default=_LIVE_S, help="length of each run on the real Triton")
    parser.add_argument("--image", type=Path, default=None, help="where to draw the chart")
    arguments = parser.parse_args()

    def say(line: str) -> None:
        sys.stderr.write(line + "\n")

    found: dict[str, Any] = {"jobs": JOBS, "simulated": simulated(read_profile(synthetic_profile.PATH), say)}
    if not arguments.simulated_only:
        repository = Path("model_repository")
        build(MODEL, repository)
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "triton.log"
            with EmbeddedTriton(repository, log, fault_injection=True) as triton:
                found["triton"] = uvloop.run(live(triton, arguments.seconds, say))
    image = arguments.image or (None if arguments.simulated_only else Path("docs/images/adaptation.png"))
    if image is not None:
        chart(found, image)
    sys.stdout.write(json.dumps(found, indent=None if arguments.json else 2) + "\n")


if __name__ == "__main__":
    main()
