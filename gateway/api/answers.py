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


class MemoryEvidence(BaseModel):
    """Why a model has no room. Figures are in `unit`."""

    unit: Literal["bytes", "models"]
    needed: int
    budget: int
    free: int = Field(description="What the models that have to stay leave of it.")
    held: dict[str, int] = Field(description="Those, by name; `swap region` is one of them.")
    lost: int = Field(description="What the device holds beyond all that is known to be in it; it counts as used.")


class SwapEvidence(BaseModel):
    """How the models that take turns in the swap region would do, in the worst case."""

    models: list[str]
    region: int = Field(description="Memory that is set aside for them, in the budget's unit.")
    utilization: float = Field(description="Of the region's time: unloads, loads, warm-ups and jobs.")
    longest_turn_ms: float
    late_ms: float | None = Field(
        description="How much too late the first window would come round; null: none would, or how long a model takes "
        "to load is not profiled."
    )


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
    memory: MemoryEvidence | None = Field(None, description="With reason `memory`; null: the size is not known.")
    swap: SwapEvidence | None = Field(None, description="Of the models that take turns, if there are any.")


class CounterOffer(BaseModel):
    """A change of one field that the same test admitted at that instant; it is tested again when taken."""

    field: Literal["period_ms", "deadline_ms", "shape", "swapping"]
    value: bool | float | tuple[int, ...]
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
        description="Why it was closed: `asked`; `idle`: nothing came of it for `limits.idle_stream_s`; "
        "`version_gone`: the version that it named is not served any more; `model_changed`: a new version takes other "
        "frames. Else empty."
    )
    model: str
    version: str = Field(
        description="The version that its frames run on: the one that it named, or the newest that is served."
    )
    tested_version: str = Field(description="The version whose execution times it was admitted with.")
    retest: bool | None = Field(
        description="Its version is another one than was tested, and by the profile slower: what was promised may not "
        "hold. Registered again, it is tested with the new times. null: its version is not in the profile, so that "
        "nobody knows."
    )
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
    swapping: bool = Field(description="Its model may take turns with others.")
    model_stays: Literal["pinned", "takes_turns", "on_demand"] = Field(
        description="Its model is in memory all the time; is loaded for each window, in its turn; or, as best effort, "
        "when there is room."
    )
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
    version: str | None = Field(description="The version of the model that ran; null if there is no result.")
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
