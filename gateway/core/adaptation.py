"""Adaptation: a category that overran runs small until it has paid the time back.

DeepRT's Adaptation Module (Yang et al., SEC 2021, arXiv 2105.01803, section 4). Each category has a penalty, which
begins at 0.

- A job of native frames that takes longer than profiled adds the excess.
- While there is a penalty, jobs run at the next smaller profiled shape, where that is faster for their number of
  frames. Each takes off what it saved: the profiled time of the native frames less the time that it took, which may be
  less than nothing. A shape that is faster for no number of frames, or at which the model refuses frames that it takes
  as they are, does not count. Where there is no other, the penalty is kept and shown, and changes nothing.
- A penalty that is not positive is 0, and the shape is restored.

Windows, batches and the places of a plan stay those of the native shape, so nothing that was promised depends on which
shape runs, and small jobs never share a batch with frames that have that shape of their own.

Some overruns say nothing about a category (`Cause`): the first execution after a load, one on a device that was idle
for so long that its clocks went down, and one beside which another model was loaded or unloaded. Such a job counts as
if it had taken its profiled time at most: it adds nothing, and if it ran small, it pays back what was planned, so that
no camera that is always slow to wake the device up runs small for ever.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from gateway.core.actions import PenaltyChanged
from gateway.core.config import EngineConfig
from gateway.core.types import Category, Job, ServiceClass

if TYPE_CHECKING:
    from gateway.core.promises import Promises


class Cause(StrEnum):
    """Why an execution took longer than profiled."""

    #: Unknown: it is held against the category.
    OVERRUN = "overrun"
    #: The first of its model, shape and batch since the model was loaded.
    WARM_UP = "warm_up"
    #: The device had been idle for `EngineConfig.cold_after_ns`.
    COLD = "cold"
    #: A model was loaded or unloaded meanwhile, which took more from it than was planned for.
    SWAP = "swap"


class Adaptation:
    """The penalties of one engine.

    Args:
        promises: Their profile has the execution times that hold now, overhead included.
        config: Whether to adapt, and when a device is cold.
    """

    def __init__(self, promises: Promises, config: EngineConfig) -> None:
        self._promises = promises
        self._config = config
        self._penalties: dict[Category, int] = {}
        self._smaller: dict[Category, Category | None] = {}
        self._barred: set[Category] = set()
        # What small jobs under way would take as they are: one runs, one may have been sent ahead.
        self._native_ns: dict[int, int] = {}

    def penalty_ns(self, category: Category) -> int:
        """Return what a category has to pay back."""
        return self._penalties.get(category, 0)

    def small(self, category: Category) -> Category | None:
        """Return what a category's jobs are scaled down to now, where it saves time; None: they run as they are."""
        return self._next_smaller(category) if self.penalty_ns(category) else None

    def fit(self, job: Job) -> Job:
        """Return the job that is to start, small if its category has a penalty and that saves time."""
        if not self._penalties:
            return job
        small = self.small(job.category)
        if small is None:
            return job
        table, frames = self._promises.profile.table(small), len(job.frames)
        if frames >= len(table) or table[frames] >= job.execution_ns:
            return job
        while len(self._native_ns) > 1:
            self._native_ns.pop(next(iter(self._native_ns)))
        self._native_ns[job.id] = job.execution_ns
        return replace(job, small=small, execution_ns=table[frames])

    def typical(self, category: Category) -> tuple[int, ...]:
        """Return the medians in ns by batch size of what would run now: as `Profile.typical`, small where `fit` is."""
        profile = self._promises.profile
        own, small = profile.typical(category), self.small(category)
        if small is None:
            return own
        times = zip(profile.typical(small), profile.table(small), own, profile.table(category), strict=False)
        fitted = tuple([small_ns if e_ns < own_e_ns else own_ns for small_ns, e_ns, own_ns, own_e_ns in times])
        return fitted + own[len(fitted) :]

    def cause(self, *, warm_up: bool, swapping: bool, idle_ns: int) -> Cause:
        """Return why a job took longer than profiled.

        Args:
            warm_up: See `gateway.core.events.JobFinished`.
            swapping: A model was loaded or unloaded meanwhile.
            idle_ns: How long the device had been idle when it began.
        """
        if warm_up:
            return Cause.WARM_UP
        if swapping:
            return Cause.SWAP
        return Cause.COLD if idle_ns >= self._config.cold_after_ns else Cause.OVERRUN

    def ended(self, job: Job, took_ns: int, cause: Cause | None) -> PenaltyChanged | None:
        """Account for a job that was answered; return the change of its category's penalty, if there is one."""
        if cause is None and job.small is None:
            return None  # it took no longer than profiled
        category = job.category
        if not self._config.adaptation or category.service_class is not ServiceClass.REAL_TIME:
            return None
        held_ns = took_ns if cause is Cause.OVERRUN else min(took_ns, job.execution_ns)
        change_ns = max(0, held_ns - job.execution_ns) if job.small is None else held_ns - self._native_ns[job.id]
        if not change_ns:
            return None
        penalty_ns = max(0, self.penalty_ns(category) + change_ns)
        if not penalty_ns:
            return self._forgive(category, "paid_back")
        self._penalties[category] = penalty_ns
        small = self.small(category)
        reason = "no_smaller_shape" if small is None else "overrun" if change_ns > 0 else "paid_back"
        return PenaltyChanged(category, penalty_ns, None if small is None else small.shape, reason)

    def bar(self, small: Category) -> list[PenaltyChanged]:
        """Do not scale down to a shape any more at which the model refuses what it takes as it is."""
        self._barred.add(small)
        return self.review()

    def review(self) -> list[PenaltyChanged]:
        """See what the small shapes are now that execution times have changed; return what is different."""
        before, self._smaller = self._smaller, {}
        changed = []
        for category, penalty_ns in self._penalties.items():
            small = self._next_smaller(category)
            if small is None and before.get(category) is not None:
                changed.append(PenaltyChanged(category, penalty_ns, None, "no_smaller_shape"))
            elif small is not None and small != before.get(category):
                changed.append(PenaltyChanged(category, penalty_ns, small.shape, "limited"))
        return changed

    def forget(self, category: Category) -> PenaltyChanged | None:
        """The category's last stream has ended, and the penalty with it."""
        return self._forgive(category, "ended")

    def _forgive(self, category: Category, reason: str) -> PenaltyChanged | None:
        if self._penalties.pop(category, None) is None:
            return None
        return PenaltyChanged(category, 0, None, reason)

    def _next_smaller(self, category: Category) -> Category | None:
        if category not in self._smaller:
            shapes = self._promises.profile.faster_smaller(category)
            self._smaller[category] = next((small for small in shapes if small not in self._barred), None)
        return self._smaller[category]
