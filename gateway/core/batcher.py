"""Windows: how the frames of one category become batches.

DeepRT's DisBatcher (Yang et al., SEC 2021, arXiv 2105.01803, section 3). A category collects frames in
consecutive windows; what a window holds becomes ready at its joint. The window is half the smallest relative
deadline of the category's streams, so a frame waits at most W for its joint and, when its job ends within
W of that, is done within 2W (Theorem 1).

Three edges decide whether the theorem holds (``docs/decisions``):

- Windows are half-open, ``[open, joint)``: a frame that comes at the joint belongs to the next one.
- W shrinks at once when a stream with a smaller deadline joins, and the joint becomes ``min(joint, now + W)``.
- W grows, when the tightest stream has left, only by a plan that holds for the larger W, and from the current joint on:
  the window that is open keeps its end and its W_win.
"""

from __future__ import annotations

from collections import Counter

from gateway.core.batch import Batch, Standing
from gateway.core.types import Category, JobDeadline, ServiceClass

_SPARE = Standing.SPARE
_WINDOW = JobDeadline.WINDOW


class Batcher:
    """The current window of one category.

    The grid of joints advances by W whatever happens; nothing wakes up for an empty window, which makes
    no job: the grid is brought up to date when the next frame comes.

    Attributes:
        category: Whose frames.
        table: E in ns by batch size, index 0 to the largest batch.
        window_ns: W.
        narrowest_ns: The smallest W in force since the current window opened (W_win).
        joint_ns: End of the current window; in the past while the window is empty and nobody has looked.
        batches: Those opened in this window, by id; without a plan only the last takes further frames.
        spare: Those of frames without a promise, likewise.
        deadlines: How many streams it has of each relative deadline.
        taking: How many of them take further frames.
        room: The most frames of a new batch.
        place: Index of its windows in the plan in force; -1 when it has none there.
    """

    __slots__ = (
        "_armed_ns",
        "_job_deadline",
        "batches",
        "category",
        "deadlines",
        "joint_ns",
        "narrowest_ns",
        "place",
        "room",
        "spare",
        "standing",
        "table",
        "taking",
        "window_ns",
    )

    def __init__(
        self, category: Category, table: tuple[int, ...], window_ns: int, joint_ns: int, job_deadline: JobDeadline
    ) -> None:
        self.category = category
        self.table = table
        self.window_ns = window_ns
        self.narrowest_ns = window_ns
        self.joint_ns = joint_ns
        self.batches: list[Batch] = []
        self.spare: list[Batch] = []
        self.deadlines: Counter[int] = Counter()
        self.taking = 0
        self.room = len(table) - 1
        self.place = -1
        real_time = category.service_class is ServiceClass.REAL_TIME
        self.standing = Standing.PROMISED if real_time else Standing.BEST_EFFORT
        self._job_deadline = job_deadline
        self._armed_ns = -1

    @property
    def holds_frames(self) -> bool:
        """Whether a frame waits in its current window."""
        return bool(self.batches or self.spare)

    @property
    def widest_ns(self) -> int:
        """What W could be by the streams that it has: half their smallest deadline."""
        return min(self.deadlines) // 2

    def next_joint_ns(self, now_ns: int) -> int:
        """Return the first joint after `now_ns` on the grid."""
        behind = now_ns - self.joint_ns
        return self.joint_ns if behind < 0 else self.joint_ns + (behind // self.window_ns + 1) * self.window_ns

    def advance(self, now_ns: int) -> None:
        """Bring the grid up to `now_ns`; the windows that are passed over must be empty."""
        if self.joint_ns <= now_ns:
            assert not self.holds_frames, f"a window of {self.category} that holds frames was passed over"
            self.joint_ns = self.next_joint_ns(now_ns)
            self.narrowest_ns = self.window_ns

    def shrink(self, window_ns: int, now_ns: int) -> None:
        """Take a stream in whose W is `window_ns`; a W that is not smaller changes nothing."""
        if window_ns < self.window_ns:
            self.rule(window_ns, min(self.next_joint_ns(now_ns), now_ns + window_ns), now_ns)

    def rule(self, window_ns: int, joint_ns: int, now_ns: int) -> None:
        """Let W be `window_ns` after the current window, which ends at `joint_ns`."""
        self.advance(now_ns)
        self.window_ns = window_ns
        self.narrowest_ns = min(self.narrowest_ns, window_ns)
        self.joint_ns = joint_ns

    def open(self, job_id: int, standing: Standing) -> Batch:
        """Open another batch in the current window."""
        batch = Batch(job_id, self.category, self.table, standing)
        (self.spare if standing is _SPARE else self.batches).append(batch)
        return batch

    def first(self) -> Batch:
        """Return the batch that is sent first before the joint; IndexError when there is none."""
        return (self.batches or self.spare)[0]

    def deadline_ns(self) -> int:
        """Return the deadline that the jobs of this window share, as its frames stand now."""
        if self._job_deadline is _WINDOW:
            return self.joint_ns + self.narrowest_ns
        return min([batch.earliest_ns for batch in self.batches])

    def own_deadline_ns(self, batch: Batch) -> int:
        """Return the deadline of one batch alone: that of an early dispatch, and of frames without a promise."""
        if self._job_deadline is _WINDOW:
            return self.joint_ns + self.narrowest_ns
        return batch.earliest_ns

    def close(self, now_ns: int) -> list[Batch]:
        """End the window whose joint has come and return its batches as ready: promised ones, then spare ones.

        Their release is the joint, not `now_ns`: the grid does not move when the wake-up is late.
        """
        closed = [*self.batches, *self.spare]
        shared_ns = self.deadline_ns() if self.batches else 0
        for batch in closed:
            batch.release_ns = self.joint_ns
            batch.deadline_ns = self.own_deadline_ns(batch) if batch.standing is _SPARE else shared_ns
        self.batches = []
        self.spare = []
        self.advance(now_ns)
        return closed

    def give(self, batch: Batch, now_ns: int) -> None:
        """Let a batch of the open window go before its joint, released at `now_ns`."""
        batch.deadline_ns = self.own_deadline_ns(batch)
        batch.release_ns = now_ns
        self.lose(batch)

    def lose(self, batch: Batch) -> None:
        """Take a batch out of the open window."""
        (self.spare if batch.standing is _SPARE else self.batches).remove(batch)

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """Let others take the place of a batch of the open window."""
        batches = self.spare if batch.standing is _SPARE else self.batches
        place = batches.index(batch)
        batches[place : place + 1] = parts

    def arm(self) -> bool:
        """Return True once per joint: the engine has to remember it from now on."""
        if self._armed_ns == self.joint_ns:
            return False
        self._armed_ns = self.joint_ns
        return True

    def disarm(self, joint_ns: int) -> None:
        """A remembered joint was dropped; the window may fill again before it comes."""
        if self._armed_ns == joint_ns:
            self._armed_ns = -1

    def due_at(self, joint_ns: int) -> bool:
        """Return whether a remembered joint still closes frames (early dispatch may have taken them)."""
        return self.joint_ns == joint_ns and self.holds_frames
