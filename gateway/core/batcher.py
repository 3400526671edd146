"""Windows: how the frames of one category become batches.

DeepRT's DisBatcher (Yang et al., SEC 2021, arXiv 2105.01803, section 3). A category collects frames in
consecutive windows; what a window holds becomes ready at its joint. The window is half the smallest relative
deadline of the category's streams, so a frame waits at most W for its joint and, when its job ends within
W of that, is done within 2W (Theorem 1).

Three edges decide whether the theorem holds (``docs/decisions``):

- Windows are half-open, ``[open, joint)``: a frame that comes at the joint belongs to the next one.
- W shrinks at once when a stream with a smaller deadline joins, and the joint becomes ``min(joint, now + W)``.
- W never grows while the category exists. Growing it when the tightest stream leaves is safe only with a
  plan that holds for the larger W; until the engine keeps such plans, a category that has lost its tightest
  stream batches less than it could. The category goes, and W with it, when its last stream ends.
"""

from __future__ import annotations

from gateway.core.batch import Batch
from gateway.core.types import Category, JobDeadline


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
        batches: Those opened in this window, by id; only the last takes further frames.
        streams: How many streams of the category the engine still holds.
    """

    __slots__ = (
        "_armed_ns",
        "_job_deadline",
        "batches",
        "category",
        "joint_ns",
        "narrowest_ns",
        "streams",
        "table",
        "window_ns",
    )

    def __init__(
        self, category: Category, table: tuple[int, ...], window_ns: int, now_ns: int, job_deadline: JobDeadline
    ) -> None:
        self.category = category
        self.table = table
        self.window_ns = window_ns
        self.narrowest_ns = window_ns
        self.joint_ns = now_ns + window_ns
        self.batches: list[Batch] = []
        self.streams = 0
        self._job_deadline = job_deadline
        self._armed_ns = -1

    def next_joint_ns(self, now_ns: int) -> int:
        """Return the first joint after `now_ns` on the grid."""
        behind = now_ns - self.joint_ns
        return self.joint_ns if behind < 0 else self.joint_ns + (behind // self.window_ns + 1) * self.window_ns

    def advance(self, now_ns: int) -> None:
        """Bring the grid up to `now_ns`; the windows that are passed over must be empty."""
        if self.joint_ns <= now_ns:
            assert not self.batches, f"a window of {self.category} that holds frames was passed over"
            self.joint_ns = self.next_joint_ns(now_ns)
            self.narrowest_ns = self.window_ns

    def shrink(self, window_ns: int, now_ns: int) -> None:
        """Take a stream in whose W is `window_ns`; a W that is not smaller changes nothing."""
        self.advance(now_ns)
        if window_ns < self.window_ns:
            self.window_ns = window_ns
            self.narrowest_ns = min(self.narrowest_ns, window_ns)
            self.joint_ns = min(self.joint_ns, now_ns + window_ns)

    def has_room(self) -> bool:
        """Return whether the last batch of the window takes another frame."""
        return bool(self.batches) and len(self.batches[-1].frames) < len(self.table) - 1

    def open(self, job_id: int) -> Batch:
        """Open another batch in the current window."""
        batch = Batch(job_id, self.category, self.table)
        self.batches.append(batch)
        return batch

    def deadline_ns(self) -> int:
        """Return the deadline that the jobs of this window share, as its frames stand now."""
        if self._job_deadline is JobDeadline.WINDOW:
            return self.joint_ns + self.narrowest_ns
        return min(batch.earliest_ns for batch in self.batches)

    def head_deadline_ns(self) -> int:
        """Return the deadline of the first batch alone: what early dispatch compares."""
        if self._job_deadline is JobDeadline.WINDOW:
            return self.joint_ns + self.narrowest_ns
        return self.batches[0].earliest_ns

    def close(self, now_ns: int) -> list[Batch]:
        """End the window whose joint has come and return its batches as ready, in order of id.

        Their release is the joint, not `now_ns`: the grid does not move when the wake-up is late.
        """
        closed = self.batches
        deadline_ns = self.deadline_ns()
        for batch in closed:
            batch.release_ns = self.joint_ns
            batch.deadline_ns = deadline_ns
        self.batches = []
        self.advance(now_ns)
        return closed

    def take_first(self, now_ns: int) -> Batch:
        """Take the first batch out of the open window, released at `now_ns`."""
        deadline_ns = self.head_deadline_ns()
        batch = self.batches.pop(0)
        batch.release_ns = now_ns
        batch.deadline_ns = deadline_ns
        return batch

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
        return bool(self.batches) and self.joint_ns == joint_ns
