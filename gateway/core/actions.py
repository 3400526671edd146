"""What comes out of the engine: decisions that a driver carries out, in the order in which they are given."""

from __future__ import annotations

from gateway.core.light_dataclass import light_dataclass
from gateway.core.types import Category, Frame, Job, ModelState, Outcome
from gateway.core.verdict import MemoryEvidence, Verdict


@light_dataclass(frozen=True, slots=True)
class Admitted:
    """The stream is part of the promise from now on."""

    stream_id: str
    category: Category
    verdict: Verdict
    name: str = ""


@light_dataclass(frozen=True, slots=True)
class Rejected:
    """The stream is not admitted; the verdict carries the evidence."""

    stream_id: str
    verdict: Verdict


@light_dataclass(frozen=True, slots=True)
class PlanStale:
    """The plan that came with an event does not hold any more, and nothing was changed: plan again.

    Attributes:
        stream_id: That of the registration; empty for `WidenWindows`.
        after_ns: The running job is in its way, until then by the profile: a plan from a record of before will hardly
            do better. None: the reason is another one.
    """

    stream_id: str
    after_ns: int | None = None


@light_dataclass(frozen=True, slots=True)
class WindowWidened:
    """W of `category` is `window_ns` from its current joint on."""

    category: Category
    window_ns: int


@light_dataclass(frozen=True, slots=True)
class StreamEnded:
    """A closed or finished stream has no frame left in the engine. `reason`: closed, finished."""

    stream_id: str
    reason: str


@light_dataclass(frozen=True, slots=True)
class AcceptFrames:
    """The frames are in; `Frame.job` says which batch each belongs to. In order of `seq`."""

    frames: tuple[Frame, ...]


@light_dataclass(frozen=True, slots=True)
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


@light_dataclass(frozen=True, slots=True)
class StartJob:
    """Send this batch to the worker of its category now; it may have to wait there (`Job.ahead`)."""

    job: Job


@light_dataclass(frozen=True, slots=True)
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


@light_dataclass(frozen=True, slots=True)
class RetryFrames:
    """These frames of a batch go on as batches of their own: it was refused, and each is tried again alone.

    Also those of batches that have not started: after `BatchLimited`, since they would fail, and without a promise when
    they have become longer than what may hold up promised work.

    Attributes:
        job: As it was started, or stands. Its other frames are in a `DropFrames` that follows.
        frames: Each with the id of its new batch as `Frame.job`.
        indices: Where each stands in ``job.frames``, and so in the failed batch's bytes.
        refused: Whether it was refused; else it has not started.
    """

    job: Job
    frames: tuple[Frame, ...]
    indices: tuple[int, ...]
    refused: bool = True


@light_dataclass(frozen=True, slots=True)
class PenaltyChanged:
    """Adaptation: a category has overrun, or paid back.

    Attributes:
        category: Native one of the frames.
        penalty_ns: What it still has to pay back.
        shape: The shape its jobs are scaled down to from now on; None: their own.
        reason: overrun, paid_back, no_smaller_shape (that would save time); limited: what the small shape takes has
            changed; ended: with the category's last stream.
    """

    category: Category
    penalty_ns: int
    shape: tuple[int, ...] | None
    reason: str


@light_dataclass(frozen=True, slots=True)
class BatchLimited:
    """Batches of a category fail where single frames do not: from now on its jobs have at most `most` frames.

    `verdict` is that of all admitted streams with this limit; not admitted: what was promised may not hold any more.
    """

    category: Category
    most: int
    reason: str
    verdict: Verdict


@light_dataclass(frozen=True, slots=True)
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


@light_dataclass(frozen=True, slots=True)
class LoadModel:
    """Have the worker load a model; `ModelLoaded` or `ModelLoadFailed` is to follow.

    `reason`: demand (frames wait for it), prefetch (for a window that is still open), pin (a real-time stream or a
    command wants it to be there), hold (a registration, a call), command, reload (it is there, and stays in use
    meanwhile), swap (its turn in the swap region), retry (the last attempt failed).
    """

    model: str
    reason: str


@light_dataclass(frozen=True, slots=True)
class UnloadModel:
    """Have the worker unload a model that is idle; `ModelUnloaded` or `ModelUnloadFailed` is to follow.

    `reason`: eviction, command, swap, warm_up_failed.
    """

    model: str
    reason: str


@light_dataclass(frozen=True, slots=True)
class ModelChanged:
    """A model's state is another one now, or it is the answer to a command or a hold that leaves it as it was.

    `reason`: why, in a word or in the worker's words; may be empty. Of a model that is resident: hold and command (it
    was already), reloaded, reload_failed: <why> (the old one serves on), unload_failed: <why>. takes_turns answers the
    command to load one that is in the swap region and was unloaded by command: it has its turns again.
    """

    model: str
    state: ModelState
    reason: str = ""


@light_dataclass(frozen=True, slots=True)
class ModelRefused:
    """A command or a hold came to nothing, and nothing was changed.

    `reason`: no_room (with `memory`), pinned, unloaded (by command, so that only one loads it), not_sized (its size is
    not known, and the budget is in bytes), takes_turns (it is in the swap region, and loaded when it has its turn),
    load_too_long (models that take turns cannot wait for it), failed: <why> (it cannot be loaded; tried again after a
    pause).
    """

    model: str
    reason: str
    memory: MemoryEvidence | None = None


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
    | LoadModel
    | UnloadModel
    | ModelChanged
    | ModelRefused
)
