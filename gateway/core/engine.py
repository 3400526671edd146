"""The engine: events and the time go in, decisions come out.

Order inside one `Engine.handle`: close due windows; apply the event; expire frames; dispatch.

Rules:

- One worker, one job at a time on it. What was admitted by an exact test is dispatched by its plan
  (`gateway.core.guard`). Without such a plan dispatch is non-preemptive, non-idling EDF over ready jobs, ties broken by
  (absolute deadline, release, job id), and while the device is idle and nothing is ready, the waiting batch with the
  earliest deadline is sent before its joint (the paper's early dispatch), if `EngineConfig.early_dispatch`.
- An accepted frame ends exactly once, in one of `Outcome`; its batch is fixed on arrival.
- A frame expires when ``now >= deadline``, it has not been dispatched and its stream drops late frames; and when its
  turn comes and it would be late though its job took no longer than usual, for others would be late because of it.
- Frames that no plan has a place for, and then those of best-effort streams, get what is left over: they start only
  when no promise is touched.
- Frames of a batch that was refused are tried again alone, likewise (`gateway.core.retries`).
- Streams are admitted and windows grow only by a plan (`gateway.core.plan`). It may have been made elsewhere from a
  record of a moment ago; it is taken only if it still holds, else the answer is `PlanStale` and nothing has changed.
- Time never goes back. An event that cannot concern anything any more (a completion after its worker was lost, a
  cancellation after the start, the close of a stream that has ended) is ignored: drivers race with each other.

What is promised: a set admitted by an exact test misses nothing if its streams keep their contracts and no execution
takes longer than profiled, whatever is sent early, missing or best effort, and whoever joins or leaves; a stream that
breaks its contract harms only itself there, while under the sporadic test nothing holds it back. Plain EDF is not
sustainable, so without the guard (`EngineConfig.guard`) such a set *can* miss (``tests/core/test_anomalies.py`` has
examples). What the sporadic test admits needs no plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gateway.core import admission
from gateway.core.adaptation import Adaptation
from gateway.core.batch import NEVER_NS, Batch
from gateway.core.books import Ledger, Stream
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.dispatch import choose
from gateway.core.events import (
    Action,
    BatchLimited,
    CloseStream,
    DeliverFrames,
    DropFrames,
    Event,
    FrameCancelled,
    FramesArrived,
    JobFailed,
    JobFinished,
    LimitBatches,
    RegisterStream,
    StartJob,
    StreamEnded,
    Tick,
    WidenWindows,
    WorkerBack,
    WorkerLost,
)
from gateway.core.intake import Intake
from gateway.core.plan import Plan
from gateway.core.plan_state import AdmissionState
from gateway.core.profile import Profile
from gateway.core.promises import Promises
from gateway.core.recording import record_state, record_view
from gateway.core.retries import BATCHES_FAIL, Retries, split
from gateway.core.types import LOCAL_WORKER, Category, Frame, Outcome, ServiceClass, StreamSpec
from gateway.core.verdict import Verdict
from gateway.core.view import EngineView
from gateway.core.waiting import Waiting

__all__ = ["Engine", "EngineConfig", "EngineView"]

_DEFAULTS = EngineConfig()


class Engine:
    """See the module's docstring.

    Args:
        profile: Execution times; `EngineConfig.dispatch_overhead_ns` is added to them.
        config: Switches.
        workers: Ids of the workers. Exactly one for now.

    Raises:
        ValueError: Not exactly one worker.
    """

    def __init__(
        self, profile: Profile, config: EngineConfig = _DEFAULTS, workers: Iterable[str] = (LOCAL_WORKER,)
    ) -> None:
        names = tuple(workers)
        if len(names) != 1:
            raise ValueError(f"exactly one worker is supported, not {len(names)}")
        self.config = config
        self.profile = profile.plus_overhead(config.dispatch_overhead_ns)
        self._now_ns = -NEVER_NS
        self._ledger = Ledger()
        self._waiting = Waiting(config)
        self._device = Device(names[0])
        self._adaptation = Adaptation(self.profile, config)
        self._promises = Promises(self._ledger, self._waiting, self._device, profile=self.profile, config=config)
        self._intake = Intake(self._ledger, self._waiting, self._device, self._promises.journal, config)
        self._retries = Retries(self._waiting, self._ledger)
        self._limited: list[Category] = []
        self._apply: dict[type[Any], Callable[[Any, int, list[Action]], None]] = {
            RegisterStream: self._register,
            WidenWindows: self._widen,
            CloseStream: self._close,
            FramesArrived: self._arrive,
            FrameCancelled: self._cancel,
            JobFinished: self._finish,
            JobFailed: self._fail,
            LimitBatches: self._limit,
            WorkerLost: self._lose,
            WorkerBack: self._regain,
            Tick: self._tick,
        }

    # ------------------------------------------------------------ interface

    def handle(self, event: Event, now_ns: int) -> list[Action]:
        """Take one event at `now_ns` and return what is to be done, in order.

        The driver carries out every action before the next event. Cost: amortised O(log of waiting batches), plus
        O(categories) when the device is idle; for `RegisterStream` and `WidenWindows` without a plan an admission test,
        and with one the rows that the plan has for the next windows.
        """
        self._check_time(now_ns)
        self._now_ns = now_ns
        waiting, device = self._waiting, self._device
        actions: list[Action] = []
        waiting.advance(now_ns)
        self._apply[type(event)](event, now_ns, actions)
        if waiting.next_expiry_ns() <= now_ns:
            self._expire(now_ns, actions)
        self._learn(actions, now_ns, actions)
        if device.free:
            batch = self._choose(now_ns, actions)
            if batch is not None:
                job = self._adaptation.fit(waiting.start(batch, now_ns))
                device.start(job, now_ns)
                self._promises.started += 1
                actions.append(StartJob(job))
        return actions

    def _choose(self, now_ns: int, actions: list[Action]) -> Batch | None:
        """Return what is to start now. Frames that cannot be in time any more are not sent: others would be late too."""
        while (batch := choose(self._waiting, now_ns, early=self.config.early_dispatch)) is not None:
            category, frames = batch.category, len(batch.frames)
            if not self.profile.has(category):
                break  # how long it takes is not known
            typical = self.profile.typical(self._adaptation.small(category) or category)
            if frames >= len(typical):
                typical = self.profile.typical(category)
            gone, moved = self._waiting.give_up(batch, now_ns, typical)
            if not gone:
                break
            drop = DropFrames(tuple(gone), Outcome.EXPIRED, "too_late", tuple(moved))
            actions.append(drop)
            self._end(gone, [Outcome.EXPIRED] * len(gone), actions)
            self._learn([drop], now_ns, actions)
        return batch

    def _learn(self, ended: Sequence[Action], now_ns: int, actions: list[Action]) -> None:
        """Let the retries look at how frames ended."""
        if self._retries.wondering and (unfit := self._retries.learn(ended)) is not None:
            self._limit(LimitBatches(unfit, BATCHES_FAIL), now_ns, actions)

    def next_wakeup_ns(self) -> int | None:
        """Return when `Tick` is next needed if nothing else happens; None: not at all.

        While the device is busy or lost, a joint changes nothing that anyone could see, so only expiries count.
        """
        wakeup_ns = self._waiting.next_expiry_ns()
        if self._device.free:
            wakeup_ns = min(wakeup_ns, self._waiting.next_change_ns())
        return None if wakeup_ns == NEVER_NS else wakeup_ns

    def snapshot(self) -> EngineView:
        """Return the engine's state as of the last event; O(streams + ready jobs)."""
        return record_view(
            self._ledger,
            self._waiting,
            self._device,
            self._adaptation,
            state=self.admission_state(self._now_ns),
            now_ns=self._now_ns,
            limited=tuple(self._limited),
            broken=self._promises.broken,
        )

    def admission_state(self, now_ns: int) -> AdmissionState:
        """Return what an admission test at `now_ns` starts from; nothing changes."""
        self._check_time(now_ns)
        return record_state(
            self._ledger,
            self._waiting,
            self._device,
            profile=self.profile,
            config=self.config,
            now_ns=now_ns,
            generation=self._promises.generation,
            started=self._promises.started,
        )

    def plan(self, spec: StreamSpec, now_ns: int, stream_id: str = "") -> Plan:
        """Return the plan by which `RegisterStream` would be answered at `now_ns`; nothing changes."""
        return admission.plan(self.admission_state(now_ns), spec, stream_id)

    def check(self, spec: StreamSpec, now_ns: int, stream_id: str = "") -> Verdict:
        """Return the verdict of that plan; nothing changes."""
        return self.plan(spec, now_ns, stream_id).verdict

    def room(self, stream_id: str) -> int:
        """Return the most frames that can stand in the batch of a stream's next frame."""
        stream = self._ledger.streams.get(stream_id)
        return 1 if stream is None or stream.suspect else len(stream.batcher.table) - 1

    def suspect(self, stream_id: str) -> bool:
        """Whether the frames of a stream go alone, because of some that were refused (`gateway.core.retries`)."""
        stream = self._ledger.streams.get(stream_id)
        return stream is not None and stream.suspect

    @property
    def broken(self) -> Verdict | None:
        """What the test said when promises could not be kept any more; None while they hold."""
        return self._promises.broken

    def can_widen(self) -> bool:
        """Whether `WidenWindows` is worth while: some W could grow by the streams that are left.

        O(categories), once per change.
        """
        return self._promises.can_widen()

    def may_block_ns(self) -> int | None:
        """Return how long a best-effort job may be if it is to find its turn; None: as long as it likes.

        That is while no real-time stream takes frames, or plain EDF promises nothing.
        """
        waiting = self._waiting
        return waiting.blocking_ns if waiting.taking and waiting.blocking_ns < NEVER_NS else None

    def _check_time(self, now_ns: int) -> None:
        assert now_ns >= self._now_ns, f"time went back: {now_ns} after {self._now_ns}"

    # ------------------------------------------------------------ streams

    def _register(self, event: RegisterStream, now_ns: int, actions: list[Action]) -> None:
        assert event.stream_id not in self._ledger.streams, f"stream id {event.stream_id!r} is in use"
        plan = event.plan or self.plan(event.spec, now_ns, event.stream_id)
        actions.append(self._promises.register(event, plan, now_ns))

    def _widen(self, event: WidenWindows, now_ns: int, actions: list[Action]) -> None:
        actions += self._promises.widen(event, event.plan or admission.widen(self.admission_state(now_ns)), now_ns)

    def _close(self, event: CloseStream, _now_ns: int, actions: list[Action]) -> None:
        stream = self._ledger.streams.get(event.stream_id)
        if stream is not None:
            stream.closed = True
            self._hush(stream)
            self._sweep([stream.id], actions)

    def _hush(self, stream: Stream) -> None:
        """Note, once, that a stream takes no further frame."""
        if not stream.quiet:
            stream.quiet = True
            for batcher in stream.batchers:
                self._waiting.quiet(batcher)

    def _sweep(self, stream_ids: Iterable[str], actions: list[Action]) -> None:
        """End the streams among these that take no further frame and have none left."""
        for stream in self._ledger.take_ended(stream_ids):
            for batcher in stream.batchers:
                self._waiting.leave(batcher, stream.spec.deadline_ns)
            self._promises.generation += 1
            if not stream.batcher.deadlines and (changed := self._adaptation.forget(stream.batcher.category)):
                actions.append(changed)
            actions.append(StreamEnded(stream.id, stream.refusal or "closed"))

    # ------------------------------------------------------------ frames

    def _arrive(self, event: FramesArrived, now_ns: int, actions: list[Action]) -> None:
        stream = self._intake.arrive(event, now_ns, actions)
        if stream is not None and stream.remaining == 0:
            self._hush(stream)

    def _cancel(self, event: FrameCancelled, _now_ns: int, actions: list[Action]) -> None:
        frame = self._ledger.in_flight(event.stream_id, event.seq)
        moved = None if frame is None else self._waiting.withdraw(frame)
        if frame is not None and moved is not None:
            actions.append(DropFrames((frame,), Outcome.CANCELLED, "cancelled", moved))
            self._end([frame], [Outcome.CANCELLED], actions)

    def _expire(self, now_ns: int, actions: list[Action]) -> None:
        for reason, gone, moved in self._waiting.expire(now_ns):
            actions.append(DropFrames(gone, Outcome.EXPIRED, reason, moved))
            self._end(gone, [Outcome.EXPIRED] * len(gone), actions)

    def _end(self, frames: Iterable[Frame], outcomes: Iterable[Outcome], actions: list[Action]) -> None:
        last = self._ledger.end_frames(frames, outcomes)
        if last:
            self._sweep(last, actions)

    def _tick(self, _event: Tick, _now_ns: int, _actions: list[Action]) -> None:
        """Time alone: everything that it brings about is done around the event."""

    # ------------------------------------------------------------ the device

    def _finish(self, event: JobFinished, now_ns: int, actions: list[Action]) -> None:
        device = self._device
        job = device.stop(event.job_id, now_ns)
        if job is not None:
            took_ns = now_ns - device.since_ns
            cause = self._adaptation.cause(job, took_ns, warm_up=event.warm_up, idle_ns=device.idle_ns)
            outcomes = tuple([Outcome.MET if now_ns <= frame.deadline_ns else Outcome.MISSED for frame in job.frames])
            actions.append(DeliverFrames(job, outcomes, now_ns, device.since_ns, cause or ""))
            changed = self._adaptation.ended(job, took_ns, cause)
            if changed is not None:
                actions.append(changed)
            self._end(job.frames, outcomes, actions)

    def _fail(self, event: JobFailed, now_ns: int, actions: list[Action]) -> None:
        job = self._device.stop(event.job_id, now_ns)
        if job is None:
            return
        gone, reason = job.frames, event.reason
        if event.retry:
            again = self._retries.refused(job, self.profile, now_ns)
            if again is not None:
                actions.append(again)
                gone = tuple([frame for i, frame in enumerate(job.frames) if i not in again.indices])
            if len(job.frames) > 1:
                reason = f"batch_failed: {reason}"
        self._drop_failed(gone, reason, actions)

    def _lose(self, event: WorkerLost, now_ns: int, actions: list[Action]) -> None:
        self._check_worker(event.worker)
        self._device.lost = True
        job = self._device.stop(None, now_ns)
        if job is not None:
            self._drop_failed(job.frames, "worker_lost", actions)

    def _regain(self, event: WorkerBack, _now_ns: int, _actions: list[Action]) -> None:
        self._check_worker(event.worker)
        self._device.lost = False

    def _limit(self, event: LimitBatches, now_ns: int, actions: list[Action]) -> None:
        """Let batches of a category hold one frame from now on, and see whether all promises still hold."""
        category = replace(event.category, service_class=ServiceClass.REAL_TIME)
        if not self.profile.has(category) or self.profile.max_batch(category) == 1:
            return
        self.profile = self.profile.without_batches(category)
        self._limited.append(category)
        again = split(self._waiting, self._ledger, category, self.profile)
        plan = admission.retest(self.admission_state(now_ns))
        verdict = self._promises.renew(self.profile, plan, now_ns)
        actions += [BatchLimited(category, 1, event.reason, verdict), *again]

    def _drop_failed(self, frames: tuple[Frame, ...], reason: str, actions: list[Action]) -> None:
        if frames:
            actions.append(DropFrames(frames, Outcome.FAILED, reason))
            self._end(frames, [Outcome.FAILED] * len(frames), actions)

    def _check_worker(self, worker: str) -> None:
        assert worker == self._device.worker, f"worker {worker!r} is not this engine's"
