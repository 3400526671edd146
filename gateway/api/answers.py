"""What goes out as JSON. Units are in the names; ``_ms`` fields are floats."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


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
