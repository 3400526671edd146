"""Whose frames are planned: each stream's reservations by the plan in force, used up one by one.

A stream is promised the places that its own contract planned, no more: a frame is *reserved* when the next group of its
stream that has not been used up may come in the window in which the frame came. So a frame that is late within its
window still finds its place, and no stream can use another's.
"""

from __future__ import annotations

from collections import deque

from gateway.core.plan_state import StreamPhase
from gateway.core.types import Frame

#: Frames that are remembered for plans under way: 2 s at 8,000 frames/s.
_REMEMBERED = 16_384


class Reservations:
    """What is still reserved for one stream; see `StreamPhase` for the fields of the same name."""

    __slots__ = ("_at_ns", "_burst", "_jitter_ns", "_left", "_next_ns", "_overdue", "_period_ns", "_remaining")

    def __init__(self, phase: StreamPhase, at_ns: int) -> None:
        self._at_ns = at_ns
        self._next_ns = phase.next_ns
        self._period_ns = phase.period_ns
        self._jitter_ns = phase.jitter_ns
        self._burst = phase.burst
        self._left = phase.group_left
        self._overdue = phase.overdue
        self._remaining = phase.remaining

    def take(self, open_ns: int, joint_ns: int) -> bool:
        """Use up one reservation of the window ``[open_ns, joint_ns)``; False when there is none left.

        Windows must be asked in order. What was reserved only in earlier ones is gone: those frames are missing.
        """
        if self._overdue:
            if open_ns <= self._at_ns:
                self._overdue -= 1
                self._count(1)
                return True
            self._count(self._overdue)
            self._overdue = 0
        behind_ns = open_ns - self._next_ns - self._jitter_ns
        if behind_ns > 0:
            missing = -(-behind_ns // self._period_ns)
            self._count(self._left + (missing - 1) * self._burst)
            self._next_ns += missing * self._period_ns
            self._left = self._burst
        if self._next_ns >= joint_ns or (self._remaining is not None and self._remaining <= 0):
            return False
        self._count(1)
        self._left -= 1
        if not self._left:
            self._next_ns += self._period_ns
            self._left = self._burst
        return True

    def _count(self, frames: int) -> None:
        if self._remaining is not None:
            self._remaining -= frames


class Journal:
    """The latest frames, for plans that were made before them and are installed after them."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque(maxlen=_REMEMBERED)
        self.note = self._frames.extend

    def since(self, at_ns: int) -> list[Frame] | None:
        """Return the frames that came after `at_ns`, in order; None when that cannot be told.

        A frame of that very instant may have come before the record or after it.
        """
        found: list[Frame] = []
        for frame in reversed(self._frames):
            if frame.arrival_ns <= at_ns:
                if frame.arrival_ns == at_ns:
                    return None
                break
            found.append(frame)
        else:
            if len(self._frames) == _REMEMBERED:
                return None
        return found[::-1]
