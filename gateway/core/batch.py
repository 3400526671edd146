"""A batch that has not started: frames that will be one job."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from gateway.core.types import Category, Frame, Job, OnLate

if TYPE_CHECKING:
    from gateway.core.slots import Slot

#: Later than any instant: what "no deadline" compares as.
NEVER_NS = 2**63 - 1

# Members of enumerations that are asked for with every frame or job have a name of their own in this package: looking
# one up in its class takes 80 ns.
_SERVE = OnLate.SERVE

#: ``(job, from_index, to_index)``: the frame at `from_index` now stands at `to_index`.
Move = tuple[int, int, int]


class Standing(IntEnum):
    """What the frames of a batch may expect of the device."""

    #: Their deadline, by the test that admitted their streams.
    PROMISED = 0
    #: Real-time frames beyond their streams' contracts, for which a plan has no place: what is left over.
    SPARE = 1
    #: Of best-effort streams: what is left over then.
    BEST_EFFORT = 2


class Batch:
    """Frames of one category under one job id, open (in a window) or ready (past its joint).

    Frames stand in arrival order, except that a removed frame's place is taken by the last one: their
    bytes stand in the same order in the driver's hands, and closing a hole costs one move.

    Attributes:
        id: The job id, given when the batch is opened; grows with the instant of opening.
        category: Of its frames.
        table: E in ns by batch size.
        frames: Those still in it.
        earliest_ns: Their earliest deadline.
        expiry_ns: The earliest deadline among those that are dropped when late; `NEVER_NS` without any.
        release_ns: The joint, or the start of an early dispatch; None while open.
        deadline_ns: The job's deadline, once ready. It stays when a frame leaves a ready batch: the queue
            keeps the order it was planned in, and a job is never later for being smaller.
        standing: All frames of a batch have the same.
        slot: Its place in the plan in force; None without a plan or a promise.
    """

    __slots__ = (
        "category",
        "deadline_ns",
        "earliest_ns",
        "expiry_ns",
        "frames",
        "id",
        "release_ns",
        "slot",
        "standing",
        "table",
    )

    def __init__(
        self, job_id: int, category: Category, table: tuple[int, ...], standing: Standing = Standing.PROMISED
    ) -> None:
        self.id = job_id
        self.category = category
        self.table = table
        self.standing = standing
        self.slot: Slot | None = None
        self.frames: list[Frame] = []
        self.earliest_ns = NEVER_NS
        self.expiry_ns = NEVER_NS
        self.release_ns: int | None = None
        self.deadline_ns = NEVER_NS

    def add(self, frame: Frame) -> None:
        """Append a frame and keep both earliest deadlines."""
        self.frames.append(frame)
        deadline_ns = frame.deadline_ns
        self.earliest_ns = min(self.earliest_ns, deadline_ns)
        if deadline_ns < self.expiry_ns and frame.on_late is not _SERVE:
            self.expiry_ns = deadline_ns

    def remove(self, index: int) -> Move | None:
        """Take the frame at `index` out; the last one takes its place.

        Returns:
            What moved, or None when the removed frame was the last.
        """
        last = self.frames.pop()
        move = None
        if index < len(self.frames):
            self.frames[index] = last
            move = (self.id, len(self.frames), index)
        self._settle()
        return move

    def expire(self, now_ns: int) -> tuple[list[Frame], list[Move]]:
        """Take out every frame that is late at `now_ns` and not to be served late.

        Returns:
            The frames and the moves, both in the order they were carried out.
        """
        gone: list[Frame] = []
        moves: list[Move] = []
        index = 0
        while index < len(self.frames):
            frame = self.frames[index]
            if frame.deadline_ns <= now_ns and frame.on_late is not _SERVE:
                gone.append(frame)
                move = self.remove(index)
                if move:
                    moves.append(move)
            else:
                index += 1
        return gone, moves

    def give_up(self, now_ns: int, typical: tuple[int, ...]) -> tuple[list[Frame], list[Move]]:
        """Take out every frame that would be late if the batch started at `now_ns`, and is not to be served late.

        Those due first go, until the rest is in time if it takes as long as is `typical` by batch size.

        Returns:
            As `expire`.
        """
        gone: list[Frame] = []
        moves: list[Move] = []
        while self.frames and now_ns + typical[len(self.frames)] > self.expiry_ns:
            due_ns = self.expiry_ns
            index = next(i for i, f in enumerate(self.frames) if f.deadline_ns == due_ns and f.on_late is not _SERVE)
            gone.append(self.frames[index])
            move = self.remove(index)
            if move:
                moves.append(move)
        return gone, moves

    def job(self, frames: tuple[Frame, ...] | None = None, *, early: bool = False) -> Job:
        """Return the job that this released batch is, with its own frames or those given."""
        assert self.release_ns is not None, f"job {self.id} has not been released"
        if frames is None:
            frames = tuple(self.frames)
        planned_end_ns = None if self.slot is None else self.slot.end_ns
        execution_ns = self.table[len(frames)]
        return Job(
            self.id, self.category, frames, self.release_ns, self.deadline_ns, execution_ns, early, planned_end_ns
        )

    def _settle(self) -> None:
        frames = self.frames
        self.earliest_ns = min((f.deadline_ns for f in frames), default=NEVER_NS)
        self.expiry_ns = min((f.deadline_ns for f in frames if f.on_late is not _SERVE), default=NEVER_NS)
