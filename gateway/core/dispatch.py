"""What an idle device should run now: by plain EDF, or by the plan in force.

Nothing of a model that is not in memory (`Waiting.barred`) is looked at: whatever comes after it in the order does not
wait for it. First executions after a load (`Waiting.warm_ups`) come before best effort, and as best effort do.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from gateway.core.batch import NEVER_NS, Batch, Standing
from gateway.core.batcher import Batcher
from gateway.core.edf import by_age, by_deadline
from gateway.core.guard import Guard
from gateway.core.waiting import Waiting


def choose(waiting: Waiting, now_ns: int, *, early: bool) -> Batch | None:
    """Return what to start at `now_ns`; None: wait.

    Args:
        waiting: What there is.
        now_ns: The device is free then.
        early: Whether frames may leave their windows before the joint.
    """
    if not waiting.batches and not waiting.warm_ups and not waiting.ready:
        return None
    guard = waiting.guard
    return _by_edf(waiting, now_ns, early=early) if guard is None else _by_plan(waiting, guard, now_ns, early=early)


def _by_edf(waiting: Waiting, now_ns: int, *, early: bool) -> Batch | None:
    """Return the first ready batch; with none, and if `early`, the waiting one with the earliest deadline.

    Frames without a promise follow when there is neither, as long as they hold up promised work by no more than the
    admission test allows for.
    """
    if waiting.ready:
        first = waiting.first_ready()
        if first is not None:
            return first
    if early:
        holding = [b for b in _open_windows(waiting) if b.batches and b.standing is Standing.PROMISED]
        if holding:
            return (holding[0] if len(holding) == 1 else min(holding, key=urgency)).first()
    if (warm_up := _urgent(waiting)) is not None:
        return warm_up
    promised = waiting.taking or any(b.batches and b.standing is Standing.PROMISED for b in waiting.batchers.values())
    most_ns = min(waiting.held_ns(now_ns), waiting.blocking_ns if promised else NEVER_NS)
    for batch in _unpromised(waiting, early=early):
        if batch.table[len(batch.frames)] <= most_ns:
            return batch
    return None


def _open_windows(waiting: Waiting) -> Iterable[Batcher]:
    """Windows of which something may start."""
    barred = waiting.barred
    if not barred:
        return waiting.batchers.values()
    return [batcher for batcher in waiting.batchers.values() if batcher.category.model not in barred]


def _runnable(waiting: Waiting, queue: Iterable[Batch]) -> Iterable[Batch]:
    """Those of a queue that may start."""
    barred = waiting.barred
    return (batch for batch in queue if batch.category.model not in barred) if barred else queue


def _urgent(waiting: Waiting) -> Batch | None:
    """The first of the first executions for which a promise waits."""
    return next((warm_up for warm_up in waiting.warm_ups if warm_up.urgent), None)


def urgency(batcher: Batcher) -> tuple[int, int]:
    """The order in which open windows give up their first batches: by its deadline."""
    first = batcher.first()
    # Ids grow with the instant of opening, so equal deadlines go by the first arrival.
    return (batcher.own_deadline_ns(first), first.id)


def _unpromised(waiting: Waiting, *, early: bool) -> Iterator[Batch]:
    yield from _runnable(waiting, waiting.spare)
    if early:
        # No promised frame waits where this is asked, so the first batch of such a window is a spare one.
        spare = [b for b in _open_windows(waiting) if b.spare]
        yield from (b.first() for b in sorted(spare, key=urgency))
    yield from _left_over(waiting, early=early)


def _left_over(waiting: Waiting, *, early: bool) -> Iterator[Batch]:
    """First executions, then best effort."""
    yield from waiting.warm_ups
    yield from _best_effort(waiting, early=early)


def _best_effort(waiting: Waiting, *, early: bool) -> Iterator[Batch]:
    """Oldest first, whether past their joint or waiting for it."""
    firsts: list[Batch] = []
    if early:
        firsts = [b.batches[0] for b in _open_windows(waiting) if b.batches and b.standing is Standing.BEST_EFFORT]
        firsts.sort(key=by_age)
    ready: Iterable[Batch] = waiting.best_effort
    if waiting.barred:
        ages = waiting.ages
        ready = _runnable(waiting, ready) if ages is None else ages.best_effort(waiting.barred)
    yield from heapq.merge(ready, firsts, key=by_age) if firsts else ready


def _by_plan(waiting: Waiting, guard: Guard, now_ns: int, *, early: bool) -> Batch | None:
    """Return the first slot's batch once it is released, EDF head or not; until then the first that does no harm."""
    head = guard.head(waiting.barred) if waiting.barred else guard.slots.head
    if head is not None and head.release_ns <= now_ns:
        assert head.batch is not None, "an empty slot has outlived its joint"
        return head.batch
    for batch in _real_time(waiting, early=early):
        if now_ns + batch.table[len(batch.frames)] <= batch.expiry_ns and guard.allows(batch, now_ns):
            return batch
    if (warm_up := _urgent(waiting)) is not None:
        return warm_up
    most_ns = waiting.held_ns(now_ns)
    for batch in _left_over(waiting, early=early):
        if batch.table[len(batch.frames)] <= most_ns and guard.allows(batch, now_ns):
            return batch
    return None


def _real_time(waiting: Waiting, *, early: bool) -> Iterator[Batch]:
    """Released batches by deadline, then the first of each open window by deadline."""
    ready = _runnable(waiting, waiting.ready)
    yield from heapq.merge(ready, _runnable(waiting, waiting.spare), key=by_deadline) if waiting.spare else ready
    if early:
        holding = [b for b in _open_windows(waiting) if b.holds_frames and b.standing is Standing.PROMISED]
        yield from (b.first() for b in (sorted(holding, key=urgency) if len(holding) > 1 else holding))
