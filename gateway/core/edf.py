"""The ready queue: batches past their joint, earliest deadline first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from gateway.core.batch import Batch

_Key = tuple[int, int, int]


class ReadyQueue:
    """Total order by (absolute deadline, release, job id), so equal deadlines never compare payloads.

    Withdrawn batches leave stale heap entries, which are dropped when they come up.
    """

    def __init__(self) -> None:
        self._heap: list[_Key] = []
        self._batches: dict[int, Batch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        """Iterate in the order in which they would be taken."""
        return iter(sorted(self._batches.values(), key=_key))

    def push(self, batch: Batch) -> None:
        """Put in a batch that has a release and a deadline."""
        self._batches[batch.id] = batch
        heapq.heappush(self._heap, _key(batch))

    def pop(self) -> Batch:
        """Take out the first; IndexError when there is none."""
        while True:
            batch = self._batches.pop(heapq.heappop(self._heap)[2], None)
            if batch is not None:
                return batch

    def withdraw(self, batch: Batch) -> None:
        """Take out a batch that has lost its last frame."""
        del self._batches[batch.id]


def _key(batch: Batch) -> _Key:
    assert batch.release_ns is not None, f"job {batch.id} is not past its joint"
    return (batch.deadline_ns, batch.release_ns, batch.id)
