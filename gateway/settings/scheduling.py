"""The engine: promised frames, and those without a promise."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gateway.settings.group import Group


class SchedulingSettings(Group):
    """The engine: windows, dispatch and admission. See ``docs/guide.md``."""

    early_dispatch: bool = Field(True, description="On an idle device, send waiting frames before their joint.")
    job_deadline: Literal["frame", "window"] = Field(
        "frame", description="A job's deadline: its frames' earliest, or the paper's joint + window."
    )
    admission_test: Literal["auto", "exact", "sporadic"] = Field(
        "auto",
        description="`exact` follows every frame, or the schedule until it repeats; `sporadic` holds for any phase, "
        "drift and jitter within the contracts; `auto`: exact while every stream is finite, else sporadic.",
    )
    max_horizon_frames: int = Field(
        100_000, ge=100, le=1_000_000, description="The most frames that the exact test follows."
    )
    guard: bool = Field(
        True,
        description="Dispatch by the plan of the exact test. Off: plain EDF, under which an admitted set can miss.",
    )
    dispatch_overhead_ms: float = Field(
        0.0, ge=0, le=1_000, allow_inf_nan=False, description="Added to every profiled execution time."
    )
    send_ahead_ms: float = Field(
        3.0,
        ge=0,
        le=1_000,
        allow_inf_nan=False,
        description="How long before the usual end of the running job the next one is sent to Triton, so that the "
        "device does not wait for it. Only where the order cannot change by it, and Triton executes one job at a time "
        "(`triton.rate_limited`). 0: once it has ended.",
    )
    utilization_test: Literal["envelope", "deeprt"] = Field(
        "envelope", description="Phase 1: lower convex envelope of E(n), or the paper's formula."
    )
    adaptation: bool = Field(
        True, description="After an overrun, run the category at the next smaller profiled shape until it is paid back."
    )
    cold_after_ms: float = Field(
        500.0,
        ge=0,
        le=86_400_000,
        allow_inf_nan=False,
        description="An overrun on a device that was idle for so long is shown, not paid back.",
    )
    policing: bool = Field(
        True, description="Refuse frames beyond their stream's contract, or serve them as best effort; see `on_excess`."
    )
    default_jitter_ms: float = Field(
        10.0,
        ge=0,
        le=60_000,
        allow_inf_nan=False,
        description="Jitter of a stream that declares none, at most a quarter of its period: cameras and networks are "
        "never exact. Admission counts it and policing allows it.",
    )


class BestEffortSettings(Group):
    """Frames without a promise: streams of that class, what is demoted, and ``/v2`` calls without a deadline."""

    window_ms: float = Field(
        1_000.0, ge=0.1, le=60_000, allow_inf_nan=False, description="The window of best-effort categories."
    )
    blocking_ms: float = Field(
        0.0,
        ge=0,
        le=60_000,
        allow_inf_nan=False,
        description="Best-effort jobs of up to this length may hold up promised work even where no promised job is as "
        "long; admission allows for it.",
    )
    timeout_ms: float = Field(
        10_000.0,
        ge=1,
        le=3_600_000,
        allow_inf_nan=False,
        description="A `/v2` call that has not started by then is answered 504.",
    )
    max_waiting: int = Field(
        1_024, ge=1, le=1_000_000, description="Best-effort frames that may wait; beyond it they are refused with 503."
    )
    unprofiled_ms: float = Field(
        1_000.0,
        ge=0.1,
        le=3_600_000,
        allow_inf_nan=False,
        description="Execution time that is assumed of a `/v2` call that the profile does not cover.",
    )
