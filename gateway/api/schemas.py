"""What comes in and goes out as JSON. Units are in the names; ``_ms`` fields are floats.

Everything that comes in is strict: no coercion of types, every number finite and bounded, no unknown
field. Bodies are parsed from their raw text by pydantic, so that ``NaN`` or a number of 400 digits is
refused like any other bad value.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from gateway.core.types import (
    MAX_BURST,
    MAX_INTERVAL_NS,
    MIN_INTERVAL_NS,
    NS_PER_MS,
    NS_PER_S,
    OnExcess,
    OnLate,
    ServiceClass,
    StreamSpec,
)

MIN_INTERVAL_MS = MIN_INTERVAL_NS / NS_PER_MS
MAX_INTERVAL_MS = MAX_INTERVAL_NS / NS_PER_MS
MIN_FPS = NS_PER_S / MAX_INTERVAL_NS
MAX_FPS = NS_PER_S / MIN_INTERVAL_NS

#: Triton's own names are freer; these cannot leave a directory or a log line.
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}$", strict=True)]
#: Triton's versions are positive integers, written without leading zeros.
Version = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,17}$", strict=True)]
#: A label for people: printable, one line.
StreamName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f\u2028\u2029]{0,128}$", strict=True)]
Interval = Annotated[float, Field(ge=MIN_INTERVAL_MS, le=MAX_INTERVAL_MS, allow_inf_nan=False, strict=True)]
#: An interval that may be nothing.
Delay = Annotated[float, Field(ge=0, le=MAX_INTERVAL_MS, allow_inf_nan=False, strict=True)]
Axis = Annotated[int, Field(ge=1, le=65_536, strict=True)]
#: Triton's datatypes of fixed size, with that size in bytes.
DTYPE_BYTES = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "BF16": 2,
    "FP32": 4,
    "FP64": 8,
}
DtypeName = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64"
]


class StreamRequest(BaseModel):
    """A camera asks to be admitted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: ModelName = Field(description="Triton's name of the model.")
    version: Version | None = Field(None, description="Triton's version; the newest that is loaded if absent.")
    shape: tuple[Axis, ...] = Field(
        min_length=1, max_length=8, description="One frame, without batch axis, in the model's input layout."
    )
    dtype: DtypeName = Field("UINT8", description="Triton's datatype of a frame.")
    period_ms: Interval | None = Field(
        None, description="Time between two frames; with `burst`, between two groups. Give this or `fps`."
    )
    fps: Annotated[float, Field(ge=MIN_FPS, le=MAX_FPS, allow_inf_nan=False, strict=True)] | None = Field(
        None, description="Frames per second; with `burst`, groups per second. Give this or `period_ms`."
    )
    deadline_ms: Interval = Field(description="Each frame is to be answered this long after it arrived.")
    frames: Annotated[int, Field(ge=1, le=1_000_000_000, strict=True)] | None = Field(
        None, description="How many frames will come; absent: no end."
    )
    burst: Annotated[int, Field(ge=1, le=MAX_BURST, strict=True)] = Field(
        1, description="Frames that come together, as one group, once in a period. Admission counts on it."
    )
    jitter_ms: Delay | None = Field(
        None,
        description="A frame or group may be up to this much later than its period says. Admission counts on it. "
        "Absent: `scheduling.default_jitter_ms`, at most a quarter of the period; in plan files none.",
    )
    start_in_ms: Delay = Field(0.0, description="When the first frame will come, from now.")
    on_late: OnLate = Field(
        OnLate.DROP,
        description="What becomes of a frame that is late before it is dispatched: it expires (`drop`) or is served "
        "late (`serve`). `newest`: it expires, and frames that still wait when the stream sends again are cancelled.",
    )
    on_excess: OnExcess = Field(
        OnExcess.REFUSE,
        description="What becomes of frames that come earlier than `period_ms`, `burst` and `jitter_ms` allow: all of "
        "their call is refused with 429, or they are served as best effort.",
    )
    service_class: ServiceClass = Field(
        ServiceClass.REAL_TIME,
        description="`best_effort`: no promise, its frames get what real-time streams leave; `deadline_ms` is how long "
        "one may wait for its turn.",
    )
    name: StreamName = Field("", description="A label for people; need not be unique.")

    @model_validator(mode="after")
    def _one_rate(self) -> StreamRequest:
        if (self.period_ms is None) == (self.fps is None):
            raise ValueError("give exactly one of period_ms and fps")
        if self.service_class is ServiceClass.BEST_EFFORT and self.on_late is OnLate.SERVE:
            raise ValueError("on_late serve would let a best_effort frame wait without end; deadline_ms ends it")
        return self

    @property
    def frame_bytes(self) -> int:
        """Size of one frame."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]

    def spec(self, default_jitter_ms: float = 0.0) -> StreamSpec:
        """Return what is asked of the gateway; `version` is empty if it was not given.

        `default_jitter_ms` is for a stream that declares none, at most a quarter of its period.
        """
        period_ns = round(NS_PER_S / self.fps) if self.fps is not None else round((self.period_ms or 0.0) * NS_PER_MS)
        jitter_ns = round((default_jitter_ms if self.jitter_ms is None else self.jitter_ms) * NS_PER_MS)
        return StreamSpec(
            model=self.model,
            version=self.version or "",
            shape=self.shape,
            dtype=self.dtype,
            period_ns=period_ns,
            deadline_ns=round(self.deadline_ms * NS_PER_MS),
            frames=self.frames,
            burst=self.burst,
            jitter_ns=min(jitter_ns, period_ns // 4) if self.jitter_ms is None else jitter_ns,
            start_in_ns=round(self.start_in_ms * NS_PER_MS),
            on_late=self.on_late,
            on_excess=self.on_excess,
            service_class=self.service_class,
            name=self.name,
        )


class ResultsQuery(BaseModel):
    """Query of the long poll."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: int = Field(-1, ge=-1, le=2**63 - 1, description="Only frames with a larger `seq`; -1: all that are kept.")
    timeout_ms: float = Field(
        10_000.0, ge=0, le=600_000, allow_inf_nan=False, description="How long to wait for the first one."
    )


class EventsQuery(BaseModel):
    """Query of the event stream."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: int = Field(
        -1, ge=-1, le=2**63 - 1, description="Only frames with a larger `seq`; -1: all that are kept, and what comes."
    )


class FirstMiss(BaseModel):
    """The first job that would end after its deadline.

    Times count from the instant of the test; with the sporadic test, from the moment from which the device is busy
    without a pause in the worst case of arrivals, and `finish_ms` is when all that is due by then would be done.
    """

    model: str
    version: str
    shape: tuple[int, ...]
    dtype: str
    streams: list[str] = Field(description="Ids of the streams whose frames it holds; `this` is the one asked for.")
    names: list[str] = Field(description="Their names, in the same order.")
    frames: int
    release_ms: float
    deadline_ms: float
    finish_ms: float
    late_ms: float


class Evidence(BaseModel):
    """What an admission test found."""

    test: str = Field(
        description="Which test decided: `exact`, every frame of finite streams; `hyperperiod`, the schedule until it "
        "repeats; `sporadic`, the worst case of any phase, drift and jitter within the contracts."
    )
    phase: int = Field(description="1: utilisation; 2: the test itself; 0: refused on its own figures, untested.")
    reason: str | None = Field(description="Why it was refused; null if it was not.")
    utilization: float = Field(description="Lower bound of the device's long-run use with this stream.")
    horizon_ms: float = Field(description="How far ahead phase 2 looked; 0 where it needed not.")
    frames_checked: int
    worst_latency_ms: float | None = Field(description="Largest predicted latency of this stream's frames.")
    first_miss: FirstMiss | None


class CounterOffer(BaseModel):
    """A change of one field that the same test admitted at that instant; it is tested again when taken."""

    field: Literal["period_ms", "deadline_ms", "shape"]
    value: float | tuple[int, ...]
    fps: float | None = Field(None, description="The rate, with `period_ms`.")


class AdmissionAnswer(BaseModel):
    """Would this stream be admitted now?"""

    admitted: bool
    model: str
    version: str = Field(description="The version that would run.")
    detail: str = Field(description="The answer in a sentence; for a refusal, the `detail` of the 409 or 422.")
    evidence: Evidence
    counter_offers: list[CounterOffer]


class StreamState(BaseModel):
    """A stream and its books. `accepted` is the sum of `outcomes` and `in_flight`."""

    stream_id: str
    name: str
    state: str = Field(description="`active`, `closing`, `closed` or `finished`.")
    close_reason: str = Field(
        description="Why it was closed: `asked`, or `idle`: nothing came of it for `limits.idle_stream_s`; else empty."
    )
    model: str
    version: str
    shape: tuple[int, ...]
    dtype: str
    frame_bytes: int
    period_ms: float
    fps: float = Field(description="Periods per second: with `burst`, groups.")
    deadline_ms: float
    frames: int | None
    burst: int
    jitter_ms: float
    on_late: str
    on_excess: str
    service_class: str
    accepted: int
    demoted: int = Field(description="How many of them came beyond the contract and were taken as best effort.")
    refused: dict[str, int] = Field(description="Frames that were not taken, by reason.")
    in_flight: int
    outcomes: dict[str, int]
    out_of_order: int = Field(
        description="Bodies whose timestamp was not above that of the body before; timestamps are data, nothing else "
        "depends on them."
    )
    worst_latency_ms: float | None = Field(description="Largest latency that admission predicted; null if not known.")
    observed_worst_latency_ms: float | None = Field(
        description="Largest latency of a frame that was answered; null before the first."
    )
    penalty_ms: float = Field(
        description="Time by which jobs of its model and shape have overrun and which is not paid back yet."
    )
    degraded_shape: tuple[int, ...] | None = Field(
        description="The smaller shape that its frames run at until then; null: they run as they are."
    )
    promise: Literal["kept", "broken", "none"] = Field(
        description="`broken`: batches of a model turned out to fail, and one frame at a time not all fits any more. "
        "`none`: best effort has none."
    )
    promise_evidence: Evidence | None = Field(description="What the test found then; null unless it is broken.")
    suspect: bool = Field(
        description="Triton refused frames of it: until one is answered, its frames go alone and without a promise."
    )
    frames_url: str
    results_url: str
    events_url: str = Field(description="Results as server-sent events.")
    ws_url: str = Field(description="A WebSocket: frames in, results out.")


class StreamAdmitted(StreamState):
    """Answer of a registration."""

    admission: Evidence


class StreamList(BaseModel):
    """The streams that are not over, in order of admission."""

    streams: list[StreamState]
    utilization: float = Field(description="Lower bound of the device's long-run use.")


class ModelEntry(BaseModel):
    """A model of the repository, as Triton sees it."""

    name: str
    version: str
    state: str
    reason: str
    profiled_shapes: list[tuple[int, ...]]
    single_frame_shapes: list[tuple[int, ...]] = Field(
        description="Shapes of which the model refuses batches: their frames run one at a time."
    )


class ModelList(BaseModel):
    """Models of the repository."""

    models: list[ModelEntry]


class Tensor(BaseModel):
    """One output of one frame. `data` is flat, in row-major order; what is not finite is null."""

    datatype: str
    shape: list[int]
    data: list[Any]


class FrameOutcome(BaseModel):
    """How one frame ended."""

    seq: int
    outcome: Literal["met", "missed", "expired", "cancelled", "failed"]
    reason: str = Field(description="Why there is no result; empty if there is.")
    latency_ms: float | None = Field(description="From arrival to the end.")
    deadline_ms: float
    batch: int | None = Field(description="Frames of the job that it ran in.")
    queue_ms: float | None = Field(description="From arrival to the start of that job.")
    execute_ms: float | None = Field(description="From the start of that job to Triton's reply.")
    degraded: bool
    shape: list[int]
    demoted: bool = Field(description="It came beyond the contract and was taken as best effort.")
    timestamp_ms: float | None = Field(description="What its sender labelled it with; null if nothing.")
    outputs: dict[str, Tensor] | None


class FrameOutcomes(BaseModel):
    """Answer of a waiting frames call."""

    results: list[FrameOutcome]


class FramesAccepted(BaseModel):
    """Answer of a frames call that does not wait."""

    seqs: list[int]
    results_url: str


class ResultsPage(BaseModel):
    """Answer of the long poll."""

    results: list[FrameOutcome] = Field(description="In the order in which they ended.")
    next_after: int = Field(description="What to ask for next.")
    state: str = Field(description="The stream's state; once it is `closed` or `finished` nothing more will come.")
