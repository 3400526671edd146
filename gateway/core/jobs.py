"""What becomes of jobs: which starts next, how they end, and what is learnt from that.

A job that was answered is delivered, and held against its category if it took too long (`gateway.core.adaptation`).
The frames of a job that was refused are tried again one by one (`gateway.core.retries`); with a lost worker they have
failed. A category whose batches turn out to be at fault is limited to jobs of one frame.

An event about a job that is not running any more is ignored: drivers race with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.core import admission
from gateway.core.actions import Action, BatchLimited, DeliverFrames, DropFrames, StartJob
from gateway.core.adaptation import Adaptation
from gateway.core.batch import Batch
from gateway.core.books import Ledger
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.dispatch import choose
from gateway.core.endings import Endings
from gateway.core.events import JobFailed, JobFinished, LimitBatches, WorkerBack, WorkerLost
from gateway.core.model_calls import ModelCalls
from gateway.core.promises import Promises
from gateway.core.retries import BATCHES_FAIL, Retries, shorten, split
from gateway.core.types import Category, Frame, Job, Outcome, ServiceClass
from gateway.core.waiting import Waiting
from gateway.core.warm_ups import WarmUp

#: Why frames failed that were on a worker when it was lost.
WORKER_LOST = "worker_lost"

_MET, _MISSED = Outcome.MET, Outcome.MISSED


class Jobs:
    """See the module's docstring.

    Args:
        ledger, waiting, device, promises, adaptation, endings, calls, config: The engine's.

    Attributes:
        limited: Categories whose jobs have one frame, in the order in which that was found out.
        retries: Second tries of frames whose batch was refused, and what they have shown.
    """

    def __init__(
        self,
        ledger: Ledger,
        waiting: Waiting,
        device: Device,
        *,
        promises: Promises,
        adaptation: Adaptation,
        endings: Endings,
        calls: ModelCalls,
        config: EngineConfig,
    ) -> None:
        self.limited: list[Category] = []
        self._ledger = ledger
        self._waiting = waiting
        self._device = device
        self._promises = promises
        self._adaptation = adaptation
        self._endings = endings
        self._calls = calls
        self._models = calls.models
        self._early = config.early_dispatch
        self.retries = Retries(waiting, ledger)

    # ------------------------------------------------------------ starts

    def choose(self, now_ns: int, actions: list[Action]) -> Batch | None:
        """Return what is to start now. Frames that cannot be in time any more are not sent: others would be late."""
        while (batch := choose(self._waiting, now_ns, early=self._early)) is not None:
            if now_ns + batch.table[len(batch.frames)] <= batch.earliest_ns:
                break  # as usual: all of it is in time even if it takes as long as profiled
            if not self._promises.profile.has(batch.category):
                break  # how long it takes is not known
            gone, moved = self._waiting.give_up(batch, now_ns, self._typical(batch))
            if not gone:
                break
            drop = DropFrames(tuple(gone), Outcome.EXPIRED, "too_late", tuple(moved))
            self._endings.drop(drop, actions)
            self.learn([drop], now_ns, actions)
        return batch

    def _typical(self, batch: Batch) -> tuple[int, ...]:
        """Return how long a batch that is to start usually takes, in ns by number of frames."""
        if self.retries.is_second(batch.id):
            return self._promises.profile.typical(batch.category)
        return self._adaptation.typical(batch.category)

    def start(self, batch: Batch, now_ns: int, actions: list[Action]) -> None:
        """Send a batch to the free device."""
        waiting = self._waiting
        self._promises.course.start(batch.id, batch.table[len(batch.frames)], waiting.first_ready())
        job = waiting.start_warm_up(batch) if isinstance(batch, WarmUp) else waiting.start(batch, now_ns)
        if not job.warm_up and not self.retries.is_second(job.id):
            job = self._adaptation.fit(job)
        self._device.start(job, now_ns)
        actions.append(StartJob(job))

    def send_ahead(self, batch: Batch, now_ns: int, actions: list[Action]) -> None:
        """Send a batch that will be the next to the device, which is not free yet."""
        waiting, course = self._waiting, self._promises.course
        if batch.release_ns is None:
            course.started += 1  # it is out of turn from when it begins
        else:
            course.start(batch.id, batch.table[len(batch.frames)], waiting.first_ready())
        job = replace(self._adaptation.fit(waiting.start(batch, now_ns)), ahead=True)
        self._device.send_ahead(job, now_ns)
        actions.append(StartJob(job))

    def _stop(self, job_id: int, now_ns: int) -> tuple[Job | None, int, int]:
        """End a job; return it, when it began, and how long the device was idle before. None: it is not under way.

        Where one that was sent ahead is answered first, that was a little after the other one had ended in truth. When
        it began nobody knows; it is taken to have needed its profiled time, if it was sent that long ago.
        """
        device = self._device
        since_ns, idle_ns = device.since_ns, device.idle_ns
        job = device.stop(job_id, now_ns)
        if job is None:
            job = device.overtake(job_id)
            if job is not None and job.early:  # whenever it began, it was out of turn
                self._promises.course.begin(job.execution_ns, self._waiting.first_ready())
            return job, 0 if job is None else max(device.sent_ns, now_ns - job.execution_ns), 0
        begun = device.running
        if begun is not None and begun.early:
            self._promises.course.begin(begun.execution_ns, self._waiting.first_ready())
        return job, since_ns, idle_ns

    # ------------------------------------------------------------ ends

    def finish(self, event: JobFinished, now_ns: int, actions: list[Action]) -> None:
        """Deliver a job."""
        job, since_ns, idle_ns = self._stop(event.job_id, now_ns)
        if job is None:
            return
        if self._models:
            self._calls.ended(job, None, now_ns, actions)
        if not job.warm_up:
            took_ns = now_ns - since_ns
            cause = None
            if took_ns > job.execution_ns:
                swapping = bool(self._models) and self._calls.disturbed(since_ns)
                cause = self._adaptation.cause(warm_up=event.warm_up, swapping=swapping, idle_ns=idle_ns)
            outcomes = tuple([_MET if now_ns <= frame.deadline_ns else _MISSED for frame in job.frames])
            actions.append(DeliverFrames(job, outcomes, now_ns, since_ns, cause or ""))
            changed = self._adaptation.ended(job, took_ns, cause)
            if changed is not None:
                actions.append(changed)
            self._endings.end(job.frames, outcomes, actions)

    def fail(self, event: JobFailed, now_ns: int, actions: list[Action]) -> None:
        """Try again what can be tried of a job; the rest of it has failed."""
        job, _, _ = self._stop(event.job_id, now_ns)
        if job is None:
            return
        if self._models:
            self._calls.ended(job, event.reason, now_ns, actions)
        gone, reason = job.frames, event.reason
        if event.retry and gone:
            again = self.retries.refused(job, self._promises.profile, now_ns)
            if again is not None:
                actions.append(again)
                gone = tuple([frame for i, frame in enumerate(job.frames) if i not in again.indices])
            if len(job.frames) > 1:
                reason = f"batch_failed: {reason}"
        self._drop_failed(gone, reason, actions)

    def _drop_failed(self, frames: tuple[Frame, ...], reason: str, actions: list[Action]) -> None:
        if frames:
            self._endings.drop(DropFrames(frames, Outcome.FAILED, reason), actions)

    # ------------------------------------------------------------ the worker

    def lose(self, event: WorkerLost, now_ns: int, actions: list[Action]) -> None:
        """Start nothing until the worker is back; what runs on it has failed."""
        self._check_worker(event.worker)
        for job in self._device.lose(now_ns):
            self._drop_failed(job.frames, WORKER_LOST, actions)
        self._calls.worker_lost(actions)

    def regain(self, event: WorkerBack, _now_ns: int, _actions: list[Action]) -> None:
        """Jobs can start again."""
        self._check_worker(event.worker)
        self._device.lost = False
        self._calls.worker_back()

    def _check_worker(self, worker: str) -> None:
        assert worker == self._device.worker, f"worker {worker!r} is not this engine's"

    # ------------------------------------------------------------ what is learnt

    def learn(self, ended: Sequence[Action], now_ns: int, actions: list[Action]) -> None:
        """Let the retries look at how frames ended."""
        if self.retries.wondering and (unfit := self.retries.learn(ended)) is not None:
            if self._promises.profile.max_batch(unfit) > 1:
                self.limit(LimitBatches(unfit, BATCHES_FAIL), now_ns, actions)
            else:
                actions += self._adaptation.bar(replace(unfit, service_class=ServiceClass.REAL_TIME))

    def limit(self, event: LimitBatches, now_ns: int, actions: list[Action]) -> None:
        """Let batches of a category hold one frame from now on, and see whether all promises still hold."""
        category, promises = replace(event.category, service_class=ServiceClass.REAL_TIME), self._promises
        profile = promises.profile
        if not profile.has(category) or profile.max_batch(category) == 1:
            return
        profile = profile.without_batches(category)
        self.limited.append(category)
        again = split(self._waiting, self._ledger, category, profile)
        verdict = promises.renew(profile, admission.retest(promises.state(now_ns, profile)), now_ns)
        actions += [BatchLimited(category, 1, event.reason, verdict), *again]
        actions += [*shorten(self._waiting, self._ledger, now_ns), *self._adaptation.review()]
