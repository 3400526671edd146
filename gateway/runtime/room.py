"""Who may take the last of the arena: frames that keep their stream's contract.

Everything else, best effort and whatever a camera sends beyond its contract, must leave as much as those can need at
one time, though never more than half of the arena: the other half is everybody's.
"""

from __future__ import annotations

from collections import Counter

from gateway.core.profile import Profile
from gateway.core.types import Category, ServiceClass, StreamSpec
from gateway.runtime.models import frame_bytes
from gateway.runtime.results import StreamRecord

#: Blocks of a category that hold frames at one time beside those that are full: in Triton's hands, waiting for it, of
#: the open window, and of one that is being opened.
_PARTLY_FULL = 4


def body_bytes(record: StreamRecord) -> int:
    """Return the size of what a stream sends at one time; 0 without a promise."""
    if record.spec.service_class is not ServiceClass.REAL_TIME:
        return 0
    return record.spec.burst * record.frame_bytes


def frames_at_once(spec: StreamSpec) -> int:
    """Return the most frames that a stream which keeps its contract has waiting or running within its deadline."""
    if spec.service_class is not ServiceClass.REAL_TIME:
        return 0
    periods = (spec.deadline_ns + spec.jitter_ns) // spec.period_ns + 2
    frames = spec.burst * periods
    return frames if spec.frames is None else min(frames, spec.frames)


class PromisedRoom:
    """What the frames of all admitted streams can need.

    Args:
        arena_bytes: Size of the arena.
        profile: Says how many frames a block of each category is made for.

    Attributes:
        bodies_bytes: The bodies that all of them send at one time.
    """

    def __init__(self, arena_bytes: int, profile: Profile) -> None:
        self.bodies_bytes = 0
        self._profile = profile
        self._most_bytes = arena_bytes // 2
        self._frames: Counter[Category] = Counter()
        self._bytes = 0

    def add(self, record: StreamRecord) -> None:
        """A stream was admitted."""
        self.bodies_bytes += body_bytes(record)
        self._change(record, frames_at_once(record.spec))

    def remove(self, record: StreamRecord) -> None:
        """A stream is over."""
        self.bodies_bytes -= body_bytes(record)
        self._change(record, -frames_at_once(record.spec))

    def leave_bytes(self, record: StreamRecord, frames: int) -> int:
        """Return what `frames` further ones of a stream have to leave in the arena; 0 within its contract."""
        if record.in_flight + frames <= frames_at_once(record.spec):
            return 0
        return min(self._bytes, self._most_bytes)

    def _change(self, record: StreamRecord, frames: int) -> None:
        if frames:
            category = record.category
            self._bytes -= self._of(category)
            self._frames[category] += frames
            self._bytes += self._of(category)

    def _of(self, category: Category) -> int:
        frames = self._frames[category]
        if not self._profile.has(category):
            return 0
        capacity = self._profile.max_batch(category)
        blocks = min(frames, _PARTLY_FULL + frames // capacity)
        return blocks * capacity * frame_bytes(category.shape, category.dtype)
