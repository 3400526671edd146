"""The Triton behind the gateway, its own or an embedded one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator

from gateway.settings.group import ADDRESS, MAX_PORT, MIB, Group


class SharedMemory(StrEnum):
    """How frames reach Triton."""

    #: System shared memory if Triton can open the gateway's region, else inside the message.
    AUTO = "auto"
    #: Always inside the gRPC message (a Triton on another host).
    OFF = "off"


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
        found = ADDRESS.fullmatch(value)
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
