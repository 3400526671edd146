"""Every accepted frame that has not started: windows, the ready queue and expiry together."""

from __future__ import annotations

import heapq

from gateway.core.batch import NEVER_NS, Batch, Move
from gateway.core.batcher import Batcher
from gateway.core.books import Stream
from gateway.core.config import EngineConfig
from gateway.core.edf import ReadyQueue
from gateway.core.expiry import Expiries, forget
from gateway.core.types import Category, Frame, Job


class Waiting:
    """Batches from the arrival of their first frame to their start.

    Attributes:
        batchers: Windows by category, in order of each category's first admission.
        ready: Batches past their joint.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.batchers: dict[Category, Batcher] = {}
        self.ready = ReadyQueue()
        self._config = config
        self._batches: dict[int, Batch] = {}
        self._expiries = Expiries()
        self._joints: list[tuple[int, int, Batcher]] = []
        self._armed = 0
        self._next_job = 0

    # ------------------------------------------------------------ categories

    def join(self, category: Category, table: tuple[int, ...], window_ns: int, now_ns: int) -> Batcher:
        """Take in a stream whose W is `window_ns`: open the category's first window, or shrink the one it has."""
        batcher = self.batchers.get(category)
        if batcher is None:
            batcher = Batcher(category, table, window_ns, now_ns, self._config.job_deadline)
            self.batchers[category] = batcher
        else:
            batcher.shrink(window_ns, now_ns)
            self._arm(batcher)
        batcher.streams += 1
        return batcher

    def leave(self, batcher: Batcher) -> None:
        """Let a stream go that has no frame left; with the last one its category goes."""
        batcher.streams -= 1
        if not batcher.streams:
            assert not batcher.batches, f"frames of {batcher.category} outlive its streams"
            del self.batchers[batcher.category]

    # ------------------------------------------------------------ frames

    def accept(self, stream: Stream, now_ns: int) -> Frame:
        """Take the next frame of `stream` into the open batch of its category, or into a new one."""
        batcher = stream.batcher
        if batcher.has_room():
            batch = batcher.batches[-1]
        else:
            if not batcher.batches:
                batcher.advance(now_ns)
            batch = batcher.open(self._next_job)
            self._batches[batch.id] = batch
            self._next_job += 1
            self._arm(batcher)
        expiry_ns = batch.expiry_ns
        frame = stream.accept(batch.id, now_ns)
        batch.add(frame)
        if batch.expiry_ns != expiry_ns:
            self._expiries.watch(batch)
        return frame

    def withdraw(self, frame: Frame) -> tuple[Move, ...] | None:
        """Take a frame out; return what moved in its batch, or None when its job has started."""
        batch = self._batches.get(frame.job)
        if batch is None:
            return None
        move = batch.remove(batch.frames.index(frame))
        self._settle(batch)
        return (move,) if move else ()

    def expire(self, now_ns: int) -> tuple[list[Frame], list[Move]]:
        """Take out every droppable frame that is late at `now_ns`, and return what moved meanwhile."""
        gone: list[Frame] = []
        moved: list[Move] = []
        while (batch := self._expiries.due(now_ns)) is not None:
            frames, moves = batch.expire(now_ns)
            gone += frames
            moved += moves
            self._settle(batch)
        return gone, moved

    def _settle(self, batch: Batch) -> None:
        """Put a batch in order after frames have left it; an empty one vanishes."""
        if batch.frames:
            self._expiries.watch(batch)
            return
        del self._batches[batch.id]
        if batch.release_ns is None:
            self.batchers[batch.category].batches.remove(batch)
        else:
            self.ready.withdraw(batch)

    # ------------------------------------------------------------ time

    def close_windows(self, now_ns: int) -> None:
        """End every window whose joint has come; what it holds becomes ready."""
        joints = self._joints
        while joints and joints[0][0] <= now_ns:
            joint_ns, _, batcher = heapq.heappop(joints)
            if batcher.due_at(joint_ns):
                for batch in batcher.close(now_ns):
                    self.ready.push(batch)

    def _arm(self, batcher: Batcher) -> None:
        """Remember the joint of a window that holds frames."""
        if batcher.batches and batcher.arm():
            self._armed += 1
            heapq.heappush(self._joints, (batcher.joint_ns, self._armed, batcher))

    def next_joint_ns(self) -> int:
        """Return the next joint of a window that holds frames; `NEVER_NS` without any."""
        joints = self._joints
        while joints and not joints[0][2].due_at(joints[0][0]):
            joint_ns, _, batcher = heapq.heappop(joints)
            batcher.disarm(joint_ns)
        return joints[0][0] if joints else NEVER_NS

    def next_expiry_ns(self) -> int:
        """Return when the next frame expires; `NEVER_NS` without any."""
        return self._expiries.next_ns()

    # ------------------------------------------------------------ dispatch

    def take(self, now_ns: int) -> Job | None:
        """Take out what an idle device should run now; None when it has to wait.

        The first ready batch by EDF. With nothing ready and early dispatch on: of the windows that hold frames, the
        one whose first batch has the earliest deadline gives that batch away, before its joint.
        """
        early = False
        if self.ready:
            batch = self.ready.pop()
        elif self._config.early_dispatch and self._batches:
            holding = [batcher for batcher in self.batchers.values() if batcher.batches]
            head = holding[0] if len(holding) == 1 else min(holding, key=_urgency)
            batch, early = head.take_first(now_ns), True
        else:
            return None
        del self._batches[batch.id]
        forget(batch)
        return batch.job(early=early)


def _urgency(batcher: Batcher) -> tuple[int, int]:
    # Ids grow with the instant of opening, so equal deadlines go by the first arrival.
    return (batcher.head_deadline_ns(), batcher.batches[0].id)
