"""Windows by category, and the plan in force for what comes of them."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.batch import NEVER_NS, Batch, Standing
from gateway.core.batcher import Batcher
from gateway.core.config import EngineConfig
from gateway.core.guard import Guard
from gateway.core.joints import Joints
from gateway.core.queues import Queues
from gateway.core.slots import Slot
from gateway.core.types import Category


class Windows(Queues):
    """See the module's docstring.

    Attributes:
        batchers: Windows by category, in order of each category's first admission.
        batches: Those that have not started, open or past their joint, by job id.
        guard: The plan in force; None: plain EDF.
        blocking_ns: The longest execution that may hold up promised work out of its order, without a plan in force.
        taking: Real-time streams that take further frames.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__()
        self.batchers: dict[Category, Batcher] = {}
        self.batches: dict[int, Batch] = {}
        self.guard: Guard | None = None
        self.blocking_ns = NEVER_NS
        self.taking = 0
        self._joints = Joints()
        self._job_deadline = config.job_deadline

    def batcher(self, category: Category, table: tuple[int, ...], window_ns: int, joint_ns: int) -> Batcher:
        """Return the windows of a category; new ones end at `joint_ns` and every `window_ns` after it."""
        batcher = self.batchers.get(category)
        if batcher is None:
            batcher = Batcher(category, table, window_ns, joint_ns, self._job_deadline)
            self.batchers[category] = batcher
            if batcher.standing is Standing.BEST_EFFORT:
                self._limit(batcher)
        return batcher

    def rule(self, batcher: Batcher, window_ns: int, joint_ns: int, now_ns: int) -> None:
        """Let the current window of a category end at `joint_ns`, and W be `window_ns` from then on."""
        batcher.rule(window_ns, joint_ns, now_ns)
        self._joints.watch(batcher)

    def join(self, batcher: Batcher, deadline_ns: int) -> None:
        """Count a stream of this relative deadline in."""
        batcher.deadlines[deadline_ns] += 1
        batcher.taking += 1
        self.taking += batcher.standing is Standing.PROMISED

    def quiet(self, batcher: Batcher) -> None:
        """A stream takes no further frame."""
        batcher.taking -= 1
        self.taking -= batcher.standing is Standing.PROMISED
        if self.guard is not None and not batcher.taking and batcher.place >= 0:
            self.guard.quiet(batcher.place)

    def hush(self) -> None:
        """Tell a plan that was just put in force which categories have no stream left that takes frames."""
        if self.guard is not None:
            for batcher in self.batchers.values():
                if not batcher.taking and batcher.place >= 0:
                    self.guard.quiet(batcher.place)

    def leave(self, batcher: Batcher, deadline_ns: int) -> None:
        """Let a stream go that has no frame left; its category goes with the last one, with all of them the plan."""
        batcher.deadlines[deadline_ns] -= 1
        if batcher.deadlines[deadline_ns]:
            return
        del batcher.deadlines[deadline_ns]
        if not batcher.deadlines:
            assert not batcher.holds_frames, f"frames of {batcher.category} outlive its streams"
            del self.batchers[batcher.category]
            if all(other.standing is Standing.BEST_EFFORT for other in self.batchers.values()):
                self.follow(None, (), NEVER_NS)

    # ------------------------------------------------------------ the plan

    def follow(self, guard: Guard | None, bound: Iterable[tuple[Slot, Batch]], blocking_ns: int) -> None:
        """Put another plan in force, or none; `bound` are the places of promised batches in it."""
        self.guard = guard
        self.blocking_ns = blocking_ns
        for warm_up in self.warm_ups:
            warm_up.borne = False
        for batch in self.batches.values():
            batch.slot = None
        for slot, batch in bound:
            batch.slot = slot
        for batcher in self.batchers.values():
            if guard is None:
                batcher.place = -1
            if batcher.standing is Standing.BEST_EFFORT:
                self._limit(batcher)

    def _limit(self, batcher: Batcher) -> None:
        """Bound new best-effort batches by what may hold up promised work; one frame is always allowed."""
        sizes = range(1, len(batcher.table))
        batcher.room = max((n for n in sizes if batcher.table[n] <= self.blocking_ns), default=1)
