"""Which models may be in accelerator memory."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from gateway.settings.group import ADDRESS, Group


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
        if value and ADDRESS.fullmatch(address) is None:
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
