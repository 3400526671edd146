"""Bounds of everything that a caller could make grow."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from gateway.settings.group import MIB, Group


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
