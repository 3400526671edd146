"""The few switches that change what the engine decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.core.types import NS_PER_S, JobDeadline


class UtilizationTest(StrEnum):
    """Which formula Phase 1 of admission uses."""

    #: The lower convex envelope at the unrounded mean: refuses nothing that can be scheduled.
    ENVELOPE = "envelope"
    #: DeepRT's own: E at the floor of the mean. It can refuse feasible sets.
    DEEPRT = "deeprt"


class AdmissionTest(StrEnum):
    """Which Phase 2 decides."""

    #: Exact while every stream is finite; sporadic once an unbounded one is among them, or too many frames.
    AUTO = "auto"
    #: Follow every frame: to the end of finite streams, through the hyperperiod of unbounded ones.
    EXACT = "exact"
    #: The demand bound, which holds for any phase, drift and jitter within the contracts.
    SPORADIC = "sporadic"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine, fixed for its life.

    Attributes:
        early_dispatch: Send waiting frames before their joint while the device is idle and nothing is ready.
        job_deadline: The earliest of the frames' own deadlines, or the paper's joint + window.
        max_horizon_frames: The most frames that the exact test follows; usually 0.2 us of admission time each.
        admission_test: Which Phase 2 decides.
        guard: Keep the plan of the exact test and dispatch by it; without, plain EDF (the paper), under which an
            admitted set can miss.
        policing: Hold streams to their contracts. Without, frames beyond them are taken like others: with the guard a
            stream that sends them harms only itself, under the sporadic test nothing holds it back.
        best_effort_window_ns: The window of best-effort categories.
        best_effort_blocking_ns: Best-effort jobs of up to this length may hold up promised work even where no promised
            job is as long; admission allows for it.
        best_effort_max_waiting: Best-effort frames that may wait; further ones are refused.
        adaptation: Run a category at the next smaller profiled shape while it has a penalty to pay back.
        cold_after_ns: The overrun of a job that began on a device idle for so long is not held against its category:
            clocks go down meanwhile, and smaller frames would not bring them up.
        dispatch_overhead_ns: Added to every profiled execution time.
        utilization_test: Formula of Phase 1.

    Raises:
        ValueError: A frame count or a window below 1, a negative overhead, or an unknown word.
    """

    early_dispatch: bool = True
    job_deadline: JobDeadline = JobDeadline.FRAME
    max_horizon_frames: int = 100_000
    admission_test: AdmissionTest = AdmissionTest.AUTO
    guard: bool = True
    policing: bool = True
    best_effort_window_ns: int = NS_PER_S
    best_effort_blocking_ns: int = 0
    best_effort_max_waiting: int = 1_024
    adaptation: bool = True
    cold_after_ns: int = NS_PER_S // 2
    dispatch_overhead_ns: int = 0
    utilization_test: UtilizationTest = UtilizationTest.ENVELOPE

    def __post_init__(self) -> None:
        """Check the bounds; plain strings are taken for the words that they are."""
        object.__setattr__(self, "job_deadline", JobDeadline(self.job_deadline))
        object.__setattr__(self, "utilization_test", UtilizationTest(self.utilization_test))
        object.__setattr__(self, "admission_test", AdmissionTest(self.admission_test))
        for name, value, least in (
            ("best_effort_window_ns", self.best_effort_window_ns, 1),
            ("max_horizon_frames", self.max_horizon_frames, 1),
            ("dispatch_overhead_ns", self.dispatch_overhead_ns, 0),
            ("best_effort_blocking_ns", self.best_effort_blocking_ns, 0),
            ("cold_after_ns", self.cold_after_ns, 0),
            ("best_effort_max_waiting", self.best_effort_max_waiting, 1),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
