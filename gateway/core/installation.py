"""Putting a plan in force: does what was planned a moment ago still hold for what is here now?

A plan is made from a record of the engine, perhaps in another process; meanwhile jobs start and end, windows close and
frames come. All of that was planned for, if everybody kept to it. So the plan is taken up where the engine has got to:
rows of jobs that have started are dropped, the batches that wait take their places, and the reservations that have been
used are counted. It holds if every promised frame has a place and the device is free in time for the first one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from gateway.core.batch import Batch, Standing
from gateway.core.guard import Guard
from gateway.core.plan import Plan, SlotTable, WindowPlan
from gateway.core.slot_rows import Row
from gateway.core.slots import Slot
from gateway.core.types import Category, Frame

Places = list[tuple[Slot, Batch]]


def joint_after(window: WindowPlan, t_ns: int) -> int:
    """Return the end of the window of `t_ns` on the plan's grid; before the first joint, that joint."""
    behind_ns = t_ns - window.joint_ns
    ended = 0 if behind_ns < 0 else behind_ns // window.window_ns + 1
    return window.joint_ns + ended * window.window_ns


class Installation:
    """A guard for `plan` as of `now_ns`; nothing else changes until it is put in force.

    Args:
        plan: With `table` as its slots.
        table: Where every promised job stands.
        tables: E by batch size, for each of ``plan.windows``.
        now_ns: The instant; windows that end by it have been closed.

    Attributes:
        guard: Complete only if `take_up` and `use` return True.
        places: The promised batches in it.
    """

    def __init__(self, plan: Plan, table: SlotTable, tables: list[tuple[int, ...]], now_ns: int) -> None:
        self.guard = Guard(plan, table, tables)
        self.places: Places = []
        self._plan = plan
        self._now_ns = now_ns
        self._index = {window.category: i for i, window in enumerate(plan.windows)}
        self._named = set(table.job[table.job >= 0].tolist())
        self._by_name: dict[int, Batch] = {}
        self._by_window: dict[tuple[int, int], deque[Batch]] = {}
        self._dropped: list[Slot] = []

    # ------------------------------------------------------------ batches

    def take_up(self, promised: Iterable[Batch], busy_ns: int) -> bool:
        """Give every promised batch its place; return whether the invariant holds from the state of now.

        Args:
            promised: Batches that have not started, in order of id.
            busy_ns: The later of now and the end of the running job.
        """
        if not self._sort(promised):
            return False
        slots = self.guard.slots
        while self.guard.wants_rows(self._now_ns):
            for row in self.guard.rows.read():
                if not self._put(row):
                    return False
        if self._by_name or any(self._by_window.values()):
            return False
        slots.end_at(self.guard.rows.next_latest_ns)
        for slot in reversed(self._dropped):
            slots.refresh(slot)
        for slot, batch in reversed(self.places):
            if batch.release_ns is not None:
                slots.relax(slot, len(batch.frames), max(slot.deadline_ns, batch.deadline_ns))
        return busy_ns <= slots.latest_ns

    def _sort(self, promised: Iterable[Batch]) -> bool:
        """Sort the batches into those that the plan names, and others by window; False if one has no window in it."""
        for batch in promised:
            if batch.id in self._named:
                self._by_name[batch.id] = batch
                continue
            place = self._index.get(batch.category)
            if place is None:
                return False
            joint_ns = batch.release_ns
            if joint_ns is None:
                joint_ns = joint_after(self._plan.windows[place], self._now_ns)
            self._by_window.setdefault((place, joint_ns), deque()).append(batch)
        return True

    def _put(self, row: Row) -> bool:
        """Turn one row into a slot, or drop it; False if its batch does not fit."""
        batch = self._by_name.pop(row.job, None)
        if batch is None:
            others = self._by_window.get((row.window, row.release_ns))
            batch = others.popleft() if others else None
        open_ = row.release_ns > self._now_ns
        if batch is None and not open_:
            # It has started or ended, or its frames are missing.
            if (last := self.guard.slots.last) is not None:
                self._dropped.append(last)
            return True
        # A batch of an open window that has gone early leaves the row to those still to come; how many it took is not
        # known here, so the row keeps its size.
        slot = self.guard.add(row, row.size)
        if open_:
            self.guard.expect(row.window, slot)
        if batch is None:
            return True
        slot.batch = batch
        self.places.append((slot, batch))
        return len(batch.frames) <= row.size and open_ == (batch.release_ns is None)

    # ------------------------------------------------------------ frames since

    def use(self, frames: Iterable[Frame], batches: Mapping[int, Batch], categories: Mapping[str, Category]) -> bool:
        """Count the reservations that were used by `frames`, which came after the record; False if one had none.

        Args:
            frames: In order of arrival.
            batches: Those that have not started, by id.
            categories: By stream.
        """
        for frame in frames:
            reservations = self.guard.reservations.get(frame.stream_id)
            if reservations is None:
                continue  # best effort
            window = self._plan.windows[self._index[categories[frame.stream_id]]]
            joint_ns = joint_after(window, frame.arrival_ns)
            if reservations.take(joint_ns - window.window_ns, joint_ns):
                continue
            batch = batches.get(frame.job)
            if batch is not None and batch.release_ns is None and batch.standing is Standing.PROMISED:
                return False  # it would stand where another frame is expected
        return True
