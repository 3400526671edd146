"""Every accepted frame that has not started: windows, ready queues, expiry and the plan together."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.ages import Ages
from gateway.core.batch import NEVER_NS, Batch, Move, Standing
from gateway.core.batcher import Batcher
from gateway.core.books import Stream
from gateway.core.config import EngineConfig
from gateway.core.expiry import Expiries, forget
from gateway.core.singles import alone
from gateway.core.types import NS_PER_MS, Frame, Job
from gateway.core.windows import Windows

_PROMISED, _SPARE, _BEST_EFFORT = Standing.PROMISED, Standing.SPARE, Standing.BEST_EFFORT


class Waiting(Windows):
    """Batches from the arrival of their first frame to their start.

    Attributes:
        ages: They by model; None without a memory budget, where nobody asks often.
        next_job: Id of the next batch.
        best_effort_frames: Frames that wait without any promise to their stream.
        next_expiry_ns: Returns when the next frame expires; `NEVER_NS` without any.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.ages = Ages() if config.residency.managed else None
        self.next_job = 0
        self.best_effort_frames = 0
        self._expiries = Expiries()
        self.next_expiry_ns = self._expiries.next_ns

    def by_model(self) -> Mapping[str, Mapping[int, Batch]]:
        """Return the models for which batches wait, with these by id, oldest first."""
        ages = self.ages
        if ages is None:
            ages = Ages()
            for batch in self.batches.values():
                ages.add(batch)
        return ages.models

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
        if stream.blamed and stream.suspect:
            frame = stream.accept(self.next_job, now_ns, deadline_ns=deadline_ns, demoted=demoted)
            return alone(self, frame, batcher.category, batcher.table, max(batcher.standing, _SPARE))
        if batcher.joint_ns <= now_ns and not batcher.holds_frames:
            batcher.advance(now_ns)
        batch = self._batch(batcher, stream, now_ns, busy_ns)
        expiry_ns = batch.expiry_ns
        frame = stream.accept(batch.id, now_ns, deadline_ns=deadline_ns, demoted=demoted)
        batch.add(frame)
        if batch.standing is _BEST_EFFORT:
            self.best_effort_frames += 1
        if batch.expiry_ns != expiry_ns:
            self._expiries.watch(batch)
        return frame

    def _batch(self, batcher: Batcher, stream: Stream, now_ns: int, busy_ns: int) -> Batch:
        """Return the batch in which a frame that comes now stands."""
        if self.guard is None or batcher.place < 0:
            batches = batcher.batches
            if batches and len(batches[-1].frames) < batcher.room:
                return batches[-1]
            return self._open(batcher, batcher.standing)
        slot = self.guard.place(batcher, stream, now_ns, busy_ns)
        if slot is None:
            spare = batcher.spare
            return spare[-1] if spare and len(spare[-1].frames) < batcher.room else self._open(batcher, _SPARE)
        if slot.batch is None:
            slot.batch = self._open(batcher, _PROMISED)
            slot.batch.slot = slot
        return slot.batch

    def _open(self, batcher: Batcher, standing: Standing) -> Batch:
        batch = batcher.open(self.next_job, standing)
        self.next_job += 1
        self.batches[batch.id] = batch
        self._joints.watch(batcher)
        if self.ages is not None:
            self.ages.add(batch)
        if self.barred:
            self._note(batch)
        return batch

    # ------------------------------------------------------------ batches from elsewhere

    def put(self, batch: Batch) -> None:
        """Take in a batch whose id is `next_job`, with its frames. One that is open stands in its window already."""
        self.next_job += 1
        self.batches[batch.id] = batch
        if batch.standing is _BEST_EFFORT:
            self.best_effort_frames += len(batch.frames)
        if batch.release_ns is not None:
            self._push(batch)
        self._expiries.watch(batch)
        if self.ages is not None:
            self.ages.add(batch)
        self._note(batch)

    def end_window_of(self, batch: Batch, now_ns: int) -> None:
        """Let a batch that is open be ready at once."""
        self.batchers[batch.category].give(batch, now_ns)
        self._queues[batch.standing].push(batch)

    def take_out(self, batch: Batch) -> None:
        """Let go of a batch whose frames others have. One that is open has left its window already."""
        if batch.release_ns is not None:
            self._queue_of(batch).withdraw(batch)
        self._let_go(batch)

    def _let_go(self, batch: Batch) -> None:
        del self.batches[batch.id]
        if self.ages is not None:
            self.ages.remove(batch)
        forget(batch)
        if batch.standing is _BEST_EFFORT:
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

    def expire(self, now_ns: int, *, lost: bool) -> list[tuple[str, tuple[Frame, ...], tuple[Move, ...]]]:
        """Take out every droppable frame that is late at `now_ns`; return them by reason, and what moved meanwhile."""
        found: dict[str, tuple[list[Frame], list[Move]]] = {}
        while (batch := self._expiries.due(now_ns)) is not None:
            frames, moves = batch.expire(now_ns)
            gone, moved = found.setdefault("expired" if lost else self._why_late(batch), ([], []))
            gone += frames
            moved += moves
            self._settle(batch, len(frames))
        return [(reason, tuple(gone), tuple(moved)) for reason, (gone, moved) in found.items()]

    def give_up(self, batch: Batch, now_ns: int, typical: tuple[int, ...]) -> tuple[list[Frame], list[Move]]:
        """Take out of a batch that is to start now what cannot be in time any more, as `Batch.give_up` does.

        Best effort stays: its deadline is one for the start.
        """
        if batch.standing is _BEST_EFFORT:
            return [], []
        gone, moved = batch.give_up(now_ns, typical)
        if gone:
            self._settle(batch, len(gone))
        return gone, moved

    def _why_late(self, batch: Batch) -> str:
        """Say why a batch did not start in time: a best-effort one may be longer than promised work can bear."""
        least_ns = batch.table[1]
        if batch.category.model in self.barred:
            return "model_not_resident: it was not in memory in time"
        if batch.standing is _BEST_EFFORT and self.taking and least_ns > self.blocking_ns:
            mine_ms, most_ms = least_ns / NS_PER_MS, self.blocking_ns / NS_PER_MS
            return f"too_long: it takes {mine_ms:.1f} ms, and promised work can wait for {most_ms:.1f} ms at most"
        return "expired"

    def _settle(self, batch: Batch, gone: int) -> None:
        """Put a batch in order after `gone` frames have left it; an empty one vanishes."""
        if batch.standing is _BEST_EFFORT:
            self.best_effort_frames -= gone
        if batch.slot is not None and self.guard is not None:
            self.guard.withdraw(batch.slot, gone)
        if batch.frames:
            self._expiries.watch(batch)
            return
        del self.batches[batch.id]
        if self.ages is not None:
            self.ages.remove(batch)
        if batch.release_ns is None:
            self.batchers[batch.category].lose(batch)
        else:
            self._queue_of(batch).withdraw(batch)

    # ------------------------------------------------------------ time

    def advance(self, now_ns: int) -> None:
        """End every window whose joint has come; what it holds becomes ready."""
        while (batcher := self._joints.due(now_ns)) is not None:
            for batch in batcher.close(now_ns):
                if self.turning and batch.release_ns is not None and batch.category.model in self.turning:
                    batch.deadline_ns = min(batch.deadline_ns, batch.release_ns + batcher.window_ns)
                self._push(batch)
                if self.barred:
                    self._note(batch)
        if self.guard is not None:
            self.guard.advance(now_ns)

    def next_change_ns(self, now_ns: int) -> int:
        """Return when, after `now_ns`, time alone may give a free device something to do; `NEVER_NS` for nothing."""
        if not self.batches and not self.warm_ups:
            return NEVER_NS  # no window holds frames either
        joint_ns = self._joints.next_ns()
        if self._held[1] > now_ns:
            joint_ns = min(joint_ns, self._held[1])
        if self.guard is None:
            return joint_ns
        return min(joint_ns, self.guard.next_change_ns())

    def next_joint_ns(self) -> int:
        """Return when the next window ends that holds frames; `NEVER_NS` without any."""
        return self._joints.next_ns()

    # ------------------------------------------------------------ dispatch

    def start(self, batch: Batch, now_ns: int) -> Job:
        """Take a batch out that starts now."""
        early = batch.release_ns is None
        if early:
            self.batchers[batch.category].give(batch, now_ns)
        else:
            self._queue_of(batch).withdraw(batch)
        self._let_go(batch)
        job = batch.job(early=early)
        if batch.slot is not None and self.guard is not None:
            self.guard.start(batch.slot, batch)
        return job
