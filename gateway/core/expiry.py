"""When the next waiting frame becomes too late.

The structure is that of trio's ``Deadlines`` (``trio/_core/_run.py``): a heap whose entries are dropped lazily
when they no longer hold, and pruned when most of them do not.
"""

from __future__ import annotations

import heapq

from gateway.core.batch import NEVER_NS, Batch

#: Entries that are tolerated, beyond twice those that held last time, before the heap is rebuilt.
_SLACK = 1_000


class Expiries:
    """Batches by the earliest deadline of their droppable frames.

    An entry holds as long as its batch waits and still has that ``expiry_ns``; a batch that starts or
    vanishes is `forget`-ted, which costs nothing here.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Batch]] = []
        self._limit = _SLACK

    def watch(self, batch: Batch) -> None:
        """Take note of a batch whose ``expiry_ns`` is new or has changed."""
        if batch.expiry_ns != NEVER_NS:
            heapq.heappush(self._heap, (batch.expiry_ns, batch.id, batch))
            if len(self._heap) > self._limit:
                self._prune()

    def _prune(self) -> None:
        """Rebuild the heap from the entries that hold."""
        self._heap = [entry for entry in self._heap if entry[0] == entry[2].expiry_ns]
        heapq.heapify(self._heap)
        self._limit = 2 * len(self._heap) + _SLACK

    def next_ns(self) -> int:
        """Return the earliest instant at which a frame expires; `NEVER_NS` without any."""
        heap = self._heap
        while heap:
            expiry_ns, _, batch = heap[0]
            if expiry_ns == batch.expiry_ns:
                return expiry_ns
            heapq.heappop(heap)
        return NEVER_NS

    def due(self, now_ns: int) -> Batch | None:
        """Take out the next batch that holds a frame late at `now_ns`; None when there is none."""
        return heapq.heappop(self._heap)[2] if self.next_ns() <= now_ns else None


def forget(batch: Batch) -> None:
    """Make every entry of a batch stale: it has started or is empty."""
    batch.expiry_ns = NEVER_NS
