"""What is said to Triton and by it, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class BackendError(Exception):
    """Triton refused, failed or could not be reached.

    Attributes:
        message: Triton's own words, or gRPC's when there was no answer.
        code: The gRPC status, for example ``NOT_FOUND``; empty when the client itself refused.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    @property
    def unreachable(self) -> bool:
        """Whether there was no answer at all: no connection, or it broke under the call."""
        return self.code == "UNAVAILABLE"

    @property
    def timed_out(self) -> bool:
        """Whether the time given to a control call ran out."""
        return self.code == "DEADLINE_EXCEEDED"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Triton's own metadata."""

    name: str
    version: str
    extensions: frozenset[str]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output of a model.

    Attributes:
        name: Triton's name.
        datatype: Triton's datatype, for example ``UINT8``.
        shape: Without the batch axis; -1 is free.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What Triton says about one version of a model.

    Attributes:
        version: The version that this describes.
        versions: All versions that are served now.
        max_batch_size: 0 for a model without a batch axis.
    """

    name: str
    version: str
    versions: tuple[str, ...]
    platform: str
    max_batch_size: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


@dataclass(frozen=True, slots=True)
class ModelState:
    """One line of the model repository's index.

    Attributes:
        version: Empty while no version is loaded.
        state: ``ready``, ``loading``, ``unloading``, ``unavailable``, ``absent`` (never loaded), or
            ``failed`` (the gateway tried and could not).
        reason: Triton's words when it is not ready.
    """

    name: str
    version: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class InSharedMemory:
    """Where an input tensor lies in a region that Triton has opened."""

    region: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class InferenceCall:
    """One batch for one model with one input.

    Attributes:
        shape: Of the tensor as sent, batch axis included if the model has one.
        data: Its place in shared memory, or its bytes in C order.
    """

    model: str
    version: str
    input_name: str
    datatype: str
    shape: tuple[int, ...]
    data: InSharedMemory | memoryview
    request_id: str = ""


def latest(versions: Sequence[str]) -> str:
    """Return the highest version, as Triton chooses its default; empty if there is none."""
    return max(versions, key=lambda v: (int(v) if v.isdecimal() else -1, v), default="")
