"""What comes in as JSON or as a query. Units are in the names; ``_ms`` fields are floats.

All of it is strict: no coercion of types, every number finite and bounded, no unknown
field. Bodies are parsed from their raw text by pydantic, so that ``NaN`` or a number of 400 digits is
refused like any other bad value.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

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
    swapping: Annotated[bool, Field(strict=True)] = Field(
        False,
        description="Where not all models fit into the memory budget, its model may take turns with those of other "
        "such streams, if every window still gets its turn in time. Else the model stays while the stream is there.",
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
            swapping=self.swapping,
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
