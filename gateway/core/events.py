"""What goes into the engine: facts that a driver reports.

An event does nothing by itself, and neither does an action (`gateway.core.actions`), so a test needs no mock and a log
of both is a complete account.

Rule for drivers: events that fall on the same instant are handled in the order of `EVENT_RANK`, and in
the order in which they were given within one rank. The live driver meets such ties only by accident;
the simulator and the virtual-time tests meet them all the time.
"""

from __future__ import annotations

from gateway.core.light_dataclass import light_dataclass
from gateway.core.plan import Plan
from gateway.core.types import Category, StreamSpec


@light_dataclass(frozen=True, slots=True)
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


@light_dataclass(frozen=True, slots=True)
class WidenWindows:
    """Let windows grow whose tightest stream has gone, if a plan with the larger ones holds.

    `plan` as in `RegisterStream`: the result of `gateway.core.admission.widen`, or None to have it made here.
    """

    plan: Plan | None = None


@light_dataclass(frozen=True, slots=True)
class CloseStream:
    """A stream ends: no further frame is taken; frames that wait are still served."""

    stream_id: str


@light_dataclass(frozen=True, slots=True)
class FramesArrived:
    """`count` frames of one stream are complete in the driver's hands.

    `deadline_ns` is their relative deadline, where it is not the stream's own; for best-effort streams only.
    """

    stream_id: str
    count: int = 1
    deadline_ns: int | None = None


@light_dataclass(frozen=True, slots=True)
class FrameCancelled:
    """Nobody waits for this frame any more. Without effect once its job has started."""

    stream_id: str
    seq: int


@light_dataclass(frozen=True, slots=True)
class JobFinished:
    """The device answered.

    `warm_up`: it was the first execution of its model, shape and batch since the model was loaded, so that how long it
    took says nothing.
    """

    job_id: int
    warm_up: bool = False


@light_dataclass(frozen=True, slots=True)
class JobFailed:
    """The device refused the job, or its answer cannot be used.

    `retry`: it may be the fault of one of the frames; each may be tried again on its own.
    """

    job_id: int
    reason: str
    retry: bool = False


@light_dataclass(frozen=True, slots=True)
class LimitBatches:
    """Batches of a category are refused where single frames are not, by experience outside of the engine."""

    category: Category
    reason: str


@light_dataclass(frozen=True, slots=True)
class SerialModels:
    """Models of which the worker never executes two at once, nor one twice, whatever is sent to it; None: all.

    Only among these is a job sent ahead. Until something is said it is all of them.
    """

    models: frozenset[str] | None


@light_dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker's Triton cannot be reached: nothing is dispatched to it until `WorkerBack`."""

    worker: str


@light_dataclass(frozen=True, slots=True)
class WorkerBack:
    """A lost worker is served again."""

    worker: str


@light_dataclass(frozen=True, slots=True)
class ModelLoaded:
    """A model is in the worker's memory.

    Attributes:
        model: Which.
        warm: Whether all that it will run has been run once; else its warm-up follows, as jobs.
        held_bytes: What it holds, as reported by the worker; None: not known, so the profile's figure stands.
    """

    model: str
    warm: bool = False
    held_bytes: int | None = None


@light_dataclass(frozen=True, slots=True)
class ModelLoadFailed:
    """A model could not be loaded. After a reload, the old one serves on.

    Attributes:
        model: Which.
        reason: In the worker's words.
        lingers: The worker may be at it still, and holds memory for it until `LateLoadEnded`. Otherwise it holds none.
    """

    model: str
    reason: str
    lingers: bool = False


@light_dataclass(frozen=True, slots=True)
class LateLoadEnded:
    """A load that was given up holds nothing any more in the worker, or nobody waits for that any longer."""

    model: str


@light_dataclass(frozen=True, slots=True)
class ModelUnloaded:
    """The worker does not list a model as loaded any more: its memory is free.

    Attributes:
        model: Which.
        used_bytes: What the worker's models hold in all now, while others may be coming or going; None: not measured.
    """

    model: str
    used_bytes: int | None = None


@light_dataclass(frozen=True, slots=True)
class ModelUnloadFailed:
    """A model was to go and is still there after all the time that it was given; it holds its memory."""

    model: str
    reason: str


@light_dataclass(frozen=True, slots=True)
class ModelLost:
    """A model that was resident is not there any more, and nobody here has unloaded it."""

    model: str
    reason: str


@light_dataclass(frozen=True, slots=True)
class MemoryMeasured:
    """What the worker's models hold in all, measured while no model came or went."""

    used_bytes: int


@light_dataclass(frozen=True, slots=True)
class RequestLoad:
    """An operator wants a model in memory, or, if it is there, what is new of it."""

    model: str


@light_dataclass(frozen=True, slots=True)
class RequestUnload:
    """An operator wants a model out of memory, and not back before the next `RequestLoad`.

    `force`: even though real-time streams or a pin need it.
    """

    model: str
    force: bool = False


@light_dataclass(frozen=True, slots=True)
class PinModel:
    """An operator wants a model to stay once it is there, or (`pinned` false) lets it go."""

    model: str
    pinned: bool = True


@light_dataclass(frozen=True, slots=True)
class HoldModel:
    """Something that is about to use a model wants it in memory until `ReleaseModel` of the same holder."""

    model: str
    holder: str


@light_dataclass(frozen=True, slots=True)
class ReleaseModel:
    """A holder needs its model no longer."""

    model: str
    holder: str


@light_dataclass(frozen=True, slots=True)
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
    | SerialModels
    | WorkerLost
    | WorkerBack
    | ModelLoaded
    | ModelLoadFailed
    | LateLoadEnded
    | ModelUnloaded
    | ModelUnloadFailed
    | ModelLost
    | MemoryMeasured
    | RequestLoad
    | RequestUnload
    | PinModel
    | HoldModel
    | ReleaseModel
    | Tick
)

#: Order of events of one instant: what frees the device first, then what changes the contract, then
#: frames, then time itself.
EVENT_RANK: dict[type[Event], int] = {
    JobFinished: 0,
    JobFailed: 0,
    LimitBatches: 1,
    SerialModels: 1,
    WorkerLost: 1,
    WorkerBack: 1,
    ModelLoaded: 1,
    ModelLoadFailed: 1,
    ModelUnloaded: 1,
    ModelUnloadFailed: 1,
    ModelLost: 1,
    MemoryMeasured: 1,
    RequestLoad: 2,
    RequestUnload: 2,
    PinModel: 2,
    HoldModel: 2,
    ReleaseModel: 2,
    CloseStream: 2,
    WidenWindows: 3,
    RegisterStream: 3,
    FrameCancelled: 4,
    FramesArrived: 5,
    Tick: 6,
}
