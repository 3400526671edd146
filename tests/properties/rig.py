"""Cameras that keep their contracts in every way they may, and some that do not, around one engine on virtual time."""

import heapq
from collections import Counter
from random import Random

from gateway.core.actions import (
    Admitted,
    DeliverFrames,
    DropFrames,
    ModelChanged,
    ModelRefused,
    PlanStale,
    Rejected,
    StartJob,
    WindowWidened,
)
from gateway.core.batch import NEVER_NS
from gateway.core.events import (
    EVENT_RANK,
    CloseStream,
    FramesArrived,
    HoldModel,
    JobFailed,
    JobFinished,
    ModelLoaded,
    RegisterStream,
    Tick,
    WidenWindows,
)
from gateway.core.types import NS_PER_MS as MS
from gateway.core.types import ServiceClass
from gateway.sim.holds import Holds
from gateway.sim.trace import TraceEntry
from tests.properties.memory import Memory
from tests.properties.mirror import Mirror


def check_slots(engine, now_ns, *, overrun=False):
    """Recompute the invariant from scratch."""
    waiting = engine._waiting
    guard = waiting.guard
    bound = {batch.id for batch in waiting.batches.values() if batch.slot is not None}
    if guard is None:
        assert not bound
        return
    latest_ns = guard.slots._end.latest_ns
    assert latest_ns <= guard.rows.next_latest_ns or latest_ns == NEVER_NS
    seen = set()
    for slot in reversed(list(guard.slots)):
        assert slot.size >= 1
        assert slot.execution_ns == slot.table[slot.size]
        if slot.batch is not None:
            assert slot.batch.slot is slot
            assert 1 <= len(slot.batch.frames) <= slot.size
            seen.add(slot.batch.id)
        else:
            assert slot.release_ns > now_ns, "a slot without frames has outlived its joint"
        latest_ns = min(slot.deadline_ns, latest_ns) - slot.execution_ns
        assert slot.latest_ns <= latest_ns, "cached lam is too late"
        assert slot.release_ns <= slot.latest_ns
    assert seen == bound
    assert all(b.slot is not None for b in waiting.batches.values() if b.standing == 0), "promised without a place"
    if not overrun:
        assert engine._device.free_ns(now_ns) <= guard.slots.latest_ns, "a promise cannot be kept any more"


class Rig:
    """See the module's docstring.

    `rogues` are ids of streams that break their contracts. `plan_delay` gives ms between the record that a plan is made
    from and its installation; None: the engine plans inline. `worker` carries out loads and unloads, and real-time
    streams wait for their models then.
    """

    def __init__(self, engine, seed, *, missing=0.0, shorter=0.0, rogues=(), plan_delay=None, widen=True, worker=None):
        self.engine = engine
        self.worker = worker
        self._holds = Holds(engine) if engine.config.residency.managed else None
        self.rng = Random(seed)
        self.missing, self.shorter, self.rogues = missing, shorter, set(rogues)
        self.plan_delay, self.widen = plan_delay, widen
        self.overrun = False
        self.counts = Counter()
        self.bad = []
        self.mirror = Mirror()
        self.memory = Memory()
        self._heap = []
        self._n = 0
        self._best_effort = set()
        self._finish = None
        self._ahead = None
        self._retry = {}
        self._anchor = {}
        self.log = []

    def at(self, t_ns, event, rank=3):
        self._n += 1
        heapq.heappush(self._heap, (t_ns, EVENT_RANK.get(type(event), rank), self._n, event))

    def join(self, t_ns, stream_id, spec, leave_ns=None):
        if spec.service_class is ServiceClass.BEST_EFFORT:
            self._best_effort.add(stream_id)
        self.at(t_ns, ("join", stream_id, spec, leave_ns))

    def run(self):
        while True:
            wakeup_ns = self.engine.next_wakeup_ns()
            due = [
                key
                for key in (
                    self._finish and (*self._finish[:2], 0),
                    self._heap and self._heap[0][:3],
                    wakeup_ns is not None and (wakeup_ns, 9, 0),
                )
                if key
            ]
            if not due:
                assert self.memory.arena.batches == 0
                return self
            first = min(due)
            if self._finish and first == (*self._finish[:2], 0):
                event, self._finish = self._finish[2], None
                if self._ahead:
                    job, self._ahead = self._ahead, None
                    self._begin(first[0], job)
            elif first[1] == 9:
                event = Tick()
            else:
                event = heapq.heappop(self._heap)[3]
            self._happen(first[0], event)

    def _happen(self, now_ns, event):
        if isinstance(event, tuple):
            return (self._end if event[0] == "end" else self._join)(now_ns, *event[1:])
        self._handle(now_ns, event)
        if self.widen and self.engine.can_widen() and self.rng.random() < 0.5:
            if self.plan_delay is None:
                self._handle(now_ns, WidenWindows())
            else:
                from gateway.core.admission import widen

                plan = widen(self.engine.admission_state(now_ns))
                self.at(now_ns + self.rng.randint(0, self.plan_delay) * MS, WidenWindows(plan))
        return None

    def _end(self, now_ns, number, event):
        """A load or an unload is over."""
        if self.worker.ends(number, event):
            self._handle(now_ns, event)

    def _join(self, now_ns, stream_id, spec, leave_ns):
        self._retry[stream_id] = (spec, leave_ns)
        holds = self._holds
        if holds and not holds.holding(stream_id) and holds.wait(TraceEntry(stream_id, now_ns, spec)):
            self._handle(now_ns, HoldModel(spec.model, stream_id))
            return
        if self.plan_delay is None:
            self._anchor[stream_id] = now_ns + spec.start_in_ns
            self._handle(now_ns, RegisterStream(stream_id, spec))
            return
        delay_ns = self.rng.randint(0, min(self.plan_delay, spec.start_in_ns // MS)) * MS
        self._anchor[stream_id] = now_ns + spec.start_in_ns
        plan = self.engine.plan(spec, now_ns, stream_id)
        self.at(now_ns + delay_ns, RegisterStream(stream_id, spec, plan))

    def _handle(self, now_ns, event):
        self._foretell(event)
        room = self.engine.room(event.stream_id) if isinstance(event, FramesArrived) else 1
        actions = self.engine.handle(event, now_ns)
        self.memory.carry_out(actions, room)
        self.log += [(now_ns, action) for action in actions]
        self.mirror.carry_out(actions, now_ns)
        for action in actions:
            match action:
                case Admitted():
                    self.counts["admitted"] += 1
                    self.counts[action.verdict.test] += 1
                    self._live(action.stream_id, now_ns)
                case PlanStale():
                    self._stale(action.stream_id, now_ns)
                case StartJob():
                    self.counts["early"] += action.job.early
                    self.counts["jobs"] += 1
                    self.counts["ahead"] += action.job.ahead
                    if action.job.ahead:
                        self._ahead = action.job
                    else:
                        self._begin(now_ns, action.job)
                case DeliverFrames():
                    self._outcomes(now_ns, action.job.frames, action.outcomes)
                case DropFrames():
                    self._outcomes(now_ns, action.frames, [action.outcome] * len(action.frames))
                case WindowWidened():
                    self.counts["widened"] += 1
        self._follow(now_ns, actions)
        check_slots(self.engine, now_ns, overrun=self.overrun)

    def _begin(self, now_ns, job):
        least = max(1, round(job.execution_ns * (1 - self.shorter)))
        took_ns = self.rng.randint(least, job.execution_ns) if self.shorter else least
        self._finish = (now_ns + took_ns, 0, JobFinished(job.id))

    def _foretell(self, event):
        """Tell everybody of what the engine is about to be told."""
        if isinstance(event, JobFinished | JobFailed):
            self.call_ended(event.job_id)
        if self.worker is not None:
            self.worker.happen(event)

    def call_ended(self, job_id):
        """A call has ended, well or not; one without frames had none in memory."""
        if not self.mirror.warm_up_ended():
            self.memory.call_ended(job_id)

    def _stale(self, stream_id, now_ns):
        """A plan came too late: most try again."""
        self.counts["stale"] += 1
        if stream_id and self.rng.random() < 0.7:
            self.at(now_ns, ("join", stream_id, *self._retry[stream_id]))
        elif self._holds and self._holds.holding(stream_id):
            self.at(now_ns, self._holds.release(stream_id))

    def _follow(self, now_ns, actions):
        """Carry out loads and unloads; let streams that have waited for their model register, or go away."""
        for t_ns, number, end in self.worker.carry_out(actions, now_ns) if self.worker else ():
            self.at(t_ns, ("end", number, end), EVENT_RANK[ModelLoaded])
        for action in actions if self._holds else ():
            match action:
                case ModelChanged() | ModelRefused():
                    for stream_id, failure in self._holds.settled(action):
                        self.counts["no model" if failure else "waited for its model"] += 1
                        again = ("join", stream_id, *self._retry[stream_id])
                        self.at(now_ns, self._holds.release(stream_id) if failure else again)
                case Admitted() | Rejected() if self._holds.holding(action.stream_id):
                    self.at(now_ns, self._holds.release(action.stream_id))

    def _outcomes(self, now_ns, frames, outcomes):
        for frame, outcome in zip(frames, outcomes, strict=True):
            trusted = frame.stream_id not in self.rogues and frame.stream_id not in self._best_effort
            self.counts[f"{'trusted' if trusted else 'other'} {outcome.value}"] += 1
            if trusted and outcome != "met":
                self.bad.append((now_ns, frame, outcome))

    def _live(self, stream_id, now_ns):
        """Draw the arrivals of an admitted stream."""
        spec, leave_ns = self._retry[stream_id]
        rng, last_ns = self.rng, now_ns
        if stream_id in self._best_effort or stream_id in self.rogues:
            frames = spec.frames or 20
            t_ns = self._anchor[stream_id]
            for _ in range(frames):
                t_ns += rng.choice([0, 0, 1, 2, spec.period_ns // MS, spec.period_ns // MS + 1]) * MS
                if leave_ns is None or t_ns < leave_ns:
                    self.at(max(t_ns, now_ns), FramesArrived(stream_id, rng.choice([1, 1, 1, 3])))
                    last_ns = max(last_ns, t_ns)
        else:
            sent, group = 0, 0
            while sent < (spec.frames or 20):
                anchor_ns = self._anchor[stream_id] + group * spec.period_ns
                group += 1
                for _ in range(min(spec.burst, (spec.frames or 20) - sent)):
                    sent += 1
                    t_ns = anchor_ns + rng.randint(0, spec.jitter_ns // MS) * MS
                    if t_ns >= now_ns and (leave_ns is None or t_ns < leave_ns) and rng.random() >= self.missing:
                        self.at(t_ns, FramesArrived(stream_id))
                        last_ns = max(last_ns, t_ns)
        self.at(max(now_ns, last_ns + MS if leave_ns is None else leave_ns), CloseStream(stream_id))
