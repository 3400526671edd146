"""The engine on virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from gateway.core.actions import (
    AcceptFrames,
    Action,
    Admitted,
    DeliverFrames,
    LoadModel,
    ModelChanged,
    ModelRefused,
    Rejected,
    StartJob,
    StreamEnded,
    UnloadModel,
)
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import EVENT_RANK, Event, JobFinished, Tick, WidenWindows
from gateway.core.log import entry
from gateway.core.profile import Profile
from gateway.core.types import Job
from gateway.core.verdict import Verdict
from gateway.sim.cameras import PUNCTUAL, Behaviour
from gateway.sim.events import TraceEvents
from gateway.sim.execution import Execution, exact
from gateway.sim.holds import Holds
from gateway.sim.loads import Loading, Loads, profiled
from gateway.sim.report import SimulationReport
from gateway.sim.tally import Tally
from gateway.sim.trace import TraceEntry

_DEFAULTS = EngineConfig()
_FINISH = EVENT_RANK[JobFinished]
_WIDEN = EVENT_RANK[WidenWindows]
_TICK = EVENT_RANK[Tick]
_WAKE = Tick()
#: What happens most, and changes nothing for the cameras or the device.
_QUIET = frozenset({AcceptFrames, DeliverFrames})
#: After everything.
_NEVER = (2**63, 0)

#: Takes each line of the decision log.
Log = Callable[[dict[str, Any]], object]


def simulate(
    trace: Iterable[TraceEntry],
    profile: Profile,
    config: EngineConfig = _DEFAULTS,
    *,
    execution: Execution = exact,
    loads: Loads | None = None,
    duration_ns: int | None = None,
    behaviour: Behaviour = PUNCTUAL,
    log: Log | None = None,
) -> SimulationReport:
    """Run a trace to its end and return the figures.

    With a memory budget no model is there at first, and a real-time stream registers once its model is, as in the live
    gateway.

    Args:
        trace: Registrations.
        profile: What admission and, by default, the device go by.
        config: Of the engine.
        execution: How long the device takes for a job.
        loads: How loads and unloads of models go; None: as the profile says.
        duration_ns: When every stream still there is closed; needed when one is unbounded.
        behaviour: Late groups and missing frames.
        log: Takes each line of the decision log.

    Raises:
        TraceError: An unbounded stream without a duration.
    """
    trace = tuple(trace)
    engine = Engine(profile, config)
    source = TraceEvents(trace, duration_ns, behaviour)
    holds = Holds(engine) if config.residency.managed else None
    run = Simulation(engine, source, execution, log, loads=loads, holds=holds)
    run.to_end()
    return run.tally.report(trace)


class Simulation:
    """One simulation: the instants at which something can happen, merged.

    When a stream has ended and windows could grow, it asks the engine at that instant to let them, before any
    registration of the instant.

    Args:
        engine: With the profile that loads and unloads go by, unless `loads` is given.
        source: What the cameras do.
        execution: How long the device takes for a job.
        log: Takes each line of the decision log.
        loads: How loads and unloads of models go.
        holds: Has real-time streams wait for their models; None: they register at once, for admission alone is asked.
    """

    def __init__(
        self,
        engine: Engine,
        source: TraceEvents,
        execution: Execution = exact,
        log: Log | None = None,
        *,
        loads: Loads | None = None,
        holds: Holds | None = None,
    ) -> None:
        self.tally = Tally()
        self.engine = engine
        self._source = source
        self._execution = execution
        self._log = log
        self._loading = Loading(loads or profiled(engine.profile))
        self._holds = holds
        self._finish: JobFinished | None = None
        self._finish_key = _NEVER
        self._ahead: Job | None = None
        self._widen_ns: int | None = None
        self._coming: list[tuple[int, int, int, Event]] = []
        self._came = 0
        if holds is not None:
            source.must_wait = holds.wait

    def to_end(self) -> None:
        """Handle events until nothing is left to happen."""
        handle = self.engine.handle
        while (due := self._next()) is not None:
            t_ns, event = due
            actions = handle(event, t_ns)
            if actions:
                self._carry_out(actions, t_ns)

    def answer(self, asked: TraceEntry) -> Verdict:
        """Let a further stream register, at an instant that has not passed; run until it is answered."""
        assert self._holds is None, "a stream that waits for its model may never be answered"
        self._source.add(asked)
        while (verdict := self.tally.verdict(asked.stream_id)) is None:
            due = self._next()
            assert due is not None, f"{asked.stream_id} registers after the end of the simulation"
            self._carry_out(self.engine.handle(due[1], due[0]), due[0])
        return verdict

    def post(self, t_ns: int, event: Event) -> None:
        """Let something happen that no camera does, at an instant that has not passed."""
        self._at(t_ns, event)

    def _next(self) -> tuple[int, Event] | None:
        """Return the next event: by time, then rank."""
        key = self._source.next_key() or _NEVER
        finish, finish_key = self._finish, self._finish_key
        wakeup_ns = self.engine.next_wakeup_ns()
        if self._coming and self._comes_before(key, wakeup_ns):
            t_ns, _, _, event = heapq.heappop(self._coming)
            return t_ns, event
        if self._widen_ns is not None and self._widens_before(key):
            due, self._widen_ns = (self._widen_ns, WidenWindows()), None
            return due
        if finish is not None and finish_key <= key and (wakeup_ns is None or finish_key[0] <= wakeup_ns):
            self._finish, self._finish_key = None, _NEVER
            if self._ahead is not None:
                job, self._ahead = self._ahead, None
                self._begin(job, finish_key[0])
            return finish_key[0], finish
        if wakeup_ns is not None and wakeup_ns <= key[0] and (wakeup_ns, _TICK) < key:
            return wakeup_ns, _WAKE
        return None if key is _NEVER else self._source.take()

    def _comes_before(self, key: tuple[int, int], wakeup_ns: int | None) -> bool:
        """Whether something about a model happens before anything else."""
        others = [key, self._finish_key]
        if self._widen_ns is not None:
            others.append((self._widen_ns, _WIDEN))
        if wakeup_ns is not None:
            others.append((wakeup_ns, _TICK))
        return self._coming[0][:2] <= min(others)

    def _widens_before(self, key: tuple[int, int]) -> bool:
        """Whether windows are to grow before anything else happens; of one instant, before its registrations."""
        return (self._widen_ns, _WIDEN) <= min(key, self._finish_key)

    def _carry_out(self, actions: list[Action], t_ns: int) -> None:
        add, log, holds = self.tally.add, self._log, self._holds
        for action in actions:
            if isinstance(action, StartJob):
                if action.job.ahead:
                    self._ahead = action.job
                else:
                    self._begin(action.job, t_ns)
            elif type(action) not in _QUIET:
                self._carry_out_other(action, t_ns)
                if holds is not None:
                    self._follow(action, holds, t_ns)
            add(action, t_ns)
            if log is not None:
                log(entry(t_ns, action))

    def _carry_out_other(self, action: Action, t_ns: int) -> None:
        match action:
            case LoadModel() | UnloadModel():
                takes_ns, ending = self._loading.begin(action)
                self._at(t_ns + takes_ns, ending)
            case Rejected():
                self._source.refuse(action.stream_id)
            case StreamEnded() if self.engine.can_widen():
                self._widen_ns = t_ns

    def _begin(self, job: Job, t_ns: int) -> None:
        """The device runs a job; one that was sent ahead, from the end of the one before it."""
        takes_ns = self._execution(job)
        self._finish, self._finish_key = JobFinished(job.id), (t_ns + takes_ns, _FINISH)
        if job.warm_up:
            self.tally.warm_up(takes_ns)

    def _follow(self, action: Action, holds: Holds, t_ns: int) -> None:
        """Let streams register, or go, whose wait for their model is over."""
        match action:
            case ModelChanged() | ModelRefused():
                for stream_id, failure in holds.settled(action):
                    if failure:
                        self.tally.no_model(stream_id, failure)
                        self._at(t_ns, holds.release(stream_id))
                    else:
                        self._source.resume(stream_id, t_ns)
            case Admitted() | Rejected() if holds.holding(action.stream_id):
                self._at(t_ns, holds.release(action.stream_id))

    def _at(self, t_ns: int, event: Event) -> None:
        self._came += 1
        heapq.heappush(self._coming, (t_ns, EVENT_RANK[type(event)], self._came, event))
