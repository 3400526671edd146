"""Frames in batches of their own.

Those of suspect streams, second tries, all of a category that takes no batches, and those without a promise whose batch
has become too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.core.batch import Batch, Standing
from gateway.core.types import Category, Frame

if TYPE_CHECKING:
    from gateway.core.batcher import Batcher
    from gateway.core.waiting import Waiting


def alone(waiting: Waiting, frame: Frame, category: Category, table: tuple[int, ...], standing: Standing) -> Frame:
    """Let a frame that has just come be a batch, ready at once; its `job` is `Waiting.next_job`."""
    _put(waiting, frame, category, table, standing, release_ns=frame.arrival_ns)
    return frame


def retry(waiting: Waiting, frame: Frame, category: Category, table: tuple[int, ...], now_ns: int) -> Frame:
    """Let a frame of a job that has failed be a batch, ready at once and without a promise."""
    frame = replace(frame, job=waiting.next_job)
    _put(waiting, frame, category, table, Standing.SPARE, release_ns=now_ns)
    return frame


def _put(
    waiting: Waiting, frame: Frame, category: Category, table: tuple[int, ...], standing: Standing, *, release_ns: int
) -> None:
    batch = Batch(frame.job, category, table, standing)
    batch.add(frame)
    batch.release_ns, batch.deadline_ns = release_ns, frame.deadline_ns
    waiting.put(batch)


def split(waiting: Waiting, batcher: Batcher, table: tuple[int, ...]) -> Iterator[tuple[Batch, list[Batch]]]:
    """Let every batch of a category hold one frame, from now on and among those that wait, which keep their places.

    Returns:
        Each batch that was split, its frames still in it, with what has taken its place. The plan in force does not
        know them: another has to follow.
    """
    batcher.table, batcher.room = table, 1
    own = [batch for batch in waiting.batches.values() if batch.category == batcher.category and len(batch.frames) > 1]
    for batch in own:
        parts = [_part(waiting, batch, frame, table) for frame in batch.frames]
        if batch.release_ns is None:
            batcher.replace(batch, parts)
        waiting.take_out(batch)
        yield batch, parts


def shorten(waiting: Waiting, now_ns: int) -> Iterator[tuple[Batch, list[Batch]]]:
    """Let batches without a promise hold one frame, ready at once, that are longer than `Waiting.blocking_ns`.

    Returns:
        As `split`.
    """
    unpromised = (batch for batch in waiting.batches.values() if batch.standing is not Standing.PROMISED)
    most_ns = waiting.blocking_ns
    for batch in [b for b in unpromised if len(b.frames) > 1 and b.table[len(b.frames)] > most_ns]:
        if batch.release_ns is None:
            # The next frame of its window must not come to stand in one of the parts.
            waiting.end_window_of(batch, now_ns)
        parts = [_part(waiting, batch, frame, batch.table) for frame in batch.frames]
        waiting.take_out(batch)
        yield batch, parts


def _part(waiting: Waiting, batch: Batch, frame: Frame, table: tuple[int, ...]) -> Batch:
    """Put a frame of `batch` into a batch of its own, which stands beside it until it is taken out."""
    part = Batch(waiting.next_job, batch.category, table, batch.standing)
    part.add(replace(frame, job=part.id))
    part.release_ns, part.deadline_ns = batch.release_ns, batch.deadline_ns
    waiting.put(part)
    return part
