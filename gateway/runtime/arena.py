"""Where frames wait: each batch has one block, each frame one slot in it.

The engine names the batch of a frame when the frame arrives (`Frame.job`), so its bytes are copied once, from
the request body to the place from which Triton reads them. A closed batch is then ``n`` frames back to back
from the block's start. Dropping a frame that waits leaves a hole, which the batch's last frame fills
(`DropFrames.moved`): the only second copy there is, and it is counted.

Life of a block::

    reserve ──> slot x n ───> start ──────────────> call_ended ──┐
                   │            └──> finish (engine's outcome) ──┴──> free, when both have come
                   └──> drop the last waiting frame ────────────────> free

A call that was given up on may still be reading its input, so a started batch is freed by the *end of the
call*, whatever the engine has decided about its frames meanwhile.

The frames of a batch that failed can be tried again one by one: `hand_over` makes each a batch of its own that lies
where the frame lies. The block is free when the last of all its batches is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.errors import ArenaFull, ArenaTooSmall
from gateway.runtime.allocator import Allocator, aligned
from gateway.runtime.region import Region

#: A batch lives for about a window; by then there is room again.
_RETRY_AFTER_S = 1.0


@dataclass(slots=True, eq=False)
class _Block:
    """Memory of one batch, or of several that were one. `users`: those that are not over.

    `view`: the region, or, with an `offset` of 0 and nothing to give back, memory of its own.
    """

    view: memoryview
    offset: int
    shared: bool
    users: int = 1


@dataclass(slots=True, eq=False)
class _Batch:
    block: _Block
    offset: int
    frame_bytes: int
    capacity: int
    count: int = 0
    in_call: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """Contiguous memory: of the region, if `shared`, else of a block beside it. `offset` and `size` in bytes."""

    block: memoryview
    offset: int
    size: int
    shared: bool

    @property
    def view(self) -> memoryview:
        """The bytes. Not kept here: the region can only be closed when nobody looks into it."""
        return self.block[self.offset : self.offset + self.size]


class Arena:
    """Blocks of one region, by batch.

    Attributes:
        moves: How often a frame was copied a second time.
        overflows: How many batches found no block in the region and lie in memory of their own.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self.moves = 0
        self.overflows = 0
        self._allocator = Allocator(region.size)
        self._batches: dict[int, _Batch] = {}
        self._reserved: deque[_Block] = deque()
        #: A block that was reserved last and not needed, kept for the next call: most frames come to a batch that is
        #: open. It counts as free, and is, for whoever finds no other.
        self._spare: _Block | None = None
        self._spare_bytes = 0
        self._frame_bytes = self._capacity = self._leave_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Bytes in no batch's block."""
        return self._allocator.free_bytes + self._spare_bytes

    @property
    def batches(self) -> int:
        """Number of blocks in use."""
        return self._allocator.blocks - (self._spare is not None)

    def check_fits(self, frame_bytes: int, capacity: int) -> None:
        """Raise `ArenaTooSmall` when a batch of this size fits not even into an empty arena."""
        if aligned(frame_bytes * capacity) > self._allocator.size:
            raise ArenaTooSmall(
                f"One batch of {capacity} frames of {frame_bytes} bytes needs {frame_bytes * capacity} bytes; the "
                f"frame arena has {self._allocator.size} (FRAMEGATE_ARENA__BYTES).",
                needed_bytes=frame_bytes * capacity,
                arena_bytes=self._allocator.size,
            )

    # ------------------------------------------------------------ frames come

    def reserve(self, frames: int, frame_bytes: int, capacity: int, leave_bytes: int = 0) -> None:
        """Make sure that the next `frames` calls of `slot` find room.

        Whether the open batch still takes them is the engine's to say, and only once it has been told of them; so
        room for new batches is asked for even where the open one will do. It may also spread them over more batches
        than would hold them: those take a block where `leave_bytes` are left beside it, else memory of their own.

        Raises:
            ArenaFull: Nothing was reserved: there is no room, or less than `leave_bytes` would be left of it.
        """
        needed = -(-frames // capacity)
        if leave_bytes and self.free_bytes - needed * frame_bytes * capacity < leave_bytes:
            raise ArenaFull(
                f"The frame arena has {self.free_bytes} bytes left; {leave_bytes} are kept for frames that keep their "
                "stream's contract.",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._frame_bytes, self._capacity, self._leave_bytes = frame_bytes, capacity, leave_bytes
        for _ in range(needed):
            block = self._take_spare(frame_bytes * capacity) or self._allocate(frame_bytes * capacity)
            if block is None:
                self.unreserve()
                raise ArenaFull(
                    f"The frame arena has {self.free_bytes} bytes left, in pieces; a batch needs "
                    f"{frame_bytes * capacity}.",
                    retry_after_s=_RETRY_AFTER_S,
                )
            self._reserved.append(block)

    def _take_spare(self, size: int) -> _Block | None:
        if self._spare_bytes != aligned(size):
            return None
        block, self._spare, self._spare_bytes = self._spare, None, 0
        return block

    def _allocate(self, size: int) -> _Block | None:
        offset = self._allocator.allocate(size)
        if offset is None and self._spare is not None:
            self._allocator.free(self._spare.offset)
            self._spare, self._spare_bytes = None, 0
            offset = self._allocator.allocate(size)
        return None if offset is None else _Block(self.region.view, offset, shared=True)

    def _new_block(self) -> _Block:
        """Return a block for another batch of what was reserved last."""
        if self._reserved:
            return self._reserved.popleft()
        size = self._frame_bytes * self._capacity
        block = self._allocate(size) if self.free_bytes - aligned(size) >= self._leave_bytes else None
        if block is None:
            self.overflows += 1
            block = _Block(memoryview(bytearray(size)), 0, shared=False)  # pages that no frame touches cost nothing
        return block

    def unreserve(self) -> None:
        """Give back what `slot` did not need."""
        while self._reserved:
            block = self._reserved.pop()
            if self._spare is None:
                self._spare, self._spare_bytes = block, aligned(self._frame_bytes * self._capacity)
            else:
                self._allocator.free(block.offset)

    def slot(self, job: int) -> memoryview:
        """Return the next slot of a batch, for one frame of those reserved last: whoever asks writes to it at once."""
        batch = self._batches.get(job)
        if batch is None:
            block = self._new_block()
            batch = self._batches[job] = _Batch(block, block.offset, self._frame_bytes, self._capacity)
        if batch.count >= batch.capacity or batch.frame_bytes != self._frame_bytes:
            raise RuntimeError(
                f"batch {job} holds {batch.count} of {batch.capacity} frames of {batch.frame_bytes} bytes; "
                f"a frame of {self._frame_bytes} does not fit"
            )
        start = batch.offset + batch.count * batch.frame_bytes
        batch.count += 1
        return batch.block.view[start : start + batch.frame_bytes]

    # ------------------------------------------------------------ frames go

    def move(self, job: int, source: int, target: int) -> None:
        """Copy the frame in slot `source` of a waiting batch over the one in slot `target`."""
        batch = self._batches[job]
        view, size = batch.block.view, batch.frame_bytes
        start, end = batch.offset + source * size, batch.offset + target * size
        view[end : end + size] = view[start : start + size]
        self.moves += 1

    def drop(self, job: int) -> None:
        """One frame of this batch has ended without a result; with the last one the batch is over."""
        batch = self._batches[job]
        batch.count -= 1
        if batch.count == 0:
            self.finish(job)

    def hand_over(self, job: int, frames: Iterable[tuple[int, int]]) -> None:
        """Let frames of a batch be batches of their own, where they lie; the batch is over when that was all of it.

        Args:
            job: Waiting, or its call has ended.
            frames: Of each the id of its new batch, and its slot in the old one. Holes are not closed.
        """
        batch = self._batches[job]
        size, block = batch.frame_bytes, batch.block
        for new_job, index in frames:
            self._batches[new_job] = _Batch(block, batch.offset + index * size, size, capacity=1, count=1)
            block.users += 1
            batch.count -= 1
        if batch.count == 0:
            self.finish(job)

    def start(self, job: int, frames: int) -> Span:
        """The batch is sent: return where it lies. From now on the block is held until `call_ended`."""
        batch = self._batches[job]
        if batch.count != frames:
            raise RuntimeError(f"batch {job} is started with {frames} frames, but {batch.count} were placed")
        batch.in_call = True
        return self._span(batch.block, batch.offset, frames * batch.frame_bytes)

    def call_ended(self, job: int) -> None:
        """Nobody reads the batch's block any more."""
        batch = self._batches[job]
        batch.in_call = False
        self._free_if_over(job, batch)

    def finish(self, job: int) -> None:
        """The engine is done with the batch: all its frames have their outcome."""
        batch = self._batches[job]
        batch.finished = True
        self._free_if_over(job, batch)

    @contextmanager
    def lend(self, size: int, *, clear: bool = True) -> Iterator[Span]:
        """Hold a block that belongs to no batch; of zeros, if `clear`. Raises `ArenaFull`."""
        block = self._allocate(size)
        if block is None:
            raise ArenaFull(f"The frame arena has no {size} bytes in one piece.", retry_after_s=_RETRY_AFTER_S)
        span = self._span(block, block.offset, size)
        if clear:
            span.view[:] = bytes(size)
        try:
            yield span
        finally:
            self._allocator.free(block.offset)

    @staticmethod
    def _span(block: _Block, offset: int, size: int) -> Span:
        return Span(block.view, offset, size, block.shared)

    def close(self) -> None:
        """Unlink and unmap the region."""
        self.region.close()

    def _free_if_over(self, job: int, batch: _Batch) -> None:
        if batch.finished and not batch.in_call:
            del self._batches[job]
            batch.block.users -= 1
            if batch.block.users == 0 and batch.block.shared:
                self._allocator.free(batch.block.offset)
