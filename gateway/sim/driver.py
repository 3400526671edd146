"""The engine on virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import EVENT_RANK, Action, Event, JobFinished, Rejected, StartJob, Tick
from gateway.core.log import entry
from gateway.core.profile import Profile
from gateway.sim.events import TraceEvents
from gateway.sim.execution import Execution, exact
from gateway.sim.report import SimulationReport, Tally
from gateway.sim.trace import TraceEntry

_DEFAULTS = EngineConfig()
_FINISH = EVENT_RANK[JobFinished]
_TICK = EVENT_RANK[Tick]
_WAKE = Tick()
#: After everything.
_NEVER = (2**63, 0)


def simulate(
    trace: Iterable[TraceEntry],
    profile: Profile,
    config: EngineConfig = _DEFAULTS,
    *,
    execution: Execution = exact,
    duration_ns: int | None = None,
    log: Callable[[dict[str, Any]], object] | None = None,
) -> SimulationReport:
    """Run a trace to its end and return the figures.

    Args:
        trace: Registrations.
        profile: What admission and, by default, the device go by.
        config: Of the engine.
        execution: How long the device takes for a job.
        duration_ns: When every stream still there is closed; needed when one is unbounded.
        log: Takes each line of the decision log.

    Raises:
        TraceError: An unbounded stream without a duration.
    """
    trace = tuple(trace)
    run = _Run(Engine(profile, config), TraceEvents(trace, duration_ns), execution, log)
    run.to_end()
    return run.tally.report(trace)


class _Run:
    """One simulation: the instants at which something can happen, merged."""

    def __init__(
        self, engine: Engine, source: TraceEvents, execution: Execution, log: Callable[[dict[str, Any]], object] | None
    ) -> None:
        self.tally = Tally()
        self._engine = engine
        self._source = source
        self._execution = execution
        self._log = log
        self._finish: tuple[int, int, JobFinished] | None = None

    def to_end(self) -> None:
        """Handle events until nothing is left to happen."""
        while (due := self._next()) is not None:
            t_ns, event = due
            actions = self._engine.handle(event, t_ns)
            if actions:
                self._carry_out(actions, t_ns)

    def _next(self) -> tuple[int, Event] | None:
        """Return the next event: by time, then rank."""
        key = self._source.next_key() or _NEVER
        finish = self._finish
        wakeup_ns = self._engine.next_wakeup_ns()
        if finish is not None and finish[:2] <= key and (wakeup_ns is None or finish[0] <= wakeup_ns):
            self._finish = None
            return finish[0], finish[2]
        if wakeup_ns is not None and (wakeup_ns, _TICK) < key:
            return wakeup_ns, _WAKE
        return next(self._source, None)

    def _carry_out(self, actions: list[Action], t_ns: int) -> None:
        for action in actions:
            if isinstance(action, StartJob):
                job = action.job
                self._finish = (t_ns + self._execution(job), _FINISH, JobFinished(job.id))
            elif isinstance(action, Rejected):
                self._source.refuse(action.stream_id)
            self.tally.add(action, t_ns)
            if self._log is not None:
                self._log(entry(t_ns, action))
