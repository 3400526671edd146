"""The demo's own quick profile: execution times on this machine, at sizes that this machine carries."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import uvloop

from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, Category
from gateway.demo.plan import (
    BATCHES,
    CARPHONE_SHAPE,
    MODEL,
    CameraPlan,
    Shape,
    cameras,
    carried,
    chosen,
    to_measure,
    utilization,
)
from gateway.demo.progress import DemoError, Progress
from gateway.runtime.profile_file import write_profile
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from gateway.zoo.registry import VERSION
from profiler.device import device_name
from profiler.quick import Plan, Report
from profiler.quick import measure as measure_points

#: Enough for a 99th percentile that one stalled execution does not move.
SAMPLES = 120
#: On a slow machine, fewer: the plan is then made with 1.1 times the largest.
SAMPLES_WHEN_SLOW = 50
#: A frame of the carphone that takes longer than this makes a machine slow in this sense.
SLOW_MS = 25.0
#: A disturbance while measuring makes a machine look slow; the best of so many attempts counts.
ATTEMPTS = 3


def measure(
    repository: Path, profile_file: Path, triton_log: Path, progress: Progress
) -> tuple[dict[Shape, list[float]], list[CameraPlan]]:
    """Measure on a Triton of its own until the cameras are decided, and write the profile file.

    Blocks; call it from the main thread, which starts Triton.

    Returns:
        The planned times in ms of 1, 2, ... frames (`BATCHES`) by (height, width), and the cameras.

    Raises:
        DemoError: A point could not be measured.
        FramegateError: Triton could not be started.
    """
    with EmbeddedTriton(repository, triton_log) as triton:
        settings = Settings()
        group = settings.triton.model_copy(update=triton.settings)
        settings = settings.model_copy(update={"triton": group})
        best = _measure_once(settings, progress)
        for _ in range(ATTEMPTS - 1):
            if best.carries_all:
                break
            progress.say("  too slow for what is to be shown: measuring again, in case something disturbed it")
            best = min(best, _measure_once(settings, progress), key=lambda found: found.utilization)
    write_profile(profile_file, best.profile)
    return best.times, chosen(best.times)


@dataclass(frozen=True)
class _Measured:
    profile: Profile
    times: dict[Shape, list[float]]

    @property
    def utilization(self) -> float:
        return utilization(chosen(self.times), self.times)

    @property
    def carries_all(self) -> bool:
        plans = chosen(self.times)
        return carried(plans, self.times) and plans == cameras(plans[2].shape, plans[3].shape)


def _measure_once(settings: Settings, progress: Progress) -> _Measured:
    """Measure one set of shapes after the other until the cameras are decided."""
    profile = Profile()
    times: dict[Shape, list[float]] = {}
    while shapes := to_measure(times):
        slow = times.get(CARPHONE_SHAPE, [0.0])[0] > SLOW_MS
        plan = Plan((MODEL,), tuple(shapes), BATCHES, samples=SAMPLES_WHEN_SLOW if slow else SAMPLES)
        report: Report = uvloop.run(measure_points(plan, settings, device_name()))
        _check(report)
        profile = dataclasses.replace(report.profile, entries=profile.entries + report.profile.entries)
        times = {shape: planned_ms(profile, shape) for shape in [*times, *shapes]}
        shown = ", ".join(f"{height}x{width}: {times[height, width][0]:.1f} ms" for height, width in shapes)
        progress.say(f"  one frame, planned: {shown}")
    return _Measured(profile, times)


def planned_ms(profile: Profile, shape: Shape) -> list[float]:
    """Return the execution times of 1, 2, ... frames (`BATCHES`) that plans are made with, up to the largest job."""
    category = Category(MODEL, VERSION, (*shape, 3))
    largest = profile.max_batch(category)
    return [profile.execution_ns(category, batch) / NS_PER_MS for batch in BATCHES if batch <= largest]


def _check(report: Report) -> None:
    if report.failures:
        reasons = "; ".join(f"{point.shape} batch {point.batch}: {point.reason}" for point in report.failures)
        raise DemoError(f"execution times could not be measured: {reasons}")
