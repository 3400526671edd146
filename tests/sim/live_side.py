"""The live driver on virtual time, fed from a trace by cameras of its own: the simulator's are not taken on trust."""

from __future__ import annotations

import itertools
from typing import Any

from gateway.core.actions import Action, Admitted, ModelChanged, ModelRefused, Rejected
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import EVENT_RANK, CloseStream, Event, FramesArrived, HoldModel, RegisterStream, ReleaseModel
from gateway.core.log import entry
from gateway.core.profile import Profile
from gateway.runtime.driver import Driver
from gateway.runtime.virtual import NoSink, TimedExecutor, TimedModels, VirtualClock, WidenInTurn
from gateway.sim.cameras import PUNCTUAL, Behaviour
from gateway.sim.execution import Execution
from gateway.sim.holds import Holds
from gateway.sim.loads import Loading, Loads
from gateway.sim.trace import TraceEntry


class Watcher:
    """The decision log of the live side, kept by an observer; it also tells the cameras of what concerns them."""

    def __init__(self, cameras: Cameras) -> None:
        self.lines: list[dict[str, Any]] = []
        self._cameras = cameras

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        for action in actions:
            self.lines.append(entry(now_ns, action))
            self._cameras.notice(action)


class Cameras:
    """Every stream of a trace registers, then sends on its own until its frames, or the time, are over.

    With `holds`, real-time streams wait for their models before.
    """

    def __init__(
        self,
        trace: tuple[TraceEntry, ...],
        duration_ns: int,
        behaviour: Behaviour,
        clock: VirtualClock,
        holds: Holds | None,
    ) -> None:
        self.refused: set[str] = set()
        self.driver: Driver
        self._clock = clock
        self._behaviour = behaviour
        self._duration_ns = duration_ns
        self._holds = holds
        self._cameras = {camera.stream_id: (place, camera) for place, camera in enumerate(trace)}
        for place, camera in enumerate(trace):
            if camera.at_ns < self._duration_ns:
                self._at(camera.at_ns, place, RegisterStream(camera.stream_id, camera.spec), camera)

    def _at(self, t_ns: int, place: int, what: Event, camera: TraceEntry) -> None:
        self._clock.call_at(t_ns, lambda: self._do(place, what, camera), EVENT_RANK[type(what)], place)

    def _do(self, place: int, what: Event, camera: TraceEntry) -> None:
        if camera.stream_id in self.refused:
            return
        if isinstance(what, RegisterStream):
            self._register(place, what, camera)
        else:
            self.driver.post(what)

    def _register(self, place: int, what: RegisterStream, camera: TraceEntry) -> None:
        holds = self._holds
        if holds and not holds.holding(camera.stream_id) and holds.wait(camera):
            self.driver.post(HoldModel(camera.spec.model, camera.stream_id))
            return
        self.driver.post(what)
        self._send(place, camera)

    def notice(self, action: Action) -> None:
        """Something was decided: those whose wait for their model is over register, or go."""
        if isinstance(action, Rejected):
            self.refused.add(action.stream_id)
        holds = self._holds
        match action:
            case ModelChanged() | ModelRefused() if holds:
                for stream_id, failure in holds.settled(action):
                    place, camera = self._cameras[stream_id]
                    if failure:
                        self._release(holds.release(stream_id))
                    elif self._clock.now_ns() < self._duration_ns:
                        self._at(self._clock.now_ns(), place, RegisterStream(stream_id, camera.spec), camera)
            case Admitted() | Rejected() if holds and holds.holding(action.stream_id):
                self._release(holds.release(action.stream_id))

    def _release(self, release: ReleaseModel) -> None:
        """Before the closes of this instant."""
        self._clock.call_at(self._clock.now_ns(), lambda: self.driver.post(release), EVENT_RANK[ReleaseModel], place=-1)

    def _send(self, place: int, camera: TraceEntry) -> None:
        """Put all that the camera will do on the clock."""
        spec, start_ns = camera.spec, self._clock.now_ns() + camera.spec.start_in_ns
        asked, came, last_ns = 0, 0, 0
        for group in itertools.count():
            due_ns = start_ns + group * spec.period_ns
            count = spec.burst if spec.frames is None else min(spec.burst, spec.frames - asked)
            if count < 1 or due_ns >= self._duration_ns:
                break
            asked += count
            if sent := self._behaviour.sent(place, group, count):
                last_ns = max(last_ns, due_ns + self._behaviour.delay_ns(spec, place, group))
                if last_ns >= self._duration_ns:
                    break
                came += sent
                self._at(last_ns, place, FramesArrived(camera.stream_id, sent), camera)
        if came != spec.frames:
            self._at(min(self._duration_ns, due_ns + spec.jitter_ns), place, CloseStream(camera.stream_id), camera)


def live(
    trace: tuple[TraceEntry, ...],
    profile: Profile,
    config: EngineConfig,
    *,
    execution: Execution,
    loads: Loads,
    duration_ns: int,
    behaviour: Behaviour = PUNCTUAL,
) -> list[dict[str, Any]]:
    """Return the decision log of the live driver; the arguments are those of `gateway.sim.driver.simulate`."""
    clock = VirtualClock()
    engine = Engine(profile, config)
    cameras = Cameras(trace, duration_ns, behaviour, clock, Holds(engine) if config.residency.managed else None)
    watcher = Watcher(cameras)
    executor = TimedExecutor(clock, execution)
    models = TimedModels(clock, Loading(loads).begin)
    driver = Driver(engine, clock, executor, NoSink(), [watcher], models)
    driver.on_can_widen = WidenInTurn(clock, driver.post)
    executor.connect(driver.post)
    models.connect(driver.post)
    cameras.driver = driver
    clock.run()
    assert not driver.broken
    return watcher.lines
