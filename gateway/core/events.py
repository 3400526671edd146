"""What goes into the engine and what comes out of it.

Events are facts that a driver reports, actions are decisions that a driver carries out. Neither does
anything by itself, so a test needs no mock and a log of either is a complete account.

Rule for drivers: events that fall on the same instant are handled in the order of `EVENT_RANK`, and in
the order in which they were given within one rank. The live driver meets such ties only by accident;
the simulator and the virtual-time tests meet them all the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.plan import Plan
from gateway.core.types import Category, Frame, Job, Outcome, StreamSpec
from gateway.core.verdict import Verdict

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class RegisterStream:
    """A camera asks to be admitted.

    Attributes:
        stream_id: The driver's choice; must be new.
        spec: What is asked for.
        plan: The answer of an admission test that was made elsewhere, from `Engine.admission_state` of a moment ago.
            The engine takes it only if it still holds, else answers `PlanStale`. None: the engine tests it itself.
    """

    stream_id: str
    spec: StreamSpec
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class WidenWindows:
    """Let windows grow whose tightest stream has gone, if a plan with the larger ones holds.

    `plan` as in `RegisterStream`: the result of `gateway.core.admission.widen`, or None to have it made here.
    """

    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class CloseStream:
    """A stream ends: no further frame is taken; frames that wait are still served."""

    stream_id: str


@dataclass(frozen=True, slots=True)
class FramesArrived:
    """`count` frames of one stream are complete in the driver's hands.

    `deadline_ns` is their relative deadline, where it is not the stream's own; for best-effort streams only.
    """

    stream_id: str
    count: int = 1
    deadline_ns: int | None = None


@dataclass(frozen=True, slots=True)
class FrameCancelled:
    """Nobody waits for this frame any more. Without effect once its job has started."""

    stream_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class JobFinished:
    """The device answered.

    `warm_up`: it was the first execution of its model, shape and batch since the model was loaded, so that how long it
    took says nothing.
    """

    job_id: int
    warm_up: bool = False


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The device refused the job, or its answer cannot be used.

    `retry`: it may be the fault of one of the frames; each may be tried again on its own.
    """

    job_id: int
    reason: str
    retry: bool = False


@dataclass(frozen=True, slots=True)
class LimitBatches:
    """Batches of a category are refused where single frames are not, by experience outside of the engine."""

    category: Category
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker's Triton cannot be reached: nothing is dispatched to it until `WorkerBack`."""

    worker: str


@dataclass(frozen=True, slots=True)
class WorkerBack:
    """A lost worker is served again."""

    worker: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Handled twice at one instant, the second has no effect."""


Event = (
    RegisterStream
    | WidenWindows
    | CloseStream
    | FramesArrived
    | FrameCancelled
    | JobFinished
    | JobFailed
    | LimitBatches
    | WorkerLost
    | WorkerBack
    | Tick
)

#: Order of events of one instant: what frees the device first, then what changes the contract, then
#: frames, then time itself.
EVENT_RANK: dict[type[Event], int] = {
    JobFinished: 0,
    JobFailed: 0,
    LimitBatches: 1,
    WorkerLost: 1,
    WorkerBack: 1,
    CloseStream: 2,
    WidenWindows: 3,
    RegisterStream: 3,
    FrameCancelled: 4,
    FramesArrived: 5,
    Tick: 6,
}

# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class Admitted:
    """The stream is part of the promise from now on."""

    stream_id: str
    category: Category
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Rejected:
    """The stream is not admitted; the verdict carries the evidence."""

    stream_id: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class PlanStale:
    """The plan that came with an event does not hold any more, and nothing was changed: plan again.

    `stream_id` is that of the registration; empty for `WidenWindows`.
    """

    stream_id: str


@dataclass(frozen=True, slots=True)
class WindowWidened:
    """W of `category` is `window_ns` from its current joint on."""

    category: Category
    window_ns: int


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """A closed or finished stream has no frame left in the engine. `reason`: closed, finished."""

    stream_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class AcceptFrames:
    """The frames are in; `Frame.job` says which batch each belongs to. In order of `seq`."""

    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class RefuseFrames:
    """`count` frames were not accepted.

    `reason`: unknown_stream, closed, finished, surplus (beyond the contract), best_effort_full (too many wait).
    `retry_ns`: for surplus, the absolute instant from which as many frames would conform; None if that many never do
    together.
    """

    stream_id: str
    count: int
    reason: str
    retry_ns: int | None = None


@dataclass(frozen=True, slots=True)
class StartJob:
    """Send this batch to the worker of its category now."""

    job: Job


@dataclass(frozen=True, slots=True)
class DropFrames:
    """These accepted frames end without a result.

    Attributes:
        frames: May be of several streams and batches.
        outcome: `expired`, `cancelled` or `failed`.
        reason: A stable word or the device's own message.
        moved: For each hole that was closed in a batch, the frame that now stands in the dropped
            frame's place, as ``(job, from_index, to_index)``, in the order they are to be carried out.
    """

    frames: tuple[Frame, ...]
    outcome: Outcome
    reason: str
    moved: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RetryFrames:
    """A job failed, and these of its frames are tried again, each alone.

    After `BatchLimited` also those of batches that have not started, which would fail.

    Attributes:
        job: As it was started, or stands. Its other frames are in a `DropFrames` that follows.
        frames: Each with the id of its new batch as `Frame.job`.
        indices: Where each stands in ``job.frames``, and so in the failed batch's bytes.
    """

    job: Job
    frames: tuple[Frame, ...]
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PenaltyChanged:
    """Adaptation: a category has overrun, or paid back.

    Attributes:
        category: Native one of the frames.
        penalty_ns: What it still has to pay back.
        shape: The shape its jobs are scaled down to from now on; None: their own.
        reason: overrun, paid_back, no_smaller_shape; ended: with the category's last stream.
    """

    category: Category
    penalty_ns: int
    shape: tuple[int, ...] | None
    reason: str


@dataclass(frozen=True, slots=True)
class BatchLimited:
    """Batches of a category fail where single frames do not: from now on its jobs have at most `most` frames.

    `verdict` is that of all admitted streams with this limit; not admitted: what was promised may not hold any more.
    """

    category: Category
    most: int
    reason: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class DeliverFrames:
    """The job's results go to their streams.

    Attributes:
        job: As it was started.
        outcomes: `met` or `missed` for each of ``job.frames``.
        finished_ns: When the device answered.
        cause: Why it took longer than profiled: a word of `gateway.core.adaptation.Cause`; empty when it did not.
    """

    job: Job
    outcomes: tuple[Outcome, ...]
    finished_ns: int
    started_ns: int
    cause: str = ""


Action = (
    Admitted
    | Rejected
    | PlanStale
    | WindowWidened
    | StreamEnded
    | AcceptFrames
    | RefuseFrames
    | StartJob
    | DropFrames
    | RetryFrames
    | PenaltyChanged
    | BatchLimited
    | DeliverFrames
)
