"""Ready queues: batches past their joint, earliest deadline first; of best effort, oldest first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from gateway.core.batch import Batch

_Key = tuple[int, ...]


def by_deadline(batch: Batch) -> _Key:
    """EDF, a total order by (absolute deadline, release, job id), so equal deadlines never compare payloads."""
    assert batch.release_ns is not None, f"job {batch.id} is not past its joint"
    return (batch.deadline_ns, batch.release_ns, batch.id)


def by_age(batch: Batch) -> _Key:
    """First come, first served: ids grow with the arrival of a batch's first frame."""
    return (batch.id,)


class ReadyQueue:
    """Batches in the order in which they are to be taken.

    Kept as a sorted list: a queue is short, and a device that waits on purpose looks at all of it.

    Attributes:
        keys: Their places in the order; empty if there are none.
    """

    def __init__(self, order: Callable[[Batch], _Key] = by_deadline) -> None:
        self._order = order
        self.keys: list[_Key] = []
        self._batches: dict[int, Batch] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, batch: Batch) -> bool:
        return batch.id in self._batches

    def __iter__(self) -> Iterator[Batch]:
        """Iterate in the order in which they would be taken."""
        batches = self._batches
        return (batches[key[-1]] for key in self.keys)

    def push(self, batch: Batch) -> None:
        """Put in a batch that has a release and a deadline."""
        self._batches[batch.id] = batch
        insort(self.keys, self._order(batch))

    def first(self) -> Batch:
        """Return the first; IndexError when there is none."""
        return self._batches[self.keys[0][-1]]

    def withdraw(self, batch: Batch) -> None:
        """Take out a batch that starts or has lost its last frame."""
        del self._batches[batch.id]
        del self.keys[bisect_left(self.keys, self._order(batch))]
