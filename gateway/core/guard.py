"""The guard: the plan of the exact test, kept up to date and followed.

Non-preemptive EDF is not sustainable: a job that ends early, an early dispatch, a missing frame or a leaving stream can
make another job miss (``docs/decisions``, ``tests/core/test_anomalies.py``). So the engine follows the proven *order*:
a list of slots that covers all promised work (`gateway.core.slots`), and what is done out of that order is done only if
every slot keeps its deadline.

- A frame that its stream has reserved in the current window stands in the first slot of that window with room. Any
  other gets another place, if the invariant then still holds; else it has none, and no promise.
- At a joint, the window's slots shrink to the frames that have come, and slots without frames go.
- A batch that leaves early takes its frames out of its slot; the slot stays for those still to come.
- When the device has overrun, slots stay and go on in their order; nothing new is promised until it has caught up.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from gateway.core.batch import NEVER_NS, Batch
from gateway.core.batcher import Batcher
from gateway.core.books import Stream
from gateway.core.plan import Plan, SlotTable
from gateway.core.reservation import Reservations
from gateway.core.slot_rows import Row, SlotRows, reach_ns
from gateway.core.slots import Slot, SlotList
from gateway.core.types import MAX_INTERVAL_NS


class _Window:
    """The slots of one window that has not ended, in order of chunk.

    No change of a slot makes room in it but `Guard` giving it to a frame at once, so the first with room only advances.
    """

    __slots__ = ("_first", "slots")

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self._first = 0

    def room(self) -> Slot | None:
        """Return the first slot that takes another planned frame."""
        while self._first < len(self.slots):
            slot = self.slots[self._first]
            if slot.has_room():
                return slot
            self._first += 1
        return None


class Guard:
    """See the module's docstring.

    Args:
        plan: With slots.
        slots: Its table.
        tables: E by batch size, for each of ``plan.windows``.

    Attributes:
        slots: The list, as far as it has been read from the plan.
        reservations: By stream.
        rows: What has not been read.
    """

    def __init__(self, plan: Plan, slots: SlotTable, tables: list[tuple[int, ...]]) -> None:
        self.slots = SlotList()
        self.rows = SlotRows(slots)
        self.reservations = {phase.stream_id: Reservations(phase, plan.at_ns) for phase in plan.streams}
        self._tables = tables
        self._windows: list[dict[int, _Window]] = [{} for _ in tables]
        self._joints: list[tuple[int, int]] = []
        self._quiet: set[int] = set()
        # Rows of windows that are open, or opened by a frame of now, must have been read.
        self._ahead_ns = max((w.window_ns for w in plan.windows), default=0) + reach_ns(slots)

    # ------------------------------------------------------------ rows

    def wants_rows(self, now_ns: int) -> bool:
        """Return whether a portion of the plan has to be read by `now_ns`."""
        return self.rows.next_start_ns <= now_ns + self._ahead_ns

    def add(self, row: Row, size: int) -> Slot:
        """Put the slot of a row at the end of the list."""
        slot = Slot(
            self._tables[row.window],
            size=size,
            release_ns=row.release_ns,
            deadline_ns=row.deadline_ns,
            start_ns=row.start_ns,
            latest_ns=row.latest_ns,
        )
        self.slots.append(slot)
        return slot

    def expect(self, place: int, slot: Slot) -> None:
        """Let a slot take frames of its window, which has not ended."""
        windows = self._windows[place]
        window = windows.get(slot.release_ns)
        if window is None:
            window = windows[slot.release_ns] = _Window()
            heapq.heappush(self._joints, (slot.release_ns, place))
        window.slots.append(slot)

    def _read(self, now_ns: int) -> None:
        self.rows.skip_past(now_ns)
        quiet = self._quiet
        while self.wants_rows(now_ns):
            for row in self.rows.read():
                if row.window not in quiet:
                    self.expect(row.window, self.add(row, row.size))
        self.slots.end_at(self.rows.next_latest_ns)
        if quiet:
            self.slots.settle_end()

    # ------------------------------------------------------------ time

    def advance(self, now_ns: int) -> None:
        """Read what is needed of the plan, and end the windows whose joint has come; their batches are closed."""
        if self.wants_rows(now_ns):
            self._read(now_ns)
        joints = self._joints
        while joints and joints[0][0] <= now_ns:
            joint_ns, place = heapq.heappop(joints)
            for slot in self._windows[place].pop(joint_ns).slots:
                self._close(slot)

    def _close(self, slot: Slot) -> None:
        batch = slot.batch
        if batch is not None:
            # Due no earlier than planned: a frame that came before it was expected changes nothing any more.
            self.slots.relax(slot, len(batch.frames), max(slot.deadline_ns, batch.deadline_ns))
        elif slot.size:
            self._drop(slot)

    def next_change_ns(self) -> int:
        """Return when time alone may let something start that has to wait now."""
        start_ns = self.rows.next_start_ns
        read_ns = NEVER_NS if start_ns == NEVER_NS else start_ns - self._ahead_ns
        return min(read_ns, self._joints[0][0]) if self._joints else read_ns

    # ------------------------------------------------------------ frames

    def place(self, batcher: Batcher, stream: Stream, now_ns: int, busy_ns: int) -> Slot | None:
        """Return the slot in which a frame that comes now stands; None: it has no promise.

        Args:
            batcher: Of its category, its current window up to date.
            stream: Its stream.
            now_ns: Its arrival.
            busy_ns: The later of now and the end of the running job.
        """
        joint_ns = batcher.joint_ns
        deadline_ns = now_ns + stream.spec.deadline_ns
        window = self._windows[batcher.place].get(joint_ns)
        reservations = self.reservations.get(stream.id)
        if reservations is not None and reservations.take(joint_ns - batcher.window_ns, joint_ns) and window:
            slot = window.room()
            if slot is not None:
                if deadline_ns < slot.deadline_ns:  # earlier than its contract says
                    self.slots.tighten(slot, slot.size, deadline_ns, busy_ns)
                return slot
        return self._beyond(batcher, window, deadline_ns, busy_ns)

    def _beyond(self, batcher: Batcher, window: _Window | None, deadline_ns: int, busy_ns: int) -> Slot | None:
        """Make another place in the current window, if the invariant then still holds."""
        if window is not None:
            last = window.slots[-1]
            room = 0 < last.size < len(last.table) - 1
            if room and self.slots.tighten(last, last.size + 1, min(last.deadline_ns, deadline_ns), busy_ns):
                return last
        joint_ns = batcher.joint_ns
        slot = Slot(
            batcher.table, size=1, release_ns=joint_ns, deadline_ns=deadline_ns, start_ns=joint_ns, latest_ns=joint_ns
        )
        slot.end_ns = None
        if not self.slots.insert(slot, busy_ns):
            return None
        self.expect(batcher.place, slot)
        return slot

    def withdraw(self, slot: Slot, frames: int) -> None:
        """Take `frames` out that were cancelled or have expired; the slot's batch has lost them already."""
        assert slot.batch is not None, "frames were withdrawn from an empty slot"
        if not slot.batch.frames:
            slot.batch = None
        self._shrink(slot, slot.size - frames)

    def start(self, slot: Slot, batch: Batch) -> None:
        """Take out what starts now: all that is planned in the slot, or, before its joint, what has come of it."""
        slot.batch = None
        self._shrink(slot, slot.size - len(batch.frames))

    def quiet(self, place: int) -> None:
        """No stream of a category takes further frames: nothing more is expected in its windows."""
        self._quiet.add(place)
        for window in self._windows[place].values():
            for slot in window.slots:
                if slot.size:
                    self._shrink(slot, 0 if slot.batch is None else len(slot.batch.frames))
        if len(self._quiet) == len(self._tables):
            self.rows.stop()
            self.slots.end_at(NEVER_NS)
            self.slots.settle_end()

    def _shrink(self, slot: Slot, size: int) -> None:
        if size:
            self.slots.relax(slot, size, slot.deadline_ns)
        else:
            self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        slot.size = 0
        self.slots.remove(slot)

    # ------------------------------------------------------------ questions

    def allows(self, batch: Batch, now_ns: int) -> bool:
        """Return whether every promise holds if `batch` starts now, out of the order of the slots."""
        end_ns = now_ns + batch.table[len(batch.frames)]
        if end_ns <= self.slots.latest_ns:
            return True
        slot = batch.slot
        return slot is not None and end_ns <= self.slots.latest_without(slot, len(batch.frames))

    def head(self, barred: Collection[str]) -> Slot | None:
        """Return the first slot; those past their joint whose models are `barred` are passed over.

        They keep their places, but have lost their deadlines: else nothing at all might start once they are late.
        """
        for slot in self.slots:
            batch = slot.batch
            if batch is None or batch.release_ns is None or batch.category.model not in barred:
                return slot
            self.slots.relax(slot, slot.size, batch.deadline_ns + MAX_INTERVAL_NS)
        return None

    def planned_starts(self, now_ns: int, busy_ns: int, jobs: int) -> dict[int, int]:
        """Return by job id when the next `jobs` closed batches start if everything takes as long as profiled."""
        starts: dict[int, int] = {}
        t_ns = max(now_ns, busy_ns)
        for slot in self.slots:
            if len(starts) == jobs:
                break
            batch = slot.batch
            if slot.release_ns <= now_ns:
                if batch is None:
                    continue  # its frames are missing
                starts[batch.id] = t_ns
            t_ns = max(t_ns, slot.release_ns) + slot.execution_ns
        return starts
