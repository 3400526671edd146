"""The state that an admission test starts from: frozen and picklable, so another process can test it."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.config import EngineConfig
from gateway.core.profile import Profile
from gateway.core.types import LOCAL_WORKER, Category, Frame, Job


@dataclass(frozen=True, slots=True)
class WindowState:
    """The current window of one category.

    Attributes:
        category: Whose.
        window_ns: W.
        narrowest_ns: The smallest W since this window opened (W_win).
        joint_ns: Its end, after the instant of the record.
        waiting: Frames of each batch opened in it, in order of job id.
    """

    category: Category
    window_ns: int
    narrowest_ns: int
    joint_ns: int
    waiting: tuple[tuple[Frame, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class StreamPhase:
    """What is still to come of one stream.

    Attributes:
        stream_id, category: Which.
        period_ns, deadline_ns: Relative times of its contract.
        next_ns: When the next frame is expected, not before the instant of the record.
        remaining: Frames to come, at least 1; None when unbounded.
    """

    stream_id: str
    category: Category
    period_ns: int
    deadline_ns: int
    next_ns: int
    remaining: int | None


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """Everything that decides what the engine will do if all goes as profiled.

    Attributes:
        now_ns: The instant of the record.
        free_ns: When the device is next free, at least `now_ns`. A job that has overrun its profiled time is
            taken to end 1 ns later: it is still running, and nothing better is known.
        ready: Jobs past their joint, in EDF order.
        windows: One per category that has streams.
        streams: Those that still have frames to come, in order of admission.
        profile: Execution times, dispatch overhead included.
        config: Of the engine.
        worker: Where a candidate would run.
    """

    now_ns: int
    free_ns: int
    ready: tuple[Job, ...]
    windows: tuple[WindowState, ...]
    streams: tuple[StreamPhase, ...]
    profile: Profile
    config: EngineConfig
    worker: str = LOCAL_WORKER
