"""Every accepted frame that has not started: windows, ready queues, expiry and the plan together."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.batch import NEVER_NS, Batch, Move, Standing
from gateway.core.batcher import Batcher
from gateway.core.books import Stream
from gateway.core.config import EngineConfig
from gateway.core.edf import ReadyQueue, by_age
from gateway.core.expiry import Expiries, forget
from gateway.core.guard import Guard
from gateway.core.joints import Joints
from gateway.core.singles import alone
from gateway.core.slots import Slot
from gateway.core.types import NS_PER_MS, Category, Frame, Job


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
        next_job: Id of the next batch.
        best_effort_frames: Frames that wait without any promise to their stream.
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
        self.best_effort_frames = 0
        self._held = (NEVER_NS, -NEVER_NS)
        self._queues = {
            Standing.PROMISED: self.ready,
            Standing.SPARE: self.spare,
            Standing.BEST_EFFORT: self.best_effort,
        }
        self._config = config
        self._expiries = Expiries()
        self._joints = Joints()
        self.next_job = 0

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
        self._joints.watch(batcher)

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

    # ------------------------------------------------------------ best effort gives way

    def hold(self, most_ns: int, until_ns: int) -> None:
        """Let nothing without a promise start that takes longer than `most_ns`, until `until_ns` or `release`."""
        self._held = (most_ns, until_ns)

    def release(self) -> None:
        """The plan that was waited for has been decided on."""
        self._held = (NEVER_NS, -NEVER_NS)

    def held_ns(self, now_ns: int) -> int:
        """Return how long a job without a promise may take that starts at `now_ns`; `NEVER_NS`: nothing is held."""
        most_ns, until_ns = self._held
        return most_ns if now_ns < until_ns else NEVER_NS

    # ------------------------------------------------------------ frames

    def accept(
        self, stream: Stream, batcher: Batcher, now_ns: int, busy_ns: int, deadline_ns: int | None = None
    ) -> Frame:
        """Take the next frame of `stream` into a batch of the current window of `batcher`.

        Args:
            stream: Whose.
            batcher: Its own, or that of its excess.
            now_ns: Its arrival.
            busy_ns: The later of now and the end of the running job.
            deadline_ns: Its relative deadline; None: the stream's.
        """
        demoted = batcher is stream.excess
        if stream.suspect:
            frame = stream.accept(self.next_job, now_ns, deadline_ns=deadline_ns, demoted=demoted)
            return alone(self, frame, batcher.category, batcher.table, max(batcher.standing, Standing.SPARE))
        if not batcher.holds_frames:
            batcher.advance(now_ns)
        batch = self._batch(batcher, stream, now_ns, busy_ns)
        expiry_ns = batch.expiry_ns
        frame = stream.accept(batch.id, now_ns, deadline_ns=deadline_ns, demoted=demoted)
        batch.add(frame)
        self.best_effort_frames += batch.standing is Standing.BEST_EFFORT
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
        batch = batcher.open(self.next_job, standing)
        self.next_job += 1
        self.batches[batch.id] = batch
        self._joints.watch(batcher)
        return batch

    # ------------------------------------------------------------ batches from elsewhere

    def put(self, batch: Batch) -> None:
        """Take in a batch whose id is `next_job`, with its frames. One that is open stands in its window already."""
        self.next_job += 1
        self.batches[batch.id] = batch
        if batch.standing is Standing.BEST_EFFORT:
            self.best_effort_frames += len(batch.frames)
        if batch.release_ns is not None:
            self._queues[batch.standing].push(batch)
        self._expiries.watch(batch)

    def end_window_of(self, batch: Batch, now_ns: int) -> None:
        """Let a batch that is open be ready at once."""
        self.batchers[batch.category].give(batch, now_ns)
        self._queues[batch.standing].push(batch)

    def take_out(self, batch: Batch) -> None:
        """Let go of a batch whose frames others have. One that is open has left its window already."""
        if batch.release_ns is not None:
            self._queues[batch.standing].withdraw(batch)
        self._let_go(batch)

    def _let_go(self, batch: Batch) -> None:
        del self.batches[batch.id]
        forget(batch)
        if batch.standing is Standing.BEST_EFFORT:
            self.best_effort_frames -= len(batch.frames)

    # ------------------------------------------------------------ frames go

    def withdraw(self, frame: Frame) -> tuple[Move, ...] | None:
        """Take a frame out; return what moved in its batch, or None when its job has started."""
        batch = self.batches.get(frame.job)
        if batch is None:
            return None
        move = batch.remove(batch.frames.index(frame))
        self._settle(batch, 1)
        return (move,) if move else ()

    def expire(self, now_ns: int) -> list[tuple[str, tuple[Frame, ...], tuple[Move, ...]]]:
        """Take out every droppable frame that is late at `now_ns`; return them by reason, and what moved meanwhile."""
        found: dict[str, tuple[list[Frame], list[Move]]] = {}
        while (batch := self._expiries.due(now_ns)) is not None:
            frames, moves = batch.expire(now_ns)
            gone, moved = found.setdefault(self._why_late(batch), ([], []))
            gone += frames
            moved += moves
            self._settle(batch, len(frames))
        return [(reason, tuple(gone), tuple(moved)) for reason, (gone, moved) in found.items()]

    def give_up(self, batch: Batch, now_ns: int, typical: tuple[int, ...]) -> tuple[list[Frame], list[Move]]:
        """Take out of a batch that is to start now what cannot be in time any more, as `Batch.give_up` does.

        Best effort stays: its deadline is one for the start.
        """
        if batch.standing is Standing.BEST_EFFORT:
            return [], []
        gone, moved = batch.give_up(now_ns, typical)
        if gone:
            self._settle(batch, len(gone))
        return gone, moved

    def _why_late(self, batch: Batch) -> str:
        """Say why a batch did not start in time: a best-effort one may be longer than promised work can bear."""
        least_ns = batch.table[1]
        if batch.standing is Standing.BEST_EFFORT and self.taking and least_ns > self.blocking_ns:
            mine_ms, most_ms = least_ns / NS_PER_MS, self.blocking_ns / NS_PER_MS
            return f"too_long: it takes {mine_ms:.1f} ms, and promised work can wait for {most_ms:.1f} ms at most"
        return "expired"

    def _settle(self, batch: Batch, gone: int) -> None:
        """Put a batch in order after `gone` frames have left it; an empty one vanishes."""
        if batch.standing is Standing.BEST_EFFORT:
            self.best_effort_frames -= gone
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
        while (batcher := self._joints.due(now_ns)) is not None:
            for batch in batcher.close(now_ns):
                self._queues[batch.standing].push(batch)
        if self.guard is not None:
            self.guard.advance(now_ns)

    def next_change_ns(self, now_ns: int) -> int:
        """Return when, after `now_ns`, time alone may give a free device something to do; `NEVER_NS` for nothing."""
        joint_ns = self._joints.next_ns()
        if self._held[1] > now_ns and self.batches:
            joint_ns = min(joint_ns, self._held[1])
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
        self._let_go(batch)
        job = batch.job(early=early)
        if batch.slot is not None and self.guard is not None:
            self.guard.start(batch.slot, batch)
        return job
