"""The state that an admission test starts from: frozen and picklable, so another process can test it."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.config import EngineConfig
from gateway.core.profile import Profile
from gateway.core.types import LOCAL_WORKER, Category, Frame, Job


@dataclass(frozen=True, slots=True)
class WindowState:
    """The current window of one real-time category.

    Attributes:
        category: Whose.
        window_ns: W.
        narrowest_ns: The smallest W since this window opened (W_win).
        joint_ns: Its end, after the instant of the record.
        waiting: Promised frames of each batch opened in it, in order of job id; `Frame.job` names the batch.
        widest_ns: Half the smallest deadline of the streams it has now: what W could be.
        swapping: Whether all its streams let its model take turns with others.
    """

    category: Category
    window_ns: int
    narrowest_ns: int
    joint_ns: int
    waiting: tuple[tuple[Frame, ...], ...] = ()
    widest_ns: int = 0
    swapping: bool = False


@dataclass(frozen=True, slots=True)
class TurnState:
    """A window of a category of the swap region that has ended, and whose jobs are not over.

    Attributes:
        category: Whose.
        due_ns: When its turn has to be over, absolute.
        window_ns: W of its category at the record.
        sizes: Frames of its jobs that are not ready yet.
    """

    category: Category
    due_ns: int
    window_ns: int
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryState:
    """The memory budget, and the swap region in it (`gateway.core.swap_test`). Figures are in `unit`.

    Attributes:
        unit: ``bytes`` or ``models``.
        budget: In all.
        lost: What the worker holds beyond all that is known to be in it.
        sizes: What models hold, where that is known better than from the profile.
        fixed: Models that have to stay whatever streams there are.
        resident: Models that are in memory, come or go.
        used: Models outside of the region that best-effort streams use.
        region: Models that take turns.
        weight: Of the region.
        turn: The one under way; its `sizes` are empty once its jobs are ready.
        free_ns: When the turn's model is loaded at worst, or, once its jobs are ready, when they are over; without a
            turn, when the load or unload ends that is under way.
        waiting: Turns to come, of windows that have ended.
        moves: Counts what the region has begun.
        moved: Whether `region` is not as it was recorded: a test asks for another one.
        joined: Models that it then has and had not.
    """

    unit: str
    budget: int
    lost: int = 0
    sizes: tuple[tuple[str, int], ...] = ()
    fixed: tuple[str, ...] = ()
    resident: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    weight: int = 0
    turn: TurnState | None = None
    free_ns: int = 0
    waiting: tuple[TurnState, ...] = ()
    moves: int = 0
    moved: bool = False
    joined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamPhase:
    """What is still to come of one real-time stream.

    Group k of those to come arrives in ``[next_ns + k * period_ns, that + jitter_ns]``, `burst` frames each; the first
    one only `group_left`. `overdue` frames that should have come are counted as arriving at the instant of the record.

    Attributes:
        stream_id, category: Which.
        period_ns, deadline_ns, burst, jitter_ns: Its contract.
        next_ns: Earliest arrival of the next group on the stream's observed grid; with jitter it may lie before the
            instant of the record, but ``next_ns + jitter_ns`` does not.
        remaining: Frames to come, overdue ones among them, at least 1; None when unbounded.
        group_left: Frames of the first group that have not come, 1 to `burst`.
        overdue: 0 to `burst`.
        earliest_ns: The policer lets its next group in no earlier, whatever its phase; None: only the contract bounds
            it, since its first group has not come.
    """

    stream_id: str
    category: Category
    period_ns: int
    deadline_ns: int
    next_ns: int
    remaining: int | None
    burst: int = 1
    jitter_ns: int = 0
    group_left: int = 1
    overdue: int = 0
    earliest_ns: int | None = None


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """Everything that decides what the engine will do if all goes as profiled.

    Attributes:
        now_ns: The instant of the record.
        free_ns: When the device is next free, at least `now_ns`: after the running job and one that was sent ahead. A
            job that has overrun its profiled time is taken to end 1 ns later: it is still running, and nothing better
            is known.
        ready: Promised jobs past their joint, in EDF order.
        windows: One per real-time category that has streams.
        streams: Real-time streams that still have frames to come, in order of admission.
        profile: Execution times, dispatch overhead included.
        config: Of the engine.
        worker: Where a candidate would run.
        planned_ns: For each of `ready`, the instant before which the plan in force does not start it (the device may
            wait on purpose); empty without a plan.
        best_effort: Categories of best-effort streams.
        generation: Counts what was committed: admissions, ends of streams, changes of windows.
        started: Counts the jobs started or sent ahead.
        memory: The budget; None: there is none.
    """

    now_ns: int
    free_ns: int
    ready: tuple[Job, ...]
    windows: tuple[WindowState, ...]
    streams: tuple[StreamPhase, ...]
    profile: Profile
    config: EngineConfig
    worker: str = LOCAL_WORKER
    planned_ns: tuple[int, ...] = ()
    best_effort: tuple[Category, ...] = ()
    generation: int = 0
    started: int = 0
    memory: MemoryState | None = None
