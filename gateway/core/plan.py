"""What an admission test leaves behind for the engine: the verdict, the windows and the order of promised work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gateway.core.plan_state import StreamPhase
from gateway.core.types import Category
from gateway.core.verdict import Verdict

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The windows of one category as the plan has them.

    Attributes:
        category: Whose.
        window_ns: W of the windows after the first.
        joint_ns: End of the first window that ends after the plan's instant; the others follow every `window_ns`.
        changed: The category is in being and its W or its joint differs from what was recorded: the plan can only be
            installed before `joint_ns`. (A new category has no frames yet: any joint of its grid will do.)
    """

    category: Category
    window_ns: int
    joint_ns: int
    changed: bool = False


@dataclass(frozen=True, slots=True)
class SlotTable:
    """All promised work in the order in which it is to be executed: one row per job, int64 columns, absolute ns.

    Attributes:
        window: Index into `Plan.windows`.
        job: Id of the batch if it exists already, else -1.
        release: Its joint (for ready jobs, when they became ready).
        chunk: 0, 1, ... among the jobs of one window.
        size: The most frames it holds.
        deadline: Absolute.
        execution: E(size).
        start: Its start if everything takes as long as profiled.
        latest: The latest start with which it and all that follow keep their deadlines.
        repeat_from, repeat_ns: With `repeat_ns` > 0 the rows from `repeat_from` to the end come again, shifted by
            `repeat_ns`, without end. `latest` allows for that.
    """

    window: _Ints
    job: _Ints
    release: _Ints
    chunk: _Ints
    size: _Ints
    deadline: _Ints
    execution: _Ints
    start: _Ints
    latest: _Ints
    repeat_from: int = 0
    repeat_ns: int = 0

    def __len__(self) -> int:
        """Number of rows, without repetition."""
        return len(self.release)


@dataclass(frozen=True, slots=True)
class SwapPlan:
    """How models take turns in the swap region.

    Attributes:
        models: They.
        weight: Of the region.
        local_ns: By category, how long after its model is loaded the jobs of a turn are due.
        largest: By category, the largest batch that is warmed up after a load, beside one of a single frame.
        longest_ns: The longest load or unload of another model that may hold up a turn.
        moves: Of the state that was tested.
    """

    models: tuple[str, ...]
    weight: int
    local_ns: tuple[tuple[Category, int], ...]
    largest: tuple[tuple[Category, int], ...]
    longest_ns: int
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to "does it fit?", with all that the engine needs to make it true.

    Attributes:
        verdict: The answer. The rest means something only when it admits.
        at_ns: Instant of the state that was tested.
        generation, started: Of that state.
        windows: Of all real-time categories, the candidate's included.
        streams: As they were tested, the candidate last.
        slots: The exact tests' order of execution; None for the sporadic test, under which plain EDF is safe.
        blocking_ns: Sporadic test: the longest execution with which anything out of order may hold up promised work.
        swap: Models that take turns; None: none do.
    """

    verdict: Verdict
    at_ns: int
    generation: int = 0
    started: int = 0
    windows: tuple[WindowPlan, ...] = ()
    streams: tuple[StreamPhase, ...] = ()
    slots: SlotTable | None = None
    blocking_ns: int = 0
    swap: SwapPlan | None = None
