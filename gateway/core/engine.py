"""The engine: events and the time go in, decisions come out.

Order inside one `Engine.handle`: close due windows; apply the event; expire frames; plan residency; dispatch.

Rules:

- One worker, one job at a time on it; the next one may be sent ahead where the order cannot change by it
  (`gateway.core.ahead`). What was admitted by an exact test is dispatched by its plan (`gateway.core.guard`). Without
  such a plan dispatch is non-preemptive, non-idling EDF over ready jobs, ties broken by (absolute deadline, release,
  job id), and while the device is idle and nothing is ready, the waiting batch with the earliest deadline is sent
  before its joint (the paper's early dispatch), if `EngineConfig.early_dispatch`.
- An accepted frame ends exactly once, in one of `Outcome`; its batch is fixed on arrival.
- A frame expires when ``now >= deadline``, it has not been dispatched and its stream drops late frames; and when its
  turn comes and it would be late though its job took no longer than usual, for others would be late because of it.
- Frames that no plan has a place for, and then those of best-effort streams, get what is left over: they start only
  when no promise is touched.
- Nothing starts of a model that is not in memory (`gateway.core.residency`).
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

from collections.abc import Callable, Iterable
from typing import Any

from gateway.core import admission
from gateway.core.actions import Action
from gateway.core.adaptation import Adaptation
from gateway.core.ahead import Ahead
from gateway.core.batch import NEVER_NS
from gateway.core.books import Ledger
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.endings import Endings
from gateway.core.events import (
    CloseStream,
    Event,
    FrameCancelled,
    FramesArrived,
    JobFailed,
    JobFinished,
    LimitBatches,
    RegisterStream,
    SerialModels,
    Tick,
    WidenWindows,
    WorkerBack,
    WorkerLost,
)
from gateway.core.intake import Intake
from gateway.core.jobs import Jobs
from gateway.core.memory import planned
from gateway.core.models import Models
from gateway.core.plan import Plan
from gateway.core.plan_state import AdmissionState
from gateway.core.profile import Profile
from gateway.core.promises import Promises
from gateway.core.recording import record_view
from gateway.core.schedulability import utilization
from gateway.core.streams import Streams
from gateway.core.types import LOCAL_WORKER, Category, StreamSpec
from gateway.core.verdict import Verdict
from gateway.core.view import EngineView, MemoryView, ModelView
from gateway.core.waiting import Waiting

__all__ = ["Engine", "EngineConfig", "EngineView"]

_DEFAULTS = EngineConfig()


class Engine:
    """See the module's docstring.

    Args:
        profile: Execution times; `EngineConfig.dispatch_overhead_ns` is added to them, and where models come and go
            they are those beside a load.
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
        profile = planned(profile, config)
        self._now_ns = -NEVER_NS
        self._stops = config.residency.synchronous
        self._ledger = Ledger()
        self._waiting = Waiting(config)
        self._device = Device(names[0])
        self._promises = Promises(self._ledger, self._waiting, self._device, profile=profile, config=config)
        self._adaptation = Adaptation(self._promises, config)
        self._endings = Endings(self._ledger, self._waiting, self._promises, self._adaptation)
        self._models = Models(
            self._ledger, self._waiting, self._device, endings=self._endings, promises=self._promises, config=config
        )
        self._residency, self._demand = self._models.residency, self._models.demand
        self._jobs = Jobs(
            self._ledger,
            self._waiting,
            self._device,
            promises=self._promises,
            adaptation=self._adaptation,
            endings=self._endings,
            calls=self._models.calls,
            config=config,
        )
        self._ahead = Ahead(self._waiting, self._device, self._promises, self._residency, config)
        self._sends_ahead = self._ahead.on
        streams = Streams(
            self._ledger,
            self._waiting,
            intake=Intake(self._ledger, self._waiting, self._device, self._promises.journal, config),
            endings=self._endings,
            promises=self._promises,
            residency=self._residency,
            plan=self.plan,
        )
        self._apply: dict[type[Any], Callable[[Any, int, list[Action]], None]] = {
            RegisterStream: streams.register,
            WidenWindows: streams.widen,
            CloseStream: streams.close,
            FramesArrived: streams.arrive,
            FrameCancelled: streams.cancel,
            JobFinished: self._jobs.finish,
            JobFailed: self._jobs.fail,
            LimitBatches: self._jobs.limit,
            SerialModels: self._note_serial,
            WorkerLost: self._jobs.lose,
            WorkerBack: self._jobs.regain,
            Tick: _nothing,
            **self._models.handlers,
        }

    # ------------------------------------------------------------ interface

    def handle(self, event: Event, now_ns: int) -> list[Action]:
        """Take one event at `now_ns` and return what is to be done, in order.

        The driver carries out every action before the next event. Cost: amortised O(log of waiting batches), plus
        O(categories) when the device is idle; for `RegisterStream` and `WidenWindows` without a plan an admission test,
        and with one the rows that the plan has for the next windows.
        """
        assert now_ns >= self._now_ns, f"time went back: {now_ns} after {self._now_ns}"
        self._now_ns = now_ns
        waiting = self._waiting
        actions: list[Action] = []
        waiting.advance(now_ns)
        self._apply[type(event)](event, now_ns, actions)
        if waiting.next_expiry_ns() <= now_ns:
            self._endings.expire(now_ns, actions, lost=self._device.lost)
        # A frame of a model that is there, or for which a batch waits already, changes nothing.
        if waiting.lacking or (
            (waiting.barred or waiting.turning) and (waiting.apart or type(event) is not FramesArrived)
        ):
            self._demand.plan(now_ns, actions)
        if self._jobs.retries.wondering:
            self._jobs.learn(actions, now_ns, actions)
        if self._device.free and not (self._stops and self._residency.calling):
            batch = self._jobs.choose(now_ns, actions)
            while (turns := self._residency.turns) is not None and turns.over:
                # Its last frames were given up. The next one must not wait for another job.
                self._demand.plan(now_ns, actions)
                batch = self._jobs.choose(now_ns, actions)
            if batch is not None:
                self._jobs.start(batch, now_ns, actions)
            elif waiting.first_ready() is not None:
                self._promises.course.wait()
        if self._sends_ahead and (batch := self._ahead.choose(now_ns)) is not None:
            self._jobs.send_ahead(batch, now_ns, actions)
        return actions

    def next_wakeup_ns(self) -> int | None:
        """Return when `Tick` is next needed if nothing else happens; None: not at all.

        While the device is busy or lost, a joint changes nothing that anyone could see, so only expiries count, and
        instants at which a job may be sent ahead.
        """
        waiting = self._waiting
        wakeup_ns = waiting.next_expiry_ns()
        if self._device.free or waiting.turning or (waiting.barred and not self.config.residency.prefetch):
            wakeup_ns = min(wakeup_ns, waiting.next_change_ns(self._now_ns))
        if self._sends_ahead:
            wakeup_ns = min(wakeup_ns, self._ahead.next_wakeup_ns(self._now_ns))
        if self._residency.paused:
            wakeup_ns = min(wakeup_ns, self._residency.next_wakeup_ns(self._now_ns))
        return None if wakeup_ns == NEVER_NS else wakeup_ns

    def snapshot(self, *, streams: bool = True) -> EngineView:
        """Return the engine's state as of the last event; O(streams + ready jobs).

        Without `streams` it has none, and takes half as long.
        """
        return record_view(
            self._ledger,
            self._waiting,
            self._device,
            self._adaptation,
            state=self.admission_state(self._now_ns),
            now_ns=self._now_ns,
            limited=self.limited,
            broken=self._promises.broken,
            residency=self.model_views(),
            memory=self.memory_view(),
            with_streams=streams,
        )

    def model_views(self) -> tuple[ModelView, ...]:
        """Return what `snapshot` says of the models alone; O(streams), but a tenth of it."""
        return self._models.views(self._now_ns)

    def memory_view(self) -> MemoryView:
        """Return what `snapshot` says of the memory alone."""
        return self._residency.memory.view()

    def utilization(self) -> float:
        """Return what `snapshot` says of the utilisation alone; O(streams)."""
        return utilization(self.admission_state(self._now_ns))

    @property
    def limited(self) -> tuple[Category, ...]:
        """Categories whose batches failed: their jobs hold one frame."""
        return tuple(self._jobs.limited)

    def models_to_load(self, ready: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
        """Return what is to be in the memory of a worker that is being set up, most important first.

        Args:
            ready: Models that are in it now.
            wanted: Models that are to be served, most important first.
        """
        return self._models.to_load(ready, wanted)

    def admission_state(self, now_ns: int) -> AdmissionState:
        """Return what an admission test at `now_ns` starts from; nothing changes."""
        self._check_time(now_ns)
        return self._promises.state(now_ns)

    def plan(self, spec: StreamSpec, now_ns: int, stream_id: str = "") -> Plan:
        """Return the plan by which `RegisterStream` would be answered at `now_ns`; nothing changes."""
        return admission.plan(self.admission_state(now_ns), spec, stream_id)

    def check(self, spec: StreamSpec, now_ns: int, stream_id: str = "") -> Verdict:
        """Return the verdict of that plan; nothing changes."""
        return self.plan(spec, now_ns, stream_id).verdict

    def room(self, stream_id: str) -> int:
        """Return the most frames that a batch of a stream's category can have; 1 for a stream that is not known."""
        stream = self._ledger.streams.get(stream_id)
        return 1 if stream is None else len(stream.batcher.table) - 1

    def takes_turns(self, model: str) -> bool:
        """Whether a model shares the swap region with others."""
        return model in self._residency.region_models

    def suspect(self, stream_id: str) -> bool:
        """Whether the frames of a stream go alone, because of some that were refused (`gateway.core.retries`)."""
        stream = self._ledger.streams.get(stream_id)
        return stream is not None and stream.suspect

    @property
    def profile(self) -> Profile:
        """Execution times that the decisions rest on, with the overhead; batches that fail are taken out of them."""
        return self._promises.profile

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

    def _note_serial(self, event: SerialModels, _now_ns: int, _actions: list[Action]) -> None:
        self._ahead.serial = event.models

    def _check_time(self, now_ns: int) -> None:
        assert now_ns >= self._now_ns, f"time went back: {now_ns} after {self._now_ns}"


def _nothing(_event: Tick, _now_ns: int, _actions: list[Action]) -> None:
    """Time alone: everything that it brings about is done around the event."""
