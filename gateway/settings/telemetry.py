"""Metrics and logs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gateway.settings.group import Group


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
