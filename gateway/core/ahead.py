"""Just in time: the next job is sent before the running one has ended, where the order of jobs cannot change by it.

The way to the device and back takes a part of a millisecond, for which the device would stand still between any two
jobs. So once the running job will usually be over in `EngineConfig.send_ahead_ns`, the one that is certain to be the
next is committed: it is sent, and waits at the device (`Device.next`), which runs one at a time all the same. It counts
as started from the instant at which the one ahead of it has ended.

What is committed is what would be started at that instant without this, whatever comes until then within the contracts:

- Plain EDF: the first of the ready queue, unless a window that may end before the running job holds a batch that is
  due earlier, or can still get a frame that is: such a frame is due ``now + D`` at the earliest, D being the smallest
  relative deadline of the window's streams. It loses ties, for its job is released later.
- Plain EDF with nothing ready, and early dispatch: the most urgent batch of a window, if it is full, so that no further
  frame can join it, if no frame that comes can be due earlier, and if no window at all may end before the running job.
- A plan in force: the batch of the first slot, once it is released. Nothing that was planned comes before it.
- None of whose frames would be given up if the running job took all of its profiled time, and it is held up by no
  longer than that. A running job that has overrun is not waited for by anything.
- Nothing without a promise, no first execution, and nothing at all while models come or go or are about to, take turns,
  or while jobs are answered out of order.
- Both models are among those that the worker never executes at once (`SerialModels`).

It comes no sooner than half of the usual time of the running job: else, of two jobs that were sent in quick succession,
the second might be the first to be seen at the other end. See ``docs/decisions/0030-just-in-time-dispatch.md``.
"""

from __future__ import annotations

from gateway.core.batch import NEVER_NS, Batch, Standing
from gateway.core.batcher import Batcher
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.dispatch import urgency
from gateway.core.promises import Promises
from gateway.core.residency import Residency
from gateway.core.types import NS_PER_MS, JobDeadline
from gateway.core.waiting import Waiting

#: Timers of event loops are no finer. Behind jobs so short that half of their usual time is less, one is sent when
#: something else happens in time, which on a busy device it does; a timer for each would cost more than it saves.
_FINEST_NS = NS_PER_MS


class Ahead:
    """Chooses what is sent ahead.

    Args:
        waiting, device, promises, residency, config: The engine's.

    Attributes:
        on: Whether anything ever is.
        serial: Models that never execute at once; None: all.
    """

    def __init__(
        self, waiting: Waiting, device: Device, promises: Promises, residency: Residency, config: EngineConfig
    ) -> None:
        self.on = config.send_ahead_ns > 0 and not config.residency.synchronous
        self.serial: frozenset[str] | None = None
        self._lead_ns = config.send_ahead_ns
        self._by_frames = config.job_deadline is JobDeadline.FRAME
        self._early = config.early_dispatch
        self._waiting = waiting
        self._device = device
        self._promises = promises
        self._residency = residency
        self._job = -1
        self._due_ns = self._last_ns = NEVER_NS
        self._wakes = False

    def choose(self, now_ns: int) -> Batch | None:
        """Return what is to be sent now, behind the running job; None: nothing."""
        if not self._open() or not self._due_ns <= now_ns <= self._last_ns or now_ns < self._promises.course.calm_ns:
            return None
        batch = self._certain(now_ns)
        if batch is None or self._last_ns + batch.table[len(batch.frames)] > batch.expiry_ns:
            return None
        return batch if self._runs_alone(batch) else None

    def next_wakeup_ns(self, now_ns: int) -> int:
        """Return when, after `now_ns`, time alone may let something be sent; `NEVER_NS`: not before an event does."""
        if not self._open() or not self._wakes or now_ns >= self._last_ns or not self._waiting.batches:
            return NEVER_NS
        due_ns = max(self._due_ns, self._promises.course.calm_ns)
        if now_ns >= due_ns:
            due_ns = self._waiting.next_joint_ns()
        return due_ns if due_ns <= self._last_ns else NEVER_NS

    def _open(self) -> bool:
        """Whether there is a job that another one could wait behind; notes from when to when."""
        device = self._device
        job = device.running
        if job is None or device.next is not None or device.overtaken:
            return False
        if job.id != self._job:
            self._job, self._due_ns = job.id, NEVER_NS
            profile, frames = self._promises.profile, len(job.frames)
            typical = profile.typical(job.runs_as) if not job.warm_up and profile.has(job.runs_as) else ()
            if frames < len(typical):
                usual_ns = typical[frames]
                lead_ns = min(self._lead_ns, usual_ns // 2)
                self._due_ns = device.since_ns + usual_ns - lead_ns
                self._wakes = lead_ns >= _FINEST_NS
                self._last_ns = device.since_ns + job.execution_ns
        return self._due_ns < NEVER_NS

    # ------------------------------------------------------------ what comes next for certain

    def _certain(self, now_ns: int) -> Batch | None:
        waiting = self._waiting
        if waiting.guard is not None:
            slot = waiting.guard.slots.head
            batch = None if slot is None or slot.release_ns > now_ns else slot.batch
            return batch if batch is not None and batch.release_ns is not None else None
        if not self._by_frames:
            return None  # deadlines of windows are not bounded by those of frames
        if waiting.ready:
            return self._first_ready(now_ns)
        return self._full(now_ns) if self._early else None

    def _first_ready(self, now_ns: int) -> Batch | None:
        """The first of the ready queue, models that are not there included, if nothing can get ahead of it."""
        batch = self._waiting.ready.first()
        if not batch.frames:
            return None
        due_ns = batch.deadline_ns
        for batcher in self._ending(now_ns):
            if now_ns + min(batcher.deadlines) < due_ns or (batcher.batches and batcher.deadline_ns() < due_ns):
                return None
        return batch

    def _full(self, now_ns: int) -> Batch | None:
        """The most urgent batch of an open window, if it is full and its place is certain."""
        promised = [b for b in self._waiting.batchers.values() if b.standing is Standing.PROMISED]
        batcher = min((b for b in promised if b.batches), key=urgency, default=None)
        if batcher is None:
            return None
        batch = batcher.first()
        if len(batch.frames) < batcher.room or self._ending(now_ns):
            return None
        return batch if batcher.own_deadline_ns(batch) < now_ns + min(min(b.deadlines) for b in promised) else None

    def _ending(self, now_ns: int) -> list[Batcher]:
        """Windows of real-time streams that may end before the running job, the empty ones among them."""
        batchers = self._waiting.batchers.values()
        return [b for b in batchers if b.standing is Standing.PROMISED and b.next_joint_ns(now_ns) <= self._last_ns]

    # ------------------------------------------------------------ what it would run beside

    def _runs_alone(self, batch: Batch) -> bool:
        running, waiting = self._device.running, self._waiting
        assert running is not None, "nothing runs"
        if self.serial is not None and not self.serial >= {running.category.model, batch.category.model}:
            return False
        if waiting.turning or not self._residency.at_rest:
            return False
        return not waiting.barred or not any(name in waiting.barred for name in waiting.by_model())
