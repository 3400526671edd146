"""The engine: events and the time go in, decisions come out.

Order inside one `Engine.handle`: close due windows; apply the event; expire frames; dispatch.

Rules:

- One worker, one job at a time on it. What was admitted by an exact test is dispatched by its plan
  (`gateway.core.guard`). Without such a plan dispatch is non-preemptive, non-idling EDF over ready jobs, ties broken by
  (absolute deadline, release, job id), and while the device is idle and nothing is ready, the waiting batch with the
  earliest deadline is sent before its joint (the paper's early dispatch), if `EngineConfig.early_dispatch`.
- An accepted frame ends exactly once, in one of `Outcome`; its batch is fixed on arrival.
- A frame expires when ``now >= deadline``, it has not been dispatched and its stream drops late frames.
- Frames that no plan has a place for, and then those of best-effort streams, get what is left over: they start only
  when no promise is touched.
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

from collections.abc import Callable, Iterable
from typing import Any

from gateway.core import admission
from gateway.core.batch import NEVER_NS
from gateway.core.books import Ledger, Stream
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.dispatch import choose
from gateway.core.events import (
    AcceptFrames,
    Action,
    CloseStream,
    DeliverFrames,
    DropFrames,
    Event,
    FrameCancelled,
    FramesArrived,
    JobFailed,
    JobFinished,
    RefuseFrames,
    RegisterStream,
    StartJob,
    StreamEnded,
    Tick,
    WidenWindows,
    WorkerBack,
    WorkerLost,
)
from gateway.core.plan import Plan
from gateway.core.plan_state import AdmissionState
from gateway.core.profile import Profile
from gateway.core.promises import Promises
from gateway.core.recording import record_state, record_view
from gateway.core.types import LOCAL_WORKER, Frame, Outcome, StreamSpec
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
        self._promises = Promises(self._ledger, self._waiting, self._device, profile=self.profile, config=config)
        self._apply: dict[type[Any], Callable[[Any, int, list[Action]], None]] = {
            RegisterStream: self._register,
            WidenWindows: self._widen,
            CloseStream: self._close,
            FramesArrived: self._arrive,
            FrameCancelled: self._cancel,
            JobFinished: self._finish,
            JobFailed: self._fail,
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
        if device.free:
            batch = choose(waiting, now_ns, early=self.config.early_dispatch)
            if batch is not None:
                job = waiting.start(batch, now_ns)
                device.start(job, now_ns)
                self._promises.started += 1
                actions.append(StartJob(job))
        return actions

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
            self._ledger, self._waiting, self._device, state=self.admission_state(self._now_ns), now_ns=self._now_ns
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

    def can_widen(self) -> bool:
        """Whether `WidenWindows` is worth while: some W could grow by the streams that are left.

        O(categories), once per change.
        """
        return self._promises.can_widen()

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
            self._waiting.quiet(stream.batcher)

    def _sweep(self, stream_ids: Iterable[str], actions: list[Action]) -> None:
        """End the streams among these that take no further frame and have none left."""
        for stream in self._ledger.take_ended(stream_ids):
            self._waiting.leave(stream.batcher, stream.spec.deadline_ns)
            self._promises.generation += 1
            actions.append(StreamEnded(stream.id, stream.refusal or "closed"))

    # ------------------------------------------------------------ frames

    def _arrive(self, event: FramesArrived, now_ns: int, actions: list[Action]) -> None:
        count = event.count
        assert count >= 1, f"{count} frames of {event.stream_id!r} cannot arrive"
        stream = self._ledger.streams.get(event.stream_id)
        refusal = "unknown_stream" if stream is None else stream.refusal
        taken = 0
        if stream is not None and refusal is None:
            remaining = stream.remaining
            taken = count if remaining is None else min(count, remaining)
            busy_ns = now_ns if self._waiting.guard is None else self._device.free_ns(now_ns)
            frames = tuple([self._waiting.accept(stream, now_ns, busy_ns) for _ in range(taken)])
            self._promises.journal.note(frames)
            actions.append(AcceptFrames(frames))
            if taken == remaining:
                self._hush(stream)
        if taken < count:
            reason = refusal or "finished"
            self._ledger.refuse(reason, count - taken)
            actions.append(RefuseFrames(event.stream_id, count - taken, reason))

    def _cancel(self, event: FrameCancelled, _now_ns: int, actions: list[Action]) -> None:
        frame = self._ledger.in_flight(event.stream_id, event.seq)
        moved = None if frame is None else self._waiting.withdraw(frame)
        if frame is not None and moved is not None:
            actions.append(DropFrames((frame,), Outcome.CANCELLED, "cancelled", moved))
            self._end([frame], [Outcome.CANCELLED], actions)

    def _expire(self, now_ns: int, actions: list[Action]) -> None:
        gone, moved = self._waiting.expire(now_ns)
        actions.append(DropFrames(tuple(gone), Outcome.EXPIRED, "expired", tuple(moved)))
        self._end(gone, [Outcome.EXPIRED] * len(gone), actions)

    def _end(self, frames: Iterable[Frame], outcomes: Iterable[Outcome], actions: list[Action]) -> None:
        last = self._ledger.end_frames(frames, outcomes)
        if last:
            self._sweep(last, actions)

    def _tick(self, _event: Tick, _now_ns: int, _actions: list[Action]) -> None:
        """Time alone: everything that it brings about is done around the event."""

    # ------------------------------------------------------------ the device

    def _finish(self, event: JobFinished, now_ns: int, actions: list[Action]) -> None:
        job = self._device.stop(event.job_id)
        if job is not None:
            outcomes = tuple([Outcome.MET if now_ns <= frame.deadline_ns else Outcome.MISSED for frame in job.frames])
            actions.append(DeliverFrames(job, outcomes, now_ns, self._device.since_ns))
            self._end(job.frames, outcomes, actions)

    def _fail(self, event: JobFailed, _now_ns: int, actions: list[Action]) -> None:
        self._fail_running(event.job_id, event.reason, actions)

    def _lose(self, event: WorkerLost, _now_ns: int, actions: list[Action]) -> None:
        self._check_worker(event.worker)
        self._device.lost = True
        self._fail_running(None, "worker_lost", actions)

    def _regain(self, event: WorkerBack, _now_ns: int, _actions: list[Action]) -> None:
        self._check_worker(event.worker)
        self._device.lost = False

    def _fail_running(self, job_id: int | None, reason: str, actions: list[Action]) -> None:
        job = self._device.stop(job_id)
        if job is not None:
            actions.append(DropFrames(job.frames, Outcome.FAILED, reason))
            self._end(job.frames, [Outcome.FAILED] * len(job.frames), actions)

    def _check_worker(self, worker: str) -> None:
        assert worker == self._device.worker, f"worker {worker!r} is not this engine's"
