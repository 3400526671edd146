"""Slots: all promised work in the order in which it is to be executed, with the latest start of each.

The invariant of the guard (``docs/decisions``) over the slots s of the list::

    T = max(free_at, now);  for s in slots: T = max(T, s.release) + s.E;  T <= s.deadline

With ``lam_i = min(deadline_i, lam_{i+1}) - E_i``, the latest start that keeps every promise from slot i on, and a
release that is never later than its own lam, it is ``max(free_at, now) <= lam`` of the first slot. So every question
here is about lam, and every change ends where lam does not change any more. Taking work out only raises lam: a value
that is too low is safe, which is why no walk goes further than `_FARTHEST` slots.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.core.batch import NEVER_NS, Batch

#: The most slots that one change or one question looks at: 256 slots cost about 50 us.
_FARTHEST = 256


class Slot:
    """The place of one job.

    Attributes:
        table: E in ns by batch size.
        size: The most frames that it holds (n_max).
        release_ns: Its joint.
        deadline_ns, execution_ns: Absolute; E(size).
        latest_ns: lam.
        start_ns: Planned start.
        end_ns: Planned end; None for a place that was made later.
        batch: The frames that have come; None while there are none.
    """

    __slots__ = (
        "batch",
        "deadline_ns",
        "end_ns",
        "execution_ns",
        "latest_ns",
        "next",
        "prev",
        "release_ns",
        "size",
        "start_ns",
        "table",
    )

    def __init__(
        self, table: tuple[int, ...], *, size: int, release_ns: int, deadline_ns: int, start_ns: int, latest_ns: int
    ) -> None:
        self.table = table
        self.size = size
        self.release_ns = release_ns
        self.deadline_ns = deadline_ns
        self.execution_ns = table[size]
        self.latest_ns = latest_ns
        self.start_ns = start_ns
        self.end_ns: int | None = start_ns + self.execution_ns
        self.batch: Batch | None = None
        self.prev = self
        self.next = self

    def has_room(self) -> bool:
        """Return whether it takes another planned frame."""
        return (0 if self.batch is None else len(self.batch.frames)) < self.size


class SlotList:
    """See the module's docstring. A ring through `_end`, whose lam is that of the first row not yet in the list."""

    def __init__(self) -> None:
        self._end = Slot((0,), size=0, release_ns=0, deadline_ns=NEVER_NS, start_ns=NEVER_NS, latest_ns=NEVER_NS)

    def __iter__(self) -> Iterator[Slot]:
        slot = self._end.next
        while slot is not self._end:
            yield slot
            slot = slot.next

    @property
    def head(self) -> Slot | None:
        """The first slot; None when there is none."""
        head = self._end.next
        return None if head is self._end else head

    @property
    def latest_ns(self) -> int:
        """The latest instant at which the device must be free for the first slot; `NEVER_NS` without any."""
        return self._end.next.latest_ns

    @property
    def last(self) -> Slot | None:
        """The last slot; None when there is none."""
        last = self._end.prev
        return None if last is self._end else last

    def end_at(self, latest_ns: int) -> None:
        """State the lam of what follows the last slot."""
        self._end.latest_ns = latest_ns

    def append(self, slot: Slot) -> None:
        """Put a slot at the end; its lam must be right already."""
        self._link(slot, self._end)

    def _link(self, slot: Slot, after: Slot) -> None:
        slot.prev, slot.next = after.prev, after
        after.prev.next = slot
        after.prev = slot

    # ------------------------------------------------------------ less work: always safe

    def remove(self, slot: Slot) -> None:
        """Take a slot out."""
        before = slot.prev
        before.next, slot.next.prev = slot.next, before
        slot.prev = slot.next = slot
        self._raise(before)

    def relax(self, slot: Slot, size: int, deadline_ns: int) -> None:
        """Make a slot smaller, or due later, or both."""
        if size != slot.size or deadline_ns != slot.deadline_ns:
            slot.size = size
            slot.execution_ns = slot.table[size]
            slot.deadline_ns = deadline_ns
            self._raise(slot)

    def refresh(self, slot: Slot) -> None:
        """Bring lam of a slot up to date after what followed it was left out."""
        self._raise(slot)

    def settle_end(self) -> None:
        """Bring lam up to date after `end_at` stated a later instant than the rows allowed for."""
        self._raise(self._end.prev)

    def _raise(self, slot: Slot) -> None:
        end = self._end
        for _ in range(_FARTHEST):
            if slot is end:
                return
            after_ns, deadline_ns = slot.next.latest_ns, slot.deadline_ns
            latest_ns = (after_ns if after_ns < deadline_ns else deadline_ns) - slot.execution_ns
            if latest_ns == slot.latest_ns:
                return
            slot.latest_ns = latest_ns
            slot = slot.prev

    # ------------------------------------------------------------ more work: only if the invariant holds

    def tighten(self, slot: Slot, size: int, deadline_ns: int, busy_ns: int) -> bool:
        """Make a slot larger, or due earlier, or both, if the invariant still holds.

        Args:
            slot: Of the list.
            size: What it shall be.
            deadline_ns: Likewise.
            busy_ns: The later of now and the end of the running job.
        """
        execution_ns = slot.table[size]
        latest_ns = min(deadline_ns, slot.next.latest_ns) - execution_ns
        lowered = None if self.latest_ns < busy_ns else self._lowered(slot, latest_ns, slot.latest_ns, busy_ns)
        if lowered is None:
            return False
        slot.size, slot.execution_ns, slot.deadline_ns = size, execution_ns, deadline_ns
        self._set(slot, lowered)
        return True

    def insert(self, slot: Slot, busy_ns: int) -> bool:
        """Put another slot in where its deadline belongs, if the invariant still holds."""
        end = self._end
        after = end.next
        if after.latest_ns < busy_ns:
            return False
        for _ in range(_FARTHEST):
            if after is end or (after.start_ns >= slot.start_ns and after.deadline_ns > slot.deadline_ns):
                break
            after = after.next
        else:
            return False
        latest_ns = min(slot.deadline_ns, after.latest_ns) - slot.execution_ns
        self._link(slot, after)
        lowered = self._lowered(slot, latest_ns, NEVER_NS, busy_ns)
        if lowered is None:
            slot.prev.next, after.prev = after, slot.prev
            slot.prev = slot.next = slot
            return False
        self._set(slot, lowered)
        return True

    def _lowered(self, slot: Slot, latest_ns: int, cached_ns: int, busy_ns: int) -> list[int] | None:
        """Return the lam of `slot`, `latest_ns`, and of those before it, as far as they fall below what is cached.

        None: the invariant would not hold, or the walk is too long.
        """
        end = self._end
        found: list[int] = []
        for _ in range(_FARTHEST):
            if latest_ns < slot.release_ns:
                return None
            found.append(latest_ns)
            if latest_ns >= cached_ns:
                return found
            slot = slot.prev
            if slot is end:
                return found if latest_ns >= busy_ns else None
            latest_ns = min(slot.deadline_ns, latest_ns) - slot.execution_ns
            cached_ns = slot.latest_ns
        return None

    def _set(self, slot: Slot, lowered: list[int]) -> None:
        for latest_ns in lowered:
            slot.latest_ns = latest_ns
            slot = slot.prev

    # ------------------------------------------------------------ questions

    def latest_without(self, slot: Slot, frames: int) -> int:
        """Return what `latest_ns` would be if `frames` of those planned in `slot` were not in the list."""
        end = self._end
        rest = slot.size - frames
        latest_ns = slot.next.latest_ns
        if rest > 0:
            latest_ns = min(slot.deadline_ns, latest_ns) - slot.table[rest]
        for _ in range(_FARTHEST):
            slot = slot.prev
            if slot is end:
                return latest_ns
            latest_ns = min(slot.deadline_ns, latest_ns) - slot.execution_ns
            if latest_ns <= slot.latest_ns:
                break
        return end.next.latest_ns
