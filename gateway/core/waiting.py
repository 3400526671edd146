"""Every accepted frame that has not started: windows, ready queues, expiry and the plan together."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from gateway.core.batch import NEVER_NS, Batch, Move, Standing
from gateway.core.batcher import Batcher
from gateway.core.books import Stream
from gateway.core.config import EngineConfig
from gateway.core.edf import ReadyQueue, by_age
from gateway.core.expiry import Expiries, forget
from gateway.core.guard import Guard
from gateway.core.slots import Slot
from gateway.core.types import Category, Frame, Job


class Waiting:
    """Batches from the arrival of their first frame to their start.

    Attributes:
        batchers: Windows by category, in order of each category's first admission.
        batches: Those that have not started, by job id.
        ready: Promised batches past their joint.
        spare: Likewise, without a promise.
        best_effort: Likewise, of best-effort streams.
        guard: The plan in force; None: plain EDF.
        blocking_ns: The longest execution that may hold up promised work out of its order, without a plan in force.
        taking: Real-time streams that take further frames.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.batchers: dict[Category, Batcher] = {}
        self.batches: dict[int, Batch] = {}
        self.ready = ReadyQueue()
        self.spare = ReadyQueue()
        self.best_effort = ReadyQueue(by_age)
        self.guard: Guard | None = None
        self.blocking_ns = NEVER_NS
        self.taking = 0
        self._queues = {
            Standing.PROMISED: self.ready,
            Standing.SPARE: self.spare,
            Standing.BEST_EFFORT: self.best_effort,
        }
        self._config = config
        self._expiries = Expiries()
        self._joints: list[tuple[int, int, Batcher]] = []
        self._armed = 0
        self._next_job = 0

    # ------------------------------------------------------------ categories

    def batcher(self, category: Category, table: tuple[int, ...], window_ns: int, joint_ns: int) -> Batcher:
        """Return the windows of a category; new ones end at `joint_ns` and every `window_ns` after it."""
        batcher = self.batchers.get(category)
        if batcher is None:
            batcher = Batcher(category, table, window_ns, joint_ns, self._config.job_deadline)
            self.batchers[category] = batcher
            if batcher.standing is Standing.BEST_EFFORT:
                self._limit(batcher)
        return batcher

    def rule(self, batcher: Batcher, window_ns: int, joint_ns: int, now_ns: int) -> None:
        """Let the current window of a category end at `joint_ns`, and W be `window_ns` from then on."""
        batcher.rule(window_ns, joint_ns, now_ns)
        self._arm(batcher)

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

    def follow(self, guard: Guard | None, bound: Iterable[tuple[Slot, Batch]], blocking_ns: int) -> None:
        """Put another plan in force, or none; `bound` are the places of promised batches in it."""
        self.guard = guard
        self.blocking_ns = blocking_ns
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

    # ------------------------------------------------------------ frames

    def accept(self, stream: Stream, now_ns: int, busy_ns: int) -> Frame:
        """Take the next frame of `stream` into a batch of its category's current window.

        `busy_ns` is the later of now and the end of the running job.
        """
        batcher = stream.batcher
        if not batcher.holds_frames:
            batcher.advance(now_ns)
        batch = self._batch(batcher, stream, now_ns, busy_ns)
        expiry_ns = batch.expiry_ns
        frame = stream.accept(batch.id, now_ns)
        batch.add(frame)
        if batch.expiry_ns != expiry_ns:
            self._expiries.watch(batch)
        return frame

    def _batch(self, batcher: Batcher, stream: Stream, now_ns: int, busy_ns: int) -> Batch:
        """Return the batch in which a frame that comes now stands."""
        if self.guard is None or batcher.place < 0:
            return batcher.batches[-1] if batcher.has_room() else self._open(batcher, batcher.standing)
        slot = self.guard.place(batcher, stream, now_ns, busy_ns)
        if slot is None:
            spare = batcher.spare
            return spare[-1] if spare and len(spare[-1].frames) < batcher.room else self._open(batcher, Standing.SPARE)
        if slot.batch is None:
            slot.batch = self._open(batcher, Standing.PROMISED)
            slot.batch.slot = slot
        return slot.batch

    def _open(self, batcher: Batcher, standing: Standing) -> Batch:
        batch = batcher.open(self._next_job, standing)
        self._next_job += 1
        self.batches[batch.id] = batch
        self._arm(batcher)
        return batch

    def withdraw(self, frame: Frame) -> tuple[Move, ...] | None:
        """Take a frame out; return what moved in its batch, or None when its job has started."""
        batch = self.batches.get(frame.job)
        if batch is None:
            return None
        move = batch.remove(batch.frames.index(frame))
        self._settle(batch, 1)
        return (move,) if move else ()

    def expire(self, now_ns: int) -> tuple[list[Frame], list[Move]]:
        """Take out every droppable frame that is late at `now_ns`, and return what moved meanwhile."""
        gone: list[Frame] = []
        moved: list[Move] = []
        while (batch := self._expiries.due(now_ns)) is not None:
            frames, moves = batch.expire(now_ns)
            gone += frames
            moved += moves
            self._settle(batch, len(frames))
        return gone, moved

    def _settle(self, batch: Batch, gone: int) -> None:
        """Put a batch in order after `gone` frames have left it; an empty one vanishes."""
        if batch.slot is not None and self.guard is not None:
            self.guard.withdraw(batch.slot, gone)
        if batch.frames:
            self._expiries.watch(batch)
            return
        del self.batches[batch.id]
        if batch.release_ns is None:
            self.batchers[batch.category].lose(batch)
        else:
            self._queues[batch.standing].withdraw(batch)

    # ------------------------------------------------------------ time

    def advance(self, now_ns: int) -> None:
        """End every window whose joint has come; what it holds becomes ready."""
        joints = self._joints
        while joints and joints[0][0] <= now_ns:
            joint_ns, _, batcher = heapq.heappop(joints)
            if batcher.due_at(joint_ns):
                for batch in batcher.close(now_ns):
                    self._queues[batch.standing].push(batch)
        if self.guard is not None:
            self.guard.advance(now_ns)

    def _arm(self, batcher: Batcher) -> None:
        """Remember the joint of a window that holds frames."""
        if batcher.holds_frames and batcher.arm():
            self._armed += 1
            heapq.heappush(self._joints, (batcher.joint_ns, self._armed, batcher))

    def next_change_ns(self) -> int:
        """Return when time alone may next give a free device something to do; `NEVER_NS` when nothing waits."""
        joints = self._joints
        while joints and not joints[0][2].due_at(joints[0][0]):
            joint_ns, _, batcher = heapq.heappop(joints)
            batcher.disarm(joint_ns)
        joint_ns = joints[0][0] if joints else NEVER_NS
        if self.guard is None or not self.batches:
            return joint_ns
        return min(joint_ns, self.guard.next_change_ns())

    def next_expiry_ns(self) -> int:
        """Return when the next frame expires; `NEVER_NS` without any."""
        return self._expiries.next_ns()

    # ------------------------------------------------------------ dispatch

    def start(self, batch: Batch, now_ns: int) -> Job:
        """Take a batch out that starts now."""
        early = batch.release_ns is None
        if early:
            self.batchers[batch.category].give(batch, now_ns)
        else:
            self._queues[batch.standing].withdraw(batch)
        del self.batches[batch.id]
        forget(batch)
        job = batch.job(early=early)
        if batch.slot is not None and self.guard is not None:
            self.guard.start(batch.slot, batch)
        return job
