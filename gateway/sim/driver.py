"""The engine on virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gateway.core.actions import Action, Rejected, StartJob, StreamEnded
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import EVENT_RANK, Event, JobFinished, Tick, WidenWindows
from gateway.core.log import entry
from gateway.core.profile import Profile
from gateway.core.verdict import Verdict
from gateway.sim.cameras import PUNCTUAL, Behaviour
from gateway.sim.events import TraceEvents
from gateway.sim.execution import Execution, exact
from gateway.sim.report import SimulationReport, Tally
from gateway.sim.trace import TraceEntry

_DEFAULTS = EngineConfig()
_FINISH = EVENT_RANK[JobFinished]
_WIDEN = EVENT_RANK[WidenWindows]
_TICK = EVENT_RANK[Tick]
_WAKE = Tick()
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
    duration_ns: int | None = None,
    behaviour: Behaviour = PUNCTUAL,
    log: Log | None = None,
) -> SimulationReport:
    """Run a trace to its end and return the figures.

    Args:
        trace: Registrations.
        profile: What admission and, by default, the device go by.
        config: Of the engine.
        execution: How long the device takes for a job.
        duration_ns: When every stream still there is closed; needed when one is unbounded.
        behaviour: Late groups and missing frames.
        log: Takes each line of the decision log.

    Raises:
        TraceError: An unbounded stream without a duration.
    """
    trace = tuple(trace)
    run = Simulation(Engine(profile, config), TraceEvents(trace, duration_ns, behaviour), execution, log)
    run.to_end()
    return run.tally.report(trace)


class Simulation:
    """One simulation: the instants at which something can happen, merged.

    When a stream has ended and windows could grow, it asks the engine at that instant to let them, before any
    registration of the instant.
    """

    def __init__(
        self, engine: Engine, source: TraceEvents, execution: Execution = exact, log: Log | None = None
    ) -> None:
        self.tally = Tally()
        self.engine = engine
        self._source = source
        self._execution = execution
        self._log = log
        self._finish: tuple[int, int, JobFinished] | None = None
        self._widen_ns: int | None = None

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
        self._source.add(asked)
        while (verdict := self.tally.verdict(asked.stream_id)) is None:
            due = self._next()
            assert due is not None, f"{asked.stream_id} registers after the end of the simulation"
            self._carry_out(self.engine.handle(due[1], due[0]), due[0])
        return verdict

    def _next(self) -> tuple[int, Event] | None:
        """Return the next event: by time, then rank."""
        key = self._source.next_key() or _NEVER
        finish = self._finish
        if self._widen_ns is not None and self._widens_before(key):
            due, self._widen_ns = (self._widen_ns, WidenWindows()), None
            return due
        wakeup_ns = self.engine.next_wakeup_ns()
        if finish is not None and finish[:2] <= key and (wakeup_ns is None or finish[0] <= wakeup_ns):
            self._finish = None
            return finish[0], finish[2]
        if wakeup_ns is not None and (wakeup_ns, _TICK) < key:
            return wakeup_ns, _WAKE
        return next(self._source, None)

    def _widens_before(self, key: tuple[int, int]) -> bool:
        """Whether windows are to grow before anything else happens; of one instant, before its registrations."""
        finish = self._finish
        return (self._widen_ns, _WIDEN) <= min(key, finish[:2] if finish else _NEVER)

    def _carry_out(self, actions: list[Action], t_ns: int) -> None:
        for action in actions:
            if isinstance(action, StartJob):
                job = action.job
                self._finish = (t_ns + self._execution(job), _FINISH, JobFinished(job.id))
            elif isinstance(action, Rejected):
                self._source.refuse(action.stream_id)
            elif isinstance(action, StreamEnded) and self.engine.can_widen():
                self._widen_ns = t_ns
            self.tally.add(action, t_ns)
            if self._log is not None:
                self._log(entry(t_ns, action))
