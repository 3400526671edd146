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

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gateway.settings.arena import ArenaSettings
from gateway.settings.group import NS_PER_MS, NS_PER_S, Group
from gateway.settings.limits import LimitsSettings
from gateway.settings.residency import ResidencySettings
from gateway.settings.scheduling import BestEffortSettings, SchedulingSettings
from gateway.settings.server import ServerSettings
from gateway.settings.telemetry import TelemetrySettings
from gateway.settings.triton import EmbeddedSettings, SharedMemory, TritonSettings

if TYPE_CHECKING:
    from gateway.core.config import EngineConfig

__all__ = [
    "ArenaSettings",
    "BestEffortSettings",
    "EmbeddedSettings",
    "Group",
    "LimitsSettings",
    "ResidencySettings",
    "SchedulingSettings",
    "ServerSettings",
    "Settings",
    "SharedMemory",
    "TelemetrySettings",
    "TritonSettings",
]


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
