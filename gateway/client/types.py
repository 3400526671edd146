"""What the SDK hands out: the gateway's JSON as dataclasses. Units as over HTTP: ``_ms`` floats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Document = Mapping[str, Any]

#: Triton's datatypes as they come in JSON. BYTES stays a list of Python objects.
NUMPY_OF_DATATYPE: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


@dataclass(frozen=True)
class FirstMiss:
    """The first job that would end after its deadline.

    Times count from the instant of the test; with the sporadic test, from the start of the worst case.

    Attributes:
        model, shape: Of its category.
        streams: Ids of the streams whose frames it holds; ``this`` is the one asked for.
        names: Their names, in the same order.
        frames: Its batch size.
    """

    model: str
    shape: tuple[int, ...]
    streams: tuple[str, ...]
    names: tuple[str, ...]
    frames: int
    release_ms: float
    deadline_ms: float
    finish_ms: float
    late_ms: float

    @classmethod
    def from_json(cls, document: Document) -> FirstMiss:
        """Read ``evidence.first_miss``."""
        return cls(
            model=str(document["model"]),
            shape=tuple(document["shape"]),
            streams=tuple(document["streams"]),
            names=tuple(document["names"]),
            frames=int(document["frames"]),
            release_ms=float(document["release_ms"]),
            deadline_ms=float(document["deadline_ms"]),
            finish_ms=float(document["finish_ms"]),
            late_ms=float(document["late_ms"]),
        )


@dataclass(frozen=True)
class Evidence:
    """Why a stream was admitted or refused.

    Attributes:
        reason: Set when refused: ``not_profiled``, ``deadline_infeasible``, ``utilization``, ``deadline_miss``,
            ``beyond_horizon``, ``memory``, ``swap``.
        test: Which test decided: ``exact``, ``hyperperiod`` or ``sporadic`` (the worst case of all arrivals that the
            contracts allow).
        phase, horizon_ms, frames_checked: How far it went, and looked.
        utilization: Of the device with this stream.
        worst_latency_ms: Largest predicted latency of its frames, if known.
        first_miss: The job that would be late, if one was found.
        memory: The figures of ``memory`` as they came; None where they decided nothing or are not known.
        swap: Those of the models that take turns in memory, if there are any.
    """

    reason: str | None
    test: str
    phase: int
    utilization: float
    horizon_ms: float
    frames_checked: int
    worst_latency_ms: float | None
    first_miss: FirstMiss | None
    memory: Document | None = None
    swap: Document | None = None

    @classmethod
    def from_json(cls, document: Document) -> Evidence:
        """Read ``admission`` or ``evidence``."""
        miss = document.get("first_miss")
        return cls(
            reason=document.get("reason"),
            test=str(document.get("test", "")),
            phase=int(document.get("phase", 0)),
            utilization=float(document.get("utilization", 0.0)),
            horizon_ms=float(document.get("horizon_ms", 0.0)),
            frames_checked=int(document.get("frames_checked", 0)),
            worst_latency_ms=document.get("worst_latency_ms"),
            first_miss=FirstMiss.from_json(miss) if miss else None,
            memory=document.get("memory"),
            swap=document.get("swap"),
        )


@dataclass(frozen=True)
class CounterOffer:
    """A change of one field that would have been admitted when it was found; no promise for later.

    Attributes:
        field: ``period_ms``, ``deadline_ms``, ``shape`` or ``swapping``.
        value: What it would have to be.
    """

    field: str
    value: bool | float | tuple[int, ...]

    @classmethod
    def from_json(cls, document: Document) -> CounterOffer:
        """Read one of ``counter_offers``."""
        value = document["value"]
        if not isinstance(value, bool):
            value = tuple(value) if isinstance(value, list) else float(value)
        return cls(str(document["field"]), value)

    def __str__(self) -> str:
        if isinstance(self.value, tuple):
            return f"{self.field} {'x'.join(map(str, self.value))}"
        if isinstance(self.value, bool):
            return f"{self.field} {str(self.value).lower()}"
        if self.field == "period_ms":
            return f"period_ms {self.value:.1f} ({1e3 / self.value:.2f} fps)"
        return f"{self.field} {self.value:.1f}"


@dataclass(frozen=True)
class Admission:
    """Answer of ``/v1/admission/check``: a value, also when the stream would be refused; `detail` is for people."""

    admitted: bool
    evidence: Evidence
    counter_offers: tuple[CounterOffer, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class StreamHandle:
    """An admitted stream.

    Attributes:
        stream_id, frames_url: As the gateway gave them.
        model, shape, dtype: What its frames are.
        period_ms, deadline_ms: Its contract.
        evidence: What the admission test found.
        burst: Frames of a group; one group comes in a period.
        jitter_ms: How much later than its period a group may come.
        service_class, on_excess: Whether its frames are promised anything, and what becomes of those beyond it.
        raw: The whole answer.
    """

    stream_id: str
    frames_url: str
    model: str
    shape: tuple[int, ...]
    dtype: str
    period_ms: float
    deadline_ms: float
    evidence: Evidence
    burst: int = 1
    jitter_ms: float = 0.0
    service_class: str = "real_time"
    on_excess: str = "refuse"
    raw: Document = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class StreamInfo:
    """State and counts of a stream.

    Attributes:
        state: ``active``, ``closing``, ``closed`` or ``finished``.
        accepted: Frames taken in.
        outcomes: Ended frames by outcome.
        demoted: Frames taken that were beyond the contract, as best effort.
        refused: Frames that were not taken, by reason.
        worst_latency_ms: The largest latency that admission predicted; None if it did not.
        observed_worst_latency_ms: The largest of an answered frame; None before the first.
        raw: The whole answer.
    """

    stream_id: str
    name: str
    state: str
    accepted: int
    outcomes: Mapping[str, int]
    demoted: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    worst_latency_ms: float | None = None
    observed_worst_latency_ms: float | None = None
    raw: Document = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class FrameResult:
    """How one frame ended.

    Attributes:
        seq: Position in its stream; None when the answer does not say.
        outcome: ``met``, ``missed``, ``expired``, ``cancelled`` or ``failed``.
        latency_ms, queue_ms, execute_ms: On the gateway's clock; None where it has no meaning.
        deadline_ms: The stream's relative deadline.
        batch: Frames of the job that it ran in.
        degraded, shape: Whether and at what shape it ran small.
        demoted: Whether it came beyond the contract and was served as best effort.
        outputs: The frame's own row of each output, without batch axis.
        reason: Why it has no result.
        timestamp_ms: What it was labelled with when it was sent.
        version: The version of the model that ran; None where there is no result.
    """

    seq: int | None
    outcome: str
    latency_ms: float | None = None
    deadline_ms: float | None = None
    batch: int | None = None
    queue_ms: float | None = None
    execute_ms: float | None = None
    degraded: bool = False
    demoted: bool = False
    shape: tuple[int, ...] = ()
    outputs: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False)
    reason: str | None = None
    timestamp_ms: float | None = None
    version: str | None = None

    @classmethod
    def from_json(cls, document: Document) -> FrameResult:
        """Read one of ``results``."""
        return cls(
            seq=document.get("seq"),
            outcome=str(document["outcome"]),
            latency_ms=document.get("latency_ms"),
            deadline_ms=document.get("deadline_ms"),
            batch=document.get("batch"),
            queue_ms=document.get("queue_ms"),
            execute_ms=document.get("execute_ms"),
            degraded=bool(document.get("degraded", False)),
            demoted=bool(document.get("demoted", False)),
            shape=tuple(document.get("shape") or ()),
            outputs={name: tensor(value) for name, value in (document.get("outputs") or {}).items()},
            reason=document.get("reason"),
            timestamp_ms=document.get("timestamp_ms"),
            version=document.get("version"),
        )


def tensor(document: Document) -> npt.NDArray[Any]:
    """Rebuild an array from ``{datatype, shape, data}``; `data` may be flat or nested, or a view of bytes.

    Raises:
        ValueError: The number of values is not that of the shape.
    """
    data, dtype = document["data"], NUMPY_OF_DATATYPE.get(document["datatype"], np.object_)
    if not isinstance(data, memoryview):
        return np.asarray(data, dtype).reshape(document["shape"])
    if dtype is np.object_:
        return np.array([*_elements(data)], dtype).reshape(document["shape"])
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).reshape(document["shape"])


def _elements(data: memoryview) -> Iterator[bytes]:
    """Give the elements of a BYTES tensor, each of which stands after its length in 4 bytes."""
    offset = 0
    while offset < len(data):
        start = offset + 4
        offset = start + int.from_bytes(data[offset:start], "little")
        yield bytes(data[start:offset])
