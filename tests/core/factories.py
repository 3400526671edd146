"""How tests build profiles, streams and engines: one factory each, with overrides. Times are whole ms."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from gateway.core.actions import Action, Admitted, DeliverFrames, Rejected, StartJob, StreamEnded
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import EVENT_RANK, Event, FramesArrived, JobFinished, RegisterStream, Tick, WidenWindows
from gateway.core.plan import Plan
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import NS_PER_MS, Category, Job, StreamSpec
from gateway.core.verdict import Verdict
from gateway.sim.events import TraceEvents
from gateway.sim.trace import TraceEntry

MS = NS_PER_MS
SHAPE = (8, 8, 3)

ActionT = TypeVar("ActionT")


def make_profile(**tables: Sequence[float]) -> Profile:
    """`make_profile(m=[5, 7])`: model m takes 5 ms for one frame and 7 ms for two."""
    return Profile(
        tuple(
            ProfileEntry(model, "1", SHAPE, "UINT8", batch, 1000, ms, ms, ms)
            for model, times in tables.items()
            for batch, ms in enumerate(times, 1)
        )
    )


def make_spec(period: float = 100, deadline: float = 100, **overrides: Any) -> StreamSpec:
    """A stream of model `m`; `start_in` is in ms too."""
    start_in = overrides.pop("start_in", 0)
    fields: dict[str, Any] = {"model": "m", "version": "1", "shape": SHAPE, "start_in_ns": round(start_in * MS)}
    return StreamSpec(period_ns=round(period * MS), deadline_ns=round(deadline * MS), **(fields | overrides))


def make_category(model: str = "m") -> Category:
    return Category(model, "1", SHAPE)


class Unchecked(Engine):
    """Admits everything, so that tests can look at sets which the admission test refuses. No plan: plain EDF."""

    def plan(self, spec: StreamSpec, now_ns: int, stream_id: str = "") -> Plan:
        return Plan(Verdict(admitted=True, test="none", phase=0), at_ns=now_ns)


class Drive:
    """An engine moved by hand; ms in, actions out. Frames may come as a test likes, unless `policing` is asked for."""

    def __init__(self, profile: Profile, *, admit_all: bool = False, policing: bool = False, **config: Any) -> None:
        self.engine = (Unchecked if admit_all else Engine)(profile, EngineConfig(policing=policing, **config))

    def at(self, t: float, *events: Event) -> list[Action]:
        return [action for event in events or (Tick(),) for action in self.engine.handle(event, round(t * MS))]

    def register(self, t: float, **streams: StreamSpec) -> list[Verdict]:
        actions = self.at(t, *(RegisterStream(name, spec) for name, spec in streams.items()))
        return [action.verdict for action in actions if isinstance(action, Admitted | Rejected)]

    def frames(self, t: float, *names: str) -> list[Action]:
        return self.at(t, *(FramesArrived(name) for name in names))

    def finish(self, t: float, job: Job) -> list[Action]:
        return self.at(t, JobFinished(job.id))

    @property
    def wakeup(self) -> float | None:
        ns = self.engine.next_wakeup_ns()
        return None if ns is None else ns / MS


def only(actions: Iterable[Action], kind: type[ActionT]) -> ActionT:
    """The single action of a kind."""
    (found,) = every(actions, kind)
    return found


def every(actions: Iterable[Action], kind: type[ActionT]) -> list[ActionT]:
    return [action for action in actions if isinstance(action, kind)]


def names(job: Job) -> list[str]:
    """The streams of a job's frames, in order."""
    return [frame.stream_id for frame in job.frames]


def replay(
    engine: Engine,
    trace: Sequence[TraceEntry],
    *,
    duration_ns: int | None = None,
    execution: Callable[[Job], int] = lambda job: job.execution_ns,
    before: Callable[[Event, int], object] = lambda event, t_ns: None,
) -> list[tuple[int, Action]]:
    """Run an engine over a trace on virtual time; a second, plainer simulator than the one under test."""
    source = TraceEvents(trace, duration_ns)
    finish: tuple[int, Event] | None = None
    widen_ns: int | None = None
    log: list[tuple[int, Action]] = []
    while True:
        key = source.next_key()
        wakeup_ns = engine.next_wakeup_ns()
        due = [
            (t, rank)
            for t, rank in (
                (finish[0], 0) if finish else (None, 0),
                (widen_ns, 2.5),
                key or (None, 0),
                (wakeup_ns, 9),
            )
            if t is not None
        ]
        if not due:
            return log
        t_ns, _ = first = min(due)
        event: Event
        if finish and first == (finish[0], 0):
            event, finish = finish[1], None
        elif first == (widen_ns, 2.5):
            event, widen_ns = WidenWindows(), None
        elif first == key:
            event = next(source)[1]
        else:
            event = Tick()
        before(event, t_ns)
        for action in engine.handle(event, t_ns):
            log.append((t_ns, action))
            if isinstance(action, StartJob):
                finish = (t_ns + execution(action.job), JobFinished(action.job.id))
            elif isinstance(action, Rejected):
                source.refuse(action.stream_id)
            elif isinstance(action, StreamEnded) and engine.can_widen():
                widen_ns = t_ns


def act_out(
    engine: Engine,
    happens: Iterable[tuple[float, Event]],
    execution: Callable[[Job], int] = lambda job: job.execution_ns,
) -> list[tuple[int, Action]]:
    """Run an engine over events at given instants (ms), each job answered in time; return what it decides."""
    queue = [(round(t * MS), EVENT_RANK[type(event)], n, event) for n, (t, event) in enumerate(happens)]
    heapq.heapify(queue)
    log: list[tuple[int, Action]] = []
    while True:
        wakeup_ns = engine.next_wakeup_ns()
        event: Event
        if wakeup_ns is not None and (not queue or (wakeup_ns, EVENT_RANK[Tick]) < queue[0][:2]):
            t_ns, event = wakeup_ns, Tick()
        elif queue:
            t_ns, _, _, event = heapq.heappop(queue)
        else:
            return log
        for action in engine.handle(event, t_ns):
            log.append((t_ns, action))
            if isinstance(action, StartJob):
                heapq.heappush(queue, (t_ns + execution(action.job), 0, -len(log), JobFinished(action.job.id)))


def make_trace(streams: Iterable[tuple[float, StreamSpec]]) -> tuple[TraceEntry, ...]:
    """Trace entries of ``(at in ms, spec)`` pairs."""
    return tuple(TraceEntry(f"stream-{n}", round(at * MS), spec) for n, (at, spec) in enumerate(streams, 1))


def deliveries(log: Iterable[tuple[int, Action]]) -> list[DeliverFrames]:
    return every([action for _, action in log], DeliverFrames)


def counts(outcomes: Mapping[Any, int]) -> dict[str, int]:
    """Outcome counts without zeros."""
    return {str(outcome): count for outcome, count in outcomes.items() if count}
