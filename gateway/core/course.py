"""What the device has done since a record, held against what plain EDF would have done: does a plan of then still hold?

The sporadic test (`gateway.core.sporadic`) speaks of plain EDF, under which work out of turn starts only while nothing
promised is ready, and takes at most B. Between the record and the plan's installation other rules were in force: a plan
of an exact test, or a longer B, or none since nothing was promised. What they allowed may be too much for the plan.

Only the last *stray* matters, that is the last job that started out of turn: where one starts while nothing promised is
ready, a new busy period begins, and what was before is forgotten. So is all of it when nothing promised is ready and
the device is idle, or has no more to do than B: a job of that length might have started just now.
"""

from __future__ import annotations

from gateway.core.batch import NEVER_NS, Batch, Standing
from gateway.core.device import Device
from gateway.core.windows import Windows


class Course:
    """See the module's docstring.

    Attributes:
        started: Counts the jobs started or sent ahead.
        calm_ns: Nothing is sent ahead before.
    """

    def __init__(self) -> None:
        self.started = 0
        self.calm_ns = 0
        self._stray = 0
        self._stray_ns = 0

    def start(self, job_id: int, execution_ns: int, first: Batch | None) -> None:
        """A job starts; `first` of the promised batches past their joint that may start, its own still among them."""
        self.started += 1
        if first is None:
            self._stray, self._stray_ns = self.started, execution_ns
        elif first.id != job_id:
            self._stray, self._stray_ns = self.started, NEVER_NS

    def begin(self, execution_ns: int, first: Batch | None) -> None:
        """A job begins that was sent ahead out of turn, as early dispatch is; `first` as above, without its own."""
        self._stray, self._stray_ns = self.started, execution_ns if first is None else NEVER_NS

    def wait(self) -> None:
        """The device is free, and what is ready has to wait: whatever starts next comes too late for plain EDF."""
        self._stray, self._stray_ns = self.started + 1, NEVER_NS

    def follows_edf(self, since: int, most_ns: int, device: Device, first: Batch | None, now_ns: int) -> bool:
        """Whether a plan holds at `now_ns` for all that has started since its record.

        Args:
            since: `started` at the record.
            most_ns: B of the plan.
            device: As it is now.
            first: Of the promised batches past their joint that may start; None: there is none.
            now_ns: The instant.
        """
        if first is None and device.free_ns(now_ns) - now_ns <= most_ns:
            return True
        return self._stray <= since or self._stray_ns <= most_ns

    def comes_first(self, since: int, tightest_ns: int, device: Device, windows: Windows, now_ns: int) -> bool:
        """Whether a job that was sent ahead since a plan's record comes first for its streams too, by plain EDF.

        One that the record has is counted there. Any other has to be due before all that can be ready before it begins:
        the windows of the plan may end earlier, and its streams have smaller deadlines, than those that it was held
        against when it was sent.

        Args:
            since: `started` at the record.
            tightest_ns: The smallest relative deadline of the plan's streams.
            device: As it is now.
            windows: Likewise.
            now_ns: The instant.
        """
        ahead = device.next
        if ahead is None or since == self.started:
            return True
        if windows.guard is not None or ahead.deadline_ns > now_ns + tightest_ns:
            return False
        holding = [b for b in windows.batchers.values() if b.batches and b.standing is Standing.PROMISED]
        return all(batcher.deadline_ns() >= ahead.deadline_ns for batcher in holding)
