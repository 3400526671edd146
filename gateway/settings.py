"""All configuration, in one nested place.

Every field can be set by an environment variable: the prefix ``FRAMEGATE_``, then the path with ``__``
between group and field, in any case::

    FRAMEGATE_PROFILE=profiles/box.json
    FRAMEGATE_TRITON__URL=10.0.0.5:8001
    FRAMEGATE_SCHEDULING__EARLY_DISPATCH=false
    FRAMEGATE_MODELS=centerface,resnet50

Arguments of `Settings` win over the environment. Nothing is read at import: build a `Settings` where the
process starts and hand it on. Units are in the names: ``_ms`` and ``_s`` are times, ``_bytes`` sizes.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

if TYPE_CHECKING:
    from gateway.core.config import EngineConfig

MIB = 1 << 20
MAX_PORT = 65_535
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
#: host:port; a name, an IPv4 address or an IPv6 address in brackets.
_ADDRESS = re.compile(r"(?:[\w.-]+|\[[\w:.%]+\]):(\d{1,10})", re.ASCII)


class SharedMemory(StrEnum):
    """How frames reach Triton."""

    #: System shared memory if Triton can open the gateway's region, else inside the message.
    AUTO = "auto"
    #: Always inside the gRPC message (a Triton on another host).
    OFF = "off"


class Group(BaseModel):
    """A group of settings: typing errors in names are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(Group):
    """The HTTP listener of ``framegate serve``."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on. There is no authentication yet.")
    port: int = Field(8000, ge=0, le=65_535, description="TCP port; 0 takes a free one.")
    keep_alive_s: int = Field(
        75, ge=1, le=3600, description="Idle time after which a connection is closed: longer than slow cameras pause."
    )
    heartbeat_s: float = Field(
        15.0,
        ge=0.1,
        le=3600,
        allow_inf_nan=False,
        description="An event stream that is silent for so long carries a comment; a WebSocket is asked by a ping, and "
        "closed if nothing comes for as long again.",
    )
    shutdown_grace_s: int = Field(
        5, ge=1, le=600, description="How long requests in flight may go on after SIGTERM before they are cut off."
    )
    backlog: int = Field(2048, ge=16, le=65_535, description="Connections that may wait to be accepted.")
    access_log: bool = Field(
        False, description="One log line per request. Off: at camera rates it costs more than it tells."
    )
    ingest_workers: int = Field(
        0,
        ge=0,
        le=64,
        description="Processes that take HTTP and WebSockets and hand frames to the scheduler; 0: it takes them "
        "itself. See `docs/guide.md`.",
    )
    ingest_staging_bytes: int = Field(
        64 * MIB,
        ge=1024,
        le=1 << 40,
        description="Memory of each ingest process for bodies that the scheduler has not taken yet; at least "
        "`limits.max_body_bytes`.",
    )


class TritonSettings(Group):
    """The Triton that runs the models."""

    url: str = Field("127.0.0.1:8001", min_length=1, description="host:port of Triton's gRPC endpoint.")
    http_url: str = Field(
        "",
        description="host:port of the same Triton's HTTP endpoint, over which calls whose frames lie in shared memory "
        "cost less; empty: that of the embedded Triton, else none, and all goes over gRPC.",
    )
    shared_memory: SharedMemory = Field(
        SharedMemory.AUTO, description="`auto`: shared memory if Triton can open it, else in the message; `off`: never."
    )
    call_timeout_ms: float = Field(
        30_000,
        ge=10,
        le=3_600_000,
        allow_inf_nan=False,
        description="Limit of one call; a job that takes longer failed.",
    )
    connect_timeout_ms: float = Field(
        1_000.0, ge=10, le=60_000, allow_inf_nan=False, description="Limit of one health probe while Triton is away."
    )
    backoff_max_ms: float = Field(
        2_000.0,
        ge=10,
        le=60_000,
        allow_inf_nan=False,
        description="Longest pause between two attempts to reach Triton.",
    )
    rate_limited: bool = Field(
        False,
        description="It was started with `--rate-limit=execution_count`, so that models whose instances ask for one "
        "global resource never execute at once; then a job may wait there for the running one. Known of the embedded "
        "Triton; of another it cannot be seen.",
    )
    max_message_bytes: int = Field(
        256 * MIB,
        ge=MIB,
        le=2_147_483_647,
        description="Largest message, both ways, when tensors travel inside it.",
    )

    @field_validator("url", "http_url")
    @classmethod
    def _host_and_port(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.field_name == "http_url":
            return value
        found = _ADDRESS.fullmatch(value)
        if found is None:
            port = 8000 if info.field_name == "http_url" else 8001
            raise ValueError(f"{value!r} is not host:port, as in 127.0.0.1:{port}; there is no scheme and no path")
        if not 0 < int(found[1]) <= MAX_PORT:
            raise ValueError(f"{found[1]} is not a TCP port from 1 to {MAX_PORT}")
        return value


class EmbeddedSettings(Group):
    """The tritonserver that ``framegate serve --embedded`` starts."""

    enabled: bool = Field(False, description="Start a Triton of our own instead of using `triton.url`.")
    model_repository: Path = Field(Path("model_repository"), description="Triton's model repository.")
    log_file: Path = Field(Path("run/triton.log"), description="Where Triton's output goes.")
    intra_op_threads: int = Field(0, ge=0, le=1024, description="Threads of one model execution; 0: all cores.")
    start_timeout_s: float = Field(60.0, ge=1, le=3600, allow_inf_nan=False, description="Limit from start to ready.")


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


class ResidencySettings(Group):
    """Which models may be in accelerator memory at one time, and how they come and go. See ``docs/guide.md``."""

    budget_bytes: int | None = Field(
        None,
        ge=1,
        le=1 << 50,
        description="Memory that all loaded models may hold together, by the profile's sizes; none: models are loaded "
        "at the start and stay.",
    )
    max_models: int | None = Field(
        None, ge=1, le=10_000, description="Instead of `budget_bytes`: how many models may be loaded at one time."
    )
    headroom_bytes: int = Field(
        0,
        ge=0,
        le=1 << 50,
        description="What may be held beyond `budget_bytes` while models that are unloading still hold their memory.",
    )
    headroom_models: int = Field(
        0, ge=0, le=1_000, description="The same beyond `max_models`: 1 loads a model while another one unloads."
    )
    replacement: Literal["next_use", "lru"] = Field(
        "next_use",
        description="Which idle model goes: the one whose next frame is furthest away, or the least recently used.",
    )
    prefetch: bool = Field(True, description="Load a model when the first frame of a window comes, not at its joint.")
    interference: float = Field(
        1.7,
        ge=1,
        le=100,
        allow_inf_nan=False,
        description="How many times longer executions take beside a load, for models of which that was not profiled. "
        "Admission counts it where models may come and go.",
    )
    warm_up_factor: float = Field(
        3.0,
        ge=1,
        le=1_000,
        allow_inf_nan=False,
        description="How many times longer a first execution after a load takes, where that was not profiled.",
    )
    load_timeout_s: float = Field(
        120.0,
        gt=0,
        le=3_600,
        allow_inf_nan=False,
        description="A model that is not loaded by then has failed. Its memory counts as held until Triton has ended "
        "the load and unloaded it, but for the unload time-out at most.",
    )
    unload_timeout_s: float = Field(
        30.0,
        gt=0,
        le=3_600,
        allow_inf_nan=False,
        description="A model that Triton still lists then is taken to hold its memory.",
    )
    backoff_s: float = Field(
        1.0, ge=0.01, le=3_600, allow_inf_nan=False, description="Pause after a failed load; doubled with each."
    )
    backoff_max_s: float = Field(
        60.0, ge=0.01, le=86_400, allow_inf_nan=False, description="The longest pause between attempts."
    )
    measure: Literal["auto", "off"] = Field(
        "auto", description="Correct sizes by what Triton reports of its models and of the device's memory."
    )
    metrics_url: str = Field(
        "",
        description="Triton's metrics endpoint, for the device's memory; empty: that of the embedded Triton, if any.",
    )
    metrics_interval_s: float = Field(
        2.0,
        ge=0.01,
        le=3_600,
        allow_inf_nan=False,
        description="How old a figure from there may be: Triton's `--metrics-interval-ms`. An unload of a model that "
        "does not give its memory back is waited for that long.",
    )

    @field_validator("metrics_url")
    @classmethod
    def _page(cls, value: str) -> str:
        address = value.removeprefix("http://").partition("/")[0]
        if value and _ADDRESS.fullmatch(address) is None:
            raise ValueError(f"{value!r} is not of the form host:port or http://host:port/metrics")
        return value

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        """A budget is in bytes or in models; the headroom goes with it."""
        if self.budget_bytes is not None and self.max_models is not None:
            raise ValueError("give budget_bytes or max_models, not both")
        if self.headroom_bytes and self.budget_bytes is None:
            raise ValueError("headroom_bytes goes with budget_bytes")
        if self.headroom_models and self.max_models is None:
            raise ValueError("headroom_models goes with max_models")
        if self.backoff_s > self.backoff_max_s:
            raise ValueError("backoff_s is more than backoff_max_s")
        return self


class ArenaSettings(Group):
    """The shared-memory region that frames are received into."""

    bytes: int = Field(256 * MIB, ge=4096, le=1 << 40, description="Size of the region; reserved at start.")
    lock: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Keep it from being swapped out: `auto`, where the limit of locked memory (`ulimit -l`) allows it; "
        "`on`: or do not start.",
    )
    huge_pages: Literal["auto", "off"] = Field(
        "auto",
        description="Huge pages where the system allows them: `/dev/shm` mounted with `huge=advise`, `within_size` or "
        "`always`. The log of the start and `framegate_arena_huge_bytes` say what came of it.",
    )


class LimitsSettings(Group):
    """Bounds of everything that a caller could make grow."""

    max_body_bytes: int = Field(64 * MIB, ge=1024, le=1 << 32, description="Largest body of a frames call.")
    max_json_bytes: int = Field(64 * 1024, ge=1024, le=16 * MIB, description="Largest body of every other call.")
    max_tensor_json_bytes: int = Field(
        4 * MIB,
        ge=1024,
        le=64 * MIB,
        description="Largest JSON of a `/v2` infer call; tensors as binary data count towards `max_body_bytes` only.",
    )
    max_bytes_elements: int = Field(
        1 << 20,
        ge=1,
        le=1 << 30,
        description="Elements of a `/v2` infer call's BYTES inputs together: each has to be looked at.",
    )
    inflight_body_bytes: int = Field(
        256 * MIB,
        ge=1024,
        le=1 << 40,
        description="All bodies that are being read at one time; at least one of the largest must fit.",
    )
    upload_timeout_ms: float = Field(
        30_000.0,
        ge=10,
        le=3_600_000,
        allow_inf_nan=False,
        description="From a call's headers to the end of its body; as long for the headers themselves.",
    )
    send_timeout_ms: float = Field(
        30_000.0,
        ge=10,
        le=3_600_000,
        allow_inf_nan=False,
        description="A client that takes nothing of its answer for so long is cut off.",
    )
    max_streams: int = Field(1_000, ge=1, le=100_000, description="Streams admitted at one time.")
    idle_stream_s: float = Field(
        600.0,
        ge=0,
        le=31_536_000,
        allow_inf_nan=False,
        description="A stream of which nothing came for so long, and for two of its periods, is closed: its camera has "
        "gone, and what it reserves is others' again. 0: never.",
    )
    max_frames_per_post: int = Field(1_024, ge=1, le=65_536, description="Frames in one body.")
    max_unanswered: int = Field(
        64,
        ge=1,
        le=65_536,
        description="Messages of one WebSocket without an answer, after which no more are read; or as many as the "
        "stream's contract lets be under way, if that is more.",
    )
    unread_bytes: int = Field(
        64 * MIB,
        ge=1024,
        le=1 << 40,
        description="Outputs that wait for the clients of WebSockets, all together; beyond it the client that has "
        "taken nothing for longest is cut off.",
    )
    results_kept: int = Field(256, ge=1, le=65_536, description="Ended frames kept per stream for the long poll.")
    results_kept_bytes: int = Field(
        64 * MIB,
        ge=0,
        le=1 << 40,
        description="Outputs of the frames that are kept, over all streams; the oldest go first.",
    )
    closed_streams_kept: int = Field(256, ge=0, le=65_536, description="Ended streams that can still be looked at.")
    long_poll_max_ms: float = Field(
        30_000.0, ge=0, le=600_000, allow_inf_nan=False, description="Longest wait of `GET .../results`."
    )

    @model_validator(mode="after")
    def _largest_body_fits(self) -> Self:
        if self.inflight_body_bytes < max(self.max_body_bytes, self.max_json_bytes):
            raise ValueError("inflight_body_bytes must not be below max_body_bytes and max_json_bytes")
        return self


class TelemetrySettings(Group):
    """Metrics and logs."""

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Of the gateway's own log.")
    log_format: Literal["text", "json"] = Field("text", description="One line per event, either way.")
    log_queue: int = Field(
        1_000,
        ge=10,
        le=1_000_000,
        description="Lines of the log that may wait to be written; beyond that they are dropped, counted.",
    )
    decision_log_queue: int = Field(
        10_000,
        ge=100,
        le=10_000_000,
        description="Entries that may wait to be written; beyond that they are dropped, counted.",
    )


class Settings(BaseSettings):
    """Everything that can be set; see the module docstring for the environment variables."""

    model_config = SettingsConfigDict(
        env_prefix="FRAMEGATE_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    profile: Path | None = Field(None, description="The profile file: execution times of models on this device.")
    models: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Models to load and serve; empty: all that the profile names. Comma-separated.",
    )
    decision_log: Path | None = Field(
        None, description="Write every decision of the engine to this file, as JSON lines."
    )
    fault_injection: bool = Field(
        False, description="Take delays for coming jobs at `POST /v1/faults`; for experiments only."
    )

    server: ServerSettings = ServerSettings()
    triton: TritonSettings = TritonSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    best_effort: BestEffortSettings = BestEffortSettings()
    residency: ResidencySettings = ResidencySettings()
    arena: ArenaSettings = ArenaSettings()
    limits: LimitsSettings = LimitsSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @field_validator("models", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        """Accept ``a,b`` as well as a list."""
        if isinstance(value, str):
            return [name.strip() for name in value.split(",") if name.strip()]
        return value

    def engine_config(self) -> EngineConfig:
        """Return the scheduling group as the engine's own configuration, in nanoseconds."""
        from gateway.core.config import (
            AdmissionTest,
            EngineConfig,
            Replacement,
            ResidencyConfig,
            UtilizationTest,
        )  # inside: settings is a leaf, only drivers need the engine
        from gateway.core.types import JobDeadline

        group = self.scheduling
        return EngineConfig(
            early_dispatch=group.early_dispatch,
            job_deadline=JobDeadline(group.job_deadline),
            max_horizon_frames=group.max_horizon_frames,
            admission_test=AdmissionTest(group.admission_test),
            guard=group.guard,
            policing=group.policing,
            dispatch_overhead_ns=round(group.dispatch_overhead_ms * NS_PER_MS),
            send_ahead_ns=round(group.send_ahead_ms * NS_PER_MS),
            utilization_test=UtilizationTest(group.utilization_test),
            adaptation=group.adaptation,
            cold_after_ns=round(group.cold_after_ms * NS_PER_MS),
            best_effort_window_ns=round(self.best_effort.window_ms * NS_PER_MS),
            best_effort_blocking_ns=round(self.best_effort.blocking_ms * NS_PER_MS),
            best_effort_max_waiting=self.best_effort.max_waiting,
            residency=ResidencyConfig(
                budget_bytes=self.residency.budget_bytes,
                max_models=self.residency.max_models,
                headroom_bytes=self.residency.headroom_bytes,
                headroom_models=self.residency.headroom_models,
                replacement=Replacement(self.residency.replacement),
                prefetch=self.residency.prefetch,
                interference=self.residency.interference,
                warm_up_factor=self.residency.warm_up_factor,
                backoff_ns=round(self.residency.backoff_s * NS_PER_S),
                longest_backoff_ns=round(self.residency.backoff_max_s * NS_PER_S),
            ),
        )
