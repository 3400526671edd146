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


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine, fixed for its life.

    Attributes:
        early_dispatch: Send waiting frames before their joint while the device is idle and nothing is ready.
        job_deadline: The earliest of the frames' own deadlines, or the paper's joint + window.
        horizon_ns: How far ahead Phase 2 looks while an unbounded stream is among those tested.
        max_horizon_frames: The most frames Phase 2 looks at; about 1 us of admission time each.
        dispatch_overhead_ns: Added to every profiled execution time.
        utilization_test: Formula of Phase 1.

    Raises:
        ValueError: A horizon or a frame count below 1, a negative overhead, or an unknown word.
    """

    early_dispatch: bool = True
    job_deadline: JobDeadline = JobDeadline.FRAME
    horizon_ns: int = 10 * NS_PER_S
    max_horizon_frames: int = 20_000
    dispatch_overhead_ns: int = 0
    utilization_test: UtilizationTest = UtilizationTest.ENVELOPE

    def __post_init__(self) -> None:
        """Check the bounds; plain strings are taken for the words that they are."""
        object.__setattr__(self, "job_deadline", JobDeadline(self.job_deadline))
        object.__setattr__(self, "utilization_test", UtilizationTest(self.utilization_test))
        for name, value, least in (
            ("horizon_ns", self.horizon_ns, 1),
            ("max_horizon_frames", self.max_horizon_frames, 1),
            ("dispatch_overhead_ns", self.dispatch_overhead_ns, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
