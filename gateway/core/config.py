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


class Replacement(StrEnum):
    """Which idle model has to go when another one needs its memory."""

    #: The one whose next frame is furthest away: periods and joints are known, so Belady's rule applies.
    NEXT_USE = "next_use"
    #: The one that was used least recently (Computron).
    LRU = "lru"


@dataclass(frozen=True, slots=True)
class ResidencyConfig:
    """Which models may be in a worker's memory, and how they come and go.

    Without a budget all models are taken to be resident unless something else is said of one, and nothing is loaded or
    unloaded but by command.

    Attributes:
        budget_bytes: Of all models together, by the profile's sizes; None: none in bytes.
        max_models: How many may be there; None: none in numbers. At most one of the two is given.
        headroom_bytes, headroom_models: What may be held beyond the budget while models that are unloading still hold
            their memory. 0: a load waits until there is room (strict).
        replacement: Which model goes.
        prefetch: Load a model when the first frame of a window comes, not at its joint.
        synchronous: Nothing runs while a model loads or unloads; for comparison only.
        interference: How many times longer executions take beside a load, for models of which it was not measured.
        warm_up_factor: How many times longer a first execution takes, likewise.
        backoff_ns, longest_backoff_ns: Pause after a failed load, doubled with each further one up to the longest.

    Raises:
        ValueError: Two budgets, one below 1, a headroom without its budget or negative, or a factor below 1.
    """

    budget_bytes: int | None = None
    max_models: int | None = None
    headroom_bytes: int = 0
    headroom_models: int = 0
    replacement: Replacement = Replacement.NEXT_USE
    prefetch: bool = True
    synchronous: bool = False
    interference: float = 1.7
    warm_up_factor: float = 3.0
    backoff_ns: int = NS_PER_S
    longest_backoff_ns: int = 60 * NS_PER_S

    def __post_init__(self) -> None:
        """Check the bounds; plain strings are taken for the words that they are."""
        object.__setattr__(self, "replacement", Replacement(self.replacement))
        if self.budget_bytes is not None and self.max_models is not None:
            raise ValueError("a budget is in bytes or in models, not both")
        for name, value in (("budget_bytes", self.budget_bytes), ("max_models", self.max_models)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name, value, budget in (
            ("headroom_bytes", self.headroom_bytes, self.budget_bytes),
            ("headroom_models", self.headroom_models, self.max_models),
        ):
            if value < 0 or (value and budget is None):
                raise ValueError(f"{name} must be at least 0 and goes with its budget, not {value}")
        for factor_name, factor in (("interference", self.interference), ("warm_up_factor", self.warm_up_factor)):
            if not factor >= 1:
                raise ValueError(f"{factor_name} must be at least 1, not {factor}")
        if not 1 <= self.backoff_ns <= self.longest_backoff_ns:
            raise ValueError(f"backoff_ns must lie in [1, {self.longest_backoff_ns}], not {self.backoff_ns}")

    @property
    def managed(self) -> bool:
        """Whether there is a budget."""
        return self.budget_bytes is not None or self.max_models is not None


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
        send_ahead_ns: How long before the usual end of the running job the next one is sent, where its place is certain
            (`gateway.core.ahead`); 0: once it has ended.
        utilization_test: Formula of Phase 1.
        residency: Which models may be in memory.

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
    send_ahead_ns: int = 0
    utilization_test: UtilizationTest = UtilizationTest.ENVELOPE
    residency: ResidencyConfig = ResidencyConfig()

    def __post_init__(self) -> None:
        """Check the bounds; plain strings are taken for the words that they are."""
        object.__setattr__(self, "job_deadline", JobDeadline(self.job_deadline))
        object.__setattr__(self, "utilization_test", UtilizationTest(self.utilization_test))
        object.__setattr__(self, "admission_test", AdmissionTest(self.admission_test))
        for name, value, least in (
            ("best_effort_window_ns", self.best_effort_window_ns, 1),
            ("max_horizon_frames", self.max_horizon_frames, 1),
            ("dispatch_overhead_ns", self.dispatch_overhead_ns, 0),
            ("send_ahead_ns", self.send_ahead_ns, 0),
            ("best_effort_blocking_ns", self.best_effort_blocking_ns, 0),
            ("cold_after_ns", self.cold_after_ns, 0),
            ("best_effort_max_waiting", self.best_effort_max_waiting, 1),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
