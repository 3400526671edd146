"""How far a profile is and how long the rest takes, from what was measured of this run so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.core.profile_entry import ProfileEntry
from profiler.plan import Plan, Point

#: Executions of a point beyond its samples: our own warm-up, and perf_analyzer's.
_WARM_UPS = 10
#: To unload a model and load it again, once.
_SWAP_S = 2.5
#: Executions of one model while another is swapped, so many times at least, and then without: each of the two takes
#: this long at most.
_BESIDE, _BESIDE_SWAPS, _BESIDE_LIMIT_S = 205, 3, 25.0
#: A step that takes longer than was expected goes on for this share of what it took already.
_OVERDUE = 0.1


@dataclass(slots=True)
class _Step:
    """One point, or the swaps of one model (`batch` 0).

    Attributes:
        work: Elements in a batch, to which the time is taken to be proportional until it is measured.
        execution_s: Of one execution; 0: not known.
        spent_s: What it took in this run; None: not in this run.
        done: Over, in this run or an earlier one.
    """

    model: str
    shape: tuple[int, ...]
    batch: int
    work: int = 1
    execution_s: float = 0.0
    spent_s: float | None = None
    done: bool = False


class Pace:
    """The steps of one run, in the order in which they are taken.

    Larger batches and frames cost more, so a step counts with its seconds: measured, or reckoned from the measured one
    that is most like it. Points of an earlier run are done, and tell what others may take, but not how fast this run
    is. All is estimate: good for a bar, not for a plan.

    Args:
        plan: What is measured.
        clock: In s.

    Attributes:
        start_s: What a point takes beyond its executions.
    """

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._clock = clock
        self.start_s = 0.0
        self._steps: list[_Step] = []
        self._current: _Step | None = None
        self._began_s = 0.0

    def expect(self, points: Sequence[Point], known: Sequence[ProfileEntry]) -> None:
        """Say which points there are, and which of them an earlier run measured."""
        execution_ms = {(e.model, e.shape, e.batch): e.p50_ms for e in known}
        self._steps = []
        for point in points:
            model, shape = point.category.model, point.category.shape
            step = _Step(model, shape, point.batch, point.batch * math.prod(shape))
            if (key := (model, shape, point.batch)) in execution_ms:
                step.execution_s, step.done = execution_ms[key] / 1e3, True
            self._steps.append(step)
        if self._plan.server_pid is not None:
            self._steps += [_Step(model, (), 0) for model in dict.fromkeys(point.category.model for point in points)]

    def begin(self, model: str, shape: tuple[int, ...] = (), batch: int = 0) -> None:
        """A step begins: a point, or with `batch` 0 the swaps of a model."""
        self._current = next((s for s in self._steps if (s.model, s.shape, s.batch) == (model, shape, batch)), None)
        self._began_s = self._clock()

    def warmed(self, execution_ms: float) -> None:
        """The point under way takes so long for an execution."""
        if self._current is not None and self._current.batch:
            self._current.execution_s = execution_ms / 1e3

    def end(self, *, measured: bool = True) -> None:
        """The step under way is over. What failed says nothing about others."""
        step, self._current = self._current, None
        if step is None:
            return
        step.spent_s, step.done = self._clock() - self._began_s, True
        if step.batch and measured:
            step.execution_s = max(step.execution_s, (step.spent_s - self.start_s) / self._executions)
        else:
            step.execution_s = 0.0

    @property
    def total(self) -> int:
        """How many steps there are."""
        return len(self._steps)

    @property
    def done(self) -> int:
        """How many of them are over."""
        return sum(step.done for step in self._steps)

    @property
    def number(self) -> int:
        """Which step is under way, from 1; 0: none."""
        return 0 if self._current is None else self._steps.index(self._current) + 1

    def left_s(self) -> float | None:
        """Return how long the rest takes; None as long as nothing tells."""
        left_s = 0.0
        for step in self._steps:
            if step.done:
                continue
            expected_s = self._expected_s(step)
            if expected_s is None:
                return None
            if step is self._current:
                gone_s = self._clock() - self._began_s
                expected_s = max(expected_s - gone_s, _OVERDUE * gone_s)
            left_s += expected_s
        return left_s

    def fraction(self) -> float:
        """Return how much is done, from 0 to 1, by time."""
        left_s = self.left_s()
        if left_s is None or not self._steps:
            return 0.0
        spent = (self._expected_s(s) if s.spent_s is None else s.spent_s for s in self._steps if s.done)
        gone_s = sum(step_s or 0.0 for step_s in spent)
        if self._current is not None:
            gone_s += self._clock() - self._began_s
        return gone_s / (gone_s + left_s) if gone_s + left_s > 0 else 1.0

    @property
    def _executions(self) -> int:
        return self._plan.samples + _WARM_UPS

    def _execution_s(self, step: _Step) -> float | None:
        """Return how long a batch takes: as measured, or as for the one that is most like it; None: not known."""
        if step.execution_s:
            return step.execution_s
        known = [other for other in self._steps if other.execution_s]
        if not known:
            return None
        like = min(known, key=lambda other: (other.model != step.model, abs(math.log(other.work / step.work))))
        return like.execution_s * step.work / like.work

    def _expected_s(self, step: _Step) -> float | None:
        if not step.batch:
            return self._swap_s(step.model)
        execution_s = self._execution_s(step)
        if execution_s is None:
            return None
        return min(self._plan.point_limit_s, self.start_s + self._executions * execution_s)

    def _swap_s(self, model: str) -> float | None:
        points = [step for step in self._steps if step.model == model and step.batch]
        if all(step.done and not step.execution_s for step in points):
            return 0.0  # none was measured: its swaps are left out
        swaps_s = _SWAP_S * self._plan.swaps
        if not self._plan.loads or not (self._plan.load_beside or len(self._plan.models) > 1):
            return swaps_s
        execution_s = self._execution_s(min(points, key=lambda step: step.work))
        if execution_s is None:
            return None
        return swaps_s + 2 * min(_BESIDE_LIMIT_S, max(_BESIDE * execution_s, _BESIDE_SWAPS * _SWAP_S))
