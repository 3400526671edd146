"""What is said to Triton and by it, as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

#: Names of `gateway.runtime.region`: whoever knows one could have Triton read other callers' frames.
_REGION = re.compile(r"framegate-\d+-[0-9a-f]{16}")
#: gRPC's words.
_TOO_LARGE = "message larger than max"
#: Triton's, of a version that comes or goes, with the very status of a broken connection; and of one that is not there.
_NOT_READY = "is not at ready state"
_VERSION_GONE = re.compile(rf"version \d+ is not found|version \d+ {_NOT_READY}")
#: Triton's, of outputs that do not go where a call wants them: they are larger, or the model has no such output.
_NO_SUCH_ROOM = re.compile(r"shared memory size specified with the request for output|unexpected inference output")
#: Triton's, without the name.
_NO_REGION = "Unable to find shared memory region: 'the frame arena'"
_LIMIT = "The limit is FRAMEGATE_TRITON__MAX_MESSAGE_BYTES"


class BackendError(Exception):
    """Triton refused, failed or could not be reached.

    Attributes:
        message: Triton's own words, or gRPC's when there was no answer, fit for callers: without the name of our
            shared memory, and with the setting's where a message was too large.
        code: The gRPC status, for example ``NOT_FOUND``; empty when the client itself refused.
    """

    def __init__(self, message: str, code: str = "") -> None:
        message = _REGION.sub("the frame arena", message.strip())
        if _TOO_LARGE in message and _LIMIT not in message:
            message = f"{message}. {_LIMIT}"
        super().__init__(message)
        self.message = message
        self.code = code

    @property
    def unreachable(self) -> bool:
        """Whether there was no answer at all: no connection, or it broke under the call."""
        return self.code == "UNAVAILABLE" and not self.not_served

    @property
    def version_gone(self) -> bool:
        """Whether Triton does not serve the version that was named; another one of that model it may."""
        return self.not_served and _VERSION_GONE.search(self.message) is not None

    @property
    def not_served(self) -> bool:
        """Whether Triton does not serve that version, or none of that model; it is there and serves others."""
        return self.code == "NOT_FOUND" or (self.code == "UNAVAILABLE" and _NOT_READY in self.message)

    @property
    def forgot_region(self) -> bool:
        """Whether Triton does not know our shared memory: it was restarted since it was set up."""
        return _NO_REGION in self.message

    @property
    def unfit_room(self) -> bool:
        """Whether the outputs do not fit the room that a call had for them; without one it can be run again."""
        return _NO_SUCH_ROOM.search(self.message) is not None

    @property
    def too_large(self) -> bool:
        """Whether Triton did answer, with more than a message may hold."""
        return _TOO_LARGE in self.message

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
        resources: What its instances ask the rate limiter for, and how much, if that is shared by all devices.
        serial: Each instance asks for some, and Triton forms no batches of its own.
    """

    name: str
    version: str
    versions: tuple[str, ...]
    platform: str
    max_batch_size: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    resources: tuple[tuple[str, int], ...] = ()
    serial: bool = False


@dataclass(frozen=True, slots=True)
class IndexEntry:
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


@dataclass(frozen=True, slots=True, eq=False)
class OutputLayout:
    """How the outputs of a batch lie in memory that Triton writes them to. Two are never equal.

    Attributes:
        places: Name -> (first byte, size in bytes) of each whose size is known before.
        others: Names of the others, which come in the answer.
        size: Bytes of all places together, gaps included.
    """

    places: Mapping[str, tuple[int, int]]
    others: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class OutputRoom:
    """Memory for the outputs of one call, in a region that Triton has opened.

    Attributes:
        region: Its name.
        block: The memory it lies in, as this process sees it.
        offset: Its first byte, in the region and in `block`.
        layout: What goes where in it.
    """

    region: str
    block: memoryview
    offset: int
    layout: OutputLayout

    def copy(self) -> bytes:
        """Return what is in it. No slice of it stays: a region can only be closed when nobody looks into it."""
        return bytes(self.block[self.offset : self.offset + self.layout.size])


NO_PARAMETERS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class InferenceCall:
    """One batch for one model with one input.

    Attributes:
        shape: Of the tensor as sent, batch axis included if the model has one.
        data: Its place in shared memory, or its bytes in C order.
        parameters: Request parameters, for the backend.
        room: Where outputs may be written; None: all of them come in the answer.
    """

    model: str
    version: str
    input_name: str
    datatype: str
    shape: tuple[int, ...]
    data: InSharedMemory | memoryview
    parameters: Mapping[str, int] = field(default_factory=lambda: NO_PARAMETERS)
    room: OutputRoom | None = None


class Outputs(dict[str, NDArray[Any]]):
    """What a batch returned: arrays by name, batch axis included.

    Attributes:
        version: The version of the model that ran.
        first: Nothing like it had run since that version was loaded, as far as the caller knows.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], version: str = "", *, first: bool = False) -> None:
        super().__init__(arrays)
        self.version = version
        self.first = first

    def row(self, index: int, of: int) -> dict[str, NDArray[Any]]:
        """Return one part of a batch of `of`; a copy, unless it is all there is: a kept row does not keep its batch."""
        if of == 1:
            return {name: array[0, ...] for name, array in self.items()}
        return {name: array[index, ...].copy() for name, array in self.items()}


def latest(versions: Sequence[str]) -> str:
    """Return the highest version, as Triton chooses its default; empty if there is none."""
    return max(versions, key=lambda v: (int(v) if v.isdecimal() else -1, v), default="")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as it travels.

    Attributes:
        shape: Batch axis included if the model has one.
        data: Little-endian, row-major; of BYTES each element after its length in 4 bytes.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call that is handed to Triton as it came.

    Attributes:
        outputs: Names of those that are wanted; empty: all.
        parameters: Of the request, for the model's backend.
    """

    model: str
    version: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    parameters: Mapping[str, bool | int | float | str]
