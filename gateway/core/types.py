"""The nouns of scheduling: streams, categories, frames and jobs.

Everything here is frozen data. Times are integers of nanoseconds on one monotonic clock (fields in
``_ns``); a *relative* time says so in its docstring. Words are those of ``docs/glossary.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.core.light_dataclass import light_dataclass

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

#: The widest period or deadline that is accepted: one day. Anything longer is a typing error in a
#: unit, and sums of a few thousand of them stay far inside 64 bits.
MAX_INTERVAL_NS = 86_400 * NS_PER_S
#: The narrowest: 100 us. A shorter period than one memory copy of a frame cannot be served.
MIN_INTERVAL_NS = 100_000

#: The most frames of one group: more is a video file, not a camera.
MAX_BURST = 1_024

#: The worker of a gateway that drives a single accelerator.
LOCAL_WORKER = "local"


class ServiceClass(StrEnum):
    """What a stream is promised (DeepRT's real-time and non-real-time requests)."""

    REAL_TIME = "real_time"
    BEST_EFFORT = "best_effort"


class Outcome(StrEnum):
    """How an accepted frame ended. Each accepted frame has exactly one."""

    MET = "met"
    MISSED = "missed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"


class OnLate(StrEnum):
    """What becomes of frames that wait too long."""

    #: A frame whose deadline passes before it is dispatched expires.
    DROP = "drop"
    #: It is served all the same.
    SERVE = "serve"
    #: As `DROP`; and a frame that still waits when the next of its stream comes is cancelled. Frames beyond the
    #: contract take the place only of others beyond it.
    NEWEST = "newest"


class OnExcess(StrEnum):
    """What becomes of frames beyond their stream's contract."""

    #: They are not accepted.
    REFUSE = "refuse"
    #: They are served as best effort.
    BEST_EFFORT = "best_effort"


class ModelState(StrEnum):
    """Where a model stands with a worker. All but `ABSENT` and `FAILED` hold its memory."""

    ABSENT = "absent"
    #: On its way in: being loaded, then warmed.
    LOADING = "loading"
    #: Loaded and warmed: its jobs may start.
    RESIDENT = "resident"
    #: On its way out; its memory is held until the worker says that it is gone.
    UNLOADING = "unloading"
    #: The last attempt to load or warm it failed.
    FAILED = "failed"

    @property
    def away(self) -> bool:
        """Whether it holds no memory: a load could begin."""
        return self is ModelState.ABSENT or self is ModelState.FAILED


class JobDeadline(StrEnum):
    """Which deadline a job carries: its frames' earliest, or the paper's joint + window."""

    FRAME = "frame"
    WINDOW = "window"


@dataclass(frozen=True, slots=True, order=True)
class Category:
    """Frames that may share a batch.

    Attributes:
        model: Triton's name of the model.
        version: Triton's version string, resolved (never empty).
        shape: One frame in the model's input layout, without the batch axis.
        dtype: Triton's datatype, for example ``UINT8``.
        service_class: Real-time and best-effort frames never share a batch.
        worker: The Triton endpoint that runs it.
    """

    model: str
    version: str
    shape: tuple[int, ...]
    dtype: str = "UINT8"
    service_class: ServiceClass = ServiceClass.REAL_TIME
    worker: str = LOCAL_WORKER

    def __str__(self) -> str:
        """Return ``model/version[shape]dtype``, the form used in logs."""
        return f"{self.model}/{self.version}{list(self.shape)}{self.dtype}"


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """What a camera asks for; the contract once it is admitted.

    Attributes:
        model, version, shape, dtype: See `Category`.
        period_ns: Time between two frames; with `burst`, between two groups.
        deadline_ns: Relative deadline of every frame, counted from its arrival.
        frames: How many frames will come; None for an unbounded stream.
        burst: Frames that come together, as one group, once in a period.
        jitter_ns: The group of period k comes no earlier than start + k * period and no later than this after it.
        start_in_ns: When the first frame comes, relative to the registration.
        on_late: What to do with a frame that is late before it is dispatched.
        on_excess: What to do with a frame that comes earlier than period, burst and jitter allow.
        name: A label for people; not unique.
        internal: The gateway's own, for calls that belong to no camera. As best effort it is admitted without a test,
            and no test counts it: what is left over is all that it gets.
        assumed_ns: Execution time of one of its frames where the profile does not know their category; such streams
            are internal.
        swapping: A real-time stream whose model may share memory with others that take turns in it; without, its model
            stays resident as long as the stream is there.

    Raises:
        ValueError: A period or deadline outside [`MIN_INTERVAL_NS`, `MAX_INTERVAL_NS`], a frame
            count below 1, a burst outside [1, `MAX_BURST`], a negative start or jitter, or an empty shape.
    """

    model: str
    version: str
    shape: tuple[int, ...]
    period_ns: int
    deadline_ns: int
    dtype: str = "UINT8"
    frames: int | None = None
    start_in_ns: int = 0
    on_late: OnLate = OnLate.DROP
    name: str = ""
    service_class: ServiceClass = ServiceClass.REAL_TIME
    burst: int = 1
    jitter_ns: int = 0
    on_excess: OnExcess = OnExcess.REFUSE
    internal: bool = False
    assumed_ns: int | None = None
    swapping: bool = False

    def __post_init__(self) -> None:
        """Check the bounds that every later sum relies on."""
        for field, value in (("period_ns", self.period_ns), ("deadline_ns", self.deadline_ns)):
            if not MIN_INTERVAL_NS <= value <= MAX_INTERVAL_NS:
                raise ValueError(f"{field} must lie in [{MIN_INTERVAL_NS}, {MAX_INTERVAL_NS}], not {value}")
        if self.frames is not None and self.frames < 1:
            raise ValueError(f"frames must be at least 1, not {self.frames}")
        if not 1 <= self.burst <= MAX_BURST:
            raise ValueError(f"burst must lie in [1, {MAX_BURST}], not {self.burst}")
        for field, value in (("start_in_ns", self.start_in_ns), ("jitter_ns", self.jitter_ns)):
            if not 0 <= value <= MAX_INTERVAL_NS:
                raise ValueError(f"{field} must lie in [0, {MAX_INTERVAL_NS}], not {value}")
        if not self.shape or any(axis < 1 for axis in self.shape):
            raise ValueError(f"shape must have at least one axis, each at least 1, not {self.shape}")

    def category(self, worker: str = LOCAL_WORKER) -> Category:
        """Return the category that this stream's frames belong to on `worker`."""
        return Category(self.model, self.version, self.shape, self.dtype, self.service_class, worker)


@light_dataclass(frozen=True, slots=True)
class Frame:
    """One accepted frame.

    Attributes:
        stream_id: Its stream.
        seq: Position in its stream, from 0.
        arrival_ns: The ``now_ns`` at which the engine handled it.
        deadline_ns: Absolute: ``arrival_ns`` plus the stream's relative deadline.
        job: Id of the batch it was put in. Fixed on arrival: the batch a frame will run in is known
            before the job is released, so its bytes can be written where they will be read.
        on_late: Copied from its stream, which may be gone before the frame is.
        demoted: It came beyond its stream's contract and is served as best effort.
    """

    stream_id: str
    seq: int
    arrival_ns: int
    deadline_ns: int
    job: int
    on_late: OnLate = OnLate.DROP
    demoted: bool = False


@light_dataclass(frozen=True, slots=True)
class Job:
    """The unit scheduled: one batch of one category (DeepRT's job instance).

    Attributes:
        id: Unique in the life of an engine; grows with creation.
        category: Of all its frames.
        frames: In arrival order, except that a cancelled frame's place is taken by the last one.
        release_ns: The joint that closed its window, or the start of an early dispatch.
        deadline_ns: Absolute.
        execution_ns: Profiled execution time at ``len(frames)``, dispatch overhead included.
        early: Dispatched before its window's joint: the device was idle, or it was full and was sent ahead.
        planned_end_ns: When it ends by the plan in force; None without a plan, or if it did not know the frames.
        small: Its frames are scaled down to this category's shape before they run (adaptation); None: as they are.
            `execution_ns` is of what runs.
        warm_up: Not 0: it has no frames, and runs a batch of so many blank ones after its model was loaded.
        ahead: It was sent before the one ahead of it had ended (`gateway.core.ahead`), and starts when that has.
    """

    id: int
    category: Category
    frames: tuple[Frame, ...]
    release_ns: int
    deadline_ns: int
    execution_ns: int
    early: bool = False
    planned_end_ns: int | None = None
    small: Category | None = None
    warm_up: int = 0
    ahead: bool = False

    @property
    def runs_as(self) -> Category:
        """The category in which its frames are executed."""
        return self.small or self.category
