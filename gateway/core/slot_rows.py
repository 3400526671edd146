"""The rows of a plan's slots, read from the front in small portions: there may be 10^5 of them, or no end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gateway.core.batch import NEVER_NS
from gateway.core.plan import SlotTable

#: Rows that are read at once: 32 slots are made in about 60 us.
_PORTION = 32


class Row(NamedTuple):
    """One row of `SlotTable`, shifted to the copy that it is read for."""

    window: int
    job: int
    release_ns: int
    chunk: int
    size: int
    deadline_ns: int
    start_ns: int
    latest_ns: int


class SlotRows:
    """A reader of one `SlotTable`.

    Attributes:
        next_start_ns: Planned start of the first row not read; `NEVER_NS` after the last.
        next_latest_ns: Its latest start; `NEVER_NS` after the last.
    """

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._at = 0
        self._shift_ns = 0
        self.next_start_ns = NEVER_NS
        self.next_latest_ns = NEVER_NS
        self._peek()

    def stop(self) -> None:
        """Forget the rows not read."""
        self._at, self._table = 0, _EMPTY
        self._peek()

    def _peek(self) -> None:
        table = self._table
        if self._at == len(table) and table.repeat_ns and table.repeat_from < len(table):
            self._at = table.repeat_from
            self._shift_ns += table.repeat_ns
        if self._at < len(table):
            self.next_start_ns = int(table.start[self._at]) + self._shift_ns
            self.next_latest_ns = int(table.latest[self._at]) + self._shift_ns
        else:
            self.next_start_ns = self.next_latest_ns = NEVER_NS

    def skip_past(self, now_ns: int) -> None:
        """Pass over the rows that should have started by `now_ns`; none of them may hold a frame.

        O(log rows), however long nothing was read.
        """
        table = self._table
        while self.next_start_ns <= now_ns:
            cycle_ns = table.repeat_ns
            if self._shift_ns and self.next_start_ns + 2 * cycle_ns <= now_ns:
                # A whole number of copies, short of the one in which `now_ns` lies.
                self._shift_ns += (now_ns - self.next_start_ns) // cycle_ns * cycle_ns
            self._at = max(self._at, int(np.searchsorted(table.start, now_ns - self._shift_ns, side="right")))
            self._peek()

    def read(self) -> list[Row]:
        """Return the next rows, a portion of them."""
        table, at, shift_ns = self._table, self._at, self._shift_ns
        part = slice(at, at + _PORTION)
        job = table.job[part].tolist()
        if shift_ns:
            job = [-1] * len(job)  # a batch that existed when the plan was made stands in the first copy only
        rows = [
            Row(
                window,
                job_id,
                release + shift_ns,
                chunk,
                size,
                deadline + shift_ns,
                start + shift_ns,
                latest + shift_ns,
            )
            for window, job_id, release, chunk, size, deadline, start, latest in zip(
                table.window[part].tolist(),
                job,
                table.release[part].tolist(),
                table.chunk[part].tolist(),
                table.size[part].tolist(),
                table.deadline[part].tolist(),
                table.start[part].tolist(),
                table.latest[part].tolist(),
                strict=True,
            )
        ]
        self._at = min(at + _PORTION, len(table))
        self._peek()
        return rows


def reach_ns(table: SlotTable) -> int:
    """Return by how much, at most, a planned start lies after its release: how far ahead the rows must be read."""
    return int((table.start - table.release).max(initial=0))


_NONE = np.zeros(0, dtype=np.int64)
_EMPTY = SlotTable(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE)
