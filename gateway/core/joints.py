"""When the next window that holds frames ends.

A heap whose entries are dropped lazily, like that of `gateway.core.expiry`: windows move, and an early dispatch empties
them.
"""

from __future__ import annotations

import heapq

from gateway.core.batch import NEVER_NS
from gateway.core.batcher import Batcher


class Joints:
    """Joints by time, those of one instant in the order in which they were noted."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Batcher]] = []
        self._noted = 0

    def watch(self, batcher: Batcher) -> None:
        """Take note of the current joint of a category, if its window holds frames; once per joint."""
        if batcher.holds_frames and batcher.arm():
            self._noted += 1
            heapq.heappush(self._heap, (batcher.joint_ns, self._noted, batcher))

    def due(self, now_ns: int) -> Batcher | None:
        """Take out the next one whose window is to end at `now_ns`; None when there is none."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            joint_ns, _, batcher = heapq.heappop(heap)
            if batcher.due_at(joint_ns):
                return batcher
        return None

    def next_ns(self) -> int:
        """Return the next joint of a window that holds frames; `NEVER_NS` without any."""
        heap = self._heap
        while heap:
            joint_ns, _, batcher = heap[0]
            if batcher.due_at(joint_ns):
                return joint_ns
            heapq.heappop(heap)
            batcher.disarm(joint_ns)
        return NEVER_NS
