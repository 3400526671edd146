"""How `framegate serve` listens."""

from __future__ import annotations

from pydantic import Field

from gateway.settings.group import MIB, Group


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
