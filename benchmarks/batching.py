"""How large batches get, by how busy the device is: early dispatch against waiting for joints.

``python -m benchmarks.batching --json``. One category of equal cameras on the simulator: a device that takes 4 ms
for one frame and 1.6 ms for each further one (to 16), executions drawn from [0.8, 1] of that. Cameras are added until
the device is as busy as asked; what is printed is measured, not planned. The cameras are finite, so the exact test
admits them and the guard keeps its plan.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from typing import Any

from gateway.core.config import EngineConfig
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import NS_PER_MS, NS_PER_S, StreamSpec
from gateway.sim.driver import simulate
from gateway.sim.execution import uniform
from gateway.sim.report import SimulationReport
from gateway.sim.trace import TraceEntry

BUSY = (0.30, 0.70, 0.95)
_SHAPE = (160, 192, 3)
_FIRST_MS, _NEXT_MS, _LARGEST = 4.0, 1.6, 16
_PERIOD_MS, _DEADLINE_MS = 100, 200
_SECONDS = 20


def _profile() -> Profile:
    times = {n: _FIRST_MS + _NEXT_MS * (n - 1) for n in range(1, _LARGEST + 1)}
    return Profile(tuple(ProfileEntry("m", "1", _SHAPE, "UINT8", n, 1000, ms, ms, ms) for n, ms in times.items()))


def _run(cameras: int, *, early: bool) -> SimulationReport:
    rng = random.Random(cameras)
    trace = [
        TraceEntry(
            f"stream-{n}",
            0,
            StreamSpec(
                "m",
                "1",
                _SHAPE,
                # Half a per cent of spread: real cameras drift against each other.
                period_ns=round(_PERIOD_MS * rng.uniform(0.995, 1.005) * NS_PER_MS),
                deadline_ns=_DEADLINE_MS * NS_PER_MS,
                frames=_SECONDS * 1_000 // _PERIOD_MS,
                start_in_ns=round(rng.uniform(0, _PERIOD_MS) * NS_PER_MS),
            ),
        )
        for n in range(1, cameras + 1)
    ]
    config = EngineConfig(early_dispatch=early)
    return simulate(trace, _profile(), config, execution=uniform(0.8, 1), duration_ns=_SECONDS * NS_PER_S)


def measure(busy: float, *, early: bool) -> dict[str, Any]:
    """Return the figures at the fewest cameras that keep the device `busy`, or at the first that is refused."""
    low, high = 0, 1
    while _reaches(high, busy, early=early) is False:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _reaches(middle, busy, early=early) is False else (low, middle)
    report = _run(high, early=early)
    return {
        "asked_busy": busy,
        "early_dispatch": early,
        "cameras": report.admitted,
        "refused": report.refused,
        "busy": round(report.busy, 3),
        "mean_batch": round(report.mean_batch, 2),
        "miss_rate": round(report.miss_rate, 5),
        "p50_latency_ms": None if report.p50_latency_ms is None else round(report.p50_latency_ms, 1),
        "p99_latency_ms": None if report.p99_latency_ms is None else round(report.p99_latency_ms, 1),
    }


def _reaches(cameras: int, busy: float, *, early: bool) -> bool | None:
    """Whether the device is that busy; None when it never will be, since cameras are refused."""
    report = _run(cameras, early=early)
    if report.busy >= busy:
        return True
    return None if report.refused else False


def main(argv: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON array instead of lines")
    arguments = parser.parse_args(argv)
    rows = [measure(busy, early=early) for early in (True, False) for busy in BUSY]
    lines = [json.dumps(rows)] if arguments.json else [json.dumps(row) for row in rows]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
