"""The same trace gives the same decision log in the simulator and in the live driver on virtual time.

The live side is `gateway.runtime.driver.Driver`, with its own event queue, its re-armed timer and its executor; its
cameras are written here, from the words of the trace's description. Times lie on a grid of a few milliseconds, so that
arrivals, joints, completions, expiries and closes fall on one instant all the time. Groups of frames come late within
their jitter, and some frames never. When a stream has ended, both sides let windows grow. Each job ends after a seeded
time of up to its profiled one, in some runs on the grid as well, in some far beyond it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.core.actions import Action, Rejected
from gateway.core.config import AdmissionTest, EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import EVENT_RANK, CloseStream, Event, FramesArrived, RegisterStream
from gateway.core.log import entry
from gateway.core.profile import Profile
from gateway.core.profile_entry import ProfileEntry
from gateway.core.types import NS_PER_MS, Job, JobDeadline, OnLate, StreamSpec
from gateway.runtime.driver import Driver
from gateway.runtime.virtual import NoSink, TimedExecutor, VirtualClock, WidenInTurn
from gateway.sim.cameras import PUNCTUAL, Behaviour
from gateway.sim.driver import simulate
from gateway.sim.execution import Execution, exact, uniform
from gateway.sim.trace import TraceEntry

DURATION_NS = 400 * NS_PER_MS
SHAPES = ((8, 8, 3), (16, 16, 3))

PROFILE = Profile(
    entries=tuple(
        ProfileEntry(model, "1", shape, "UINT8", batch, 100, ms, ms, ms)
        for model in ("small", "large")
        for size, shape in enumerate(SHAPES, 1)
        for batch, ms in ((1, 2.0 * size), (2, 3.0 * size), (4, 5.0 * size))
    )
)

milliseconds = st.integers(0, 40).map(lambda ms: ms * NS_PER_MS)


@st.composite
def traces(draw: st.DrawFn) -> tuple[TraceEntry, ...]:
    entries = []
    for number in range(draw(st.integers(1, 7))):
        spec = StreamSpec(
            model=draw(st.sampled_from(["small", "large"])),
            version="1",
            shape=draw(st.sampled_from(SHAPES)),
            period_ns=draw(st.sampled_from([5, 10, 20, 40])) * NS_PER_MS,
            deadline_ns=draw(st.sampled_from([4, 10, 20, 40, 80])) * NS_PER_MS,
            frames=draw(st.one_of(st.none(), st.integers(1, 30))),
            burst=draw(st.sampled_from([1, 1, 1, 2, 5])),
            jitter_ns=draw(st.sampled_from([0, 0, 3, 15])) * NS_PER_MS,
            start_in_ns=draw(milliseconds),
            on_late=draw(st.sampled_from(OnLate)),
        )
        entries.append(TraceEntry(f"stream-{number + 1}", draw(milliseconds), spec))
    return tuple(entries)


configs = st.builds(
    EngineConfig,
    early_dispatch=st.booleans(),
    job_deadline=st.sampled_from(JobDeadline),
    admission_test=st.sampled_from(AdmissionTest),
    guard=st.sampled_from([True, True, False]),
    max_horizon_frames=st.sampled_from([50, 5_000]),
)


@dataclass(frozen=True)
class OnGrid(Behaviour):
    """Groups that come late by whole milliseconds."""

    def delay_ns(self, spec: StreamSpec, place: int, group: int) -> int:
        return super().delay_ns(spec, place, group) // NS_PER_MS * NS_PER_MS


behaviours = st.builds(OnGrid, st.booleans(), st.sampled_from([0.0, 0.0, 0.15]), st.integers(0, 2**32))


def on_grid(execution: Execution) -> Execution:
    """Round up to half a millisecond: completions then meet arrivals, which fall on whole ones."""
    half = NS_PER_MS // 2
    return lambda job: min(job.execution_ns, -(-execution(job) // half) * half)


def overrunning(seed: int) -> Execution:
    """Take up to three times what was planned: frames are late and expire, and the logs are equal all the same."""
    draw = uniform(0.2, seed)
    return lambda job: 3 * draw(job)


executions = st.one_of(
    st.just(exact),
    st.integers(0, 2**32).map(lambda seed: uniform(0.2, seed)),
    st.integers(0, 2**32).map(lambda seed: on_grid(uniform(0.2, seed))),
    st.integers(0, 2**32).map(overrunning),
)


class Watcher:
    """The decision log of the live side, kept by an observer; it also tells the cameras who was refused."""

    def __init__(self, cameras: Cameras) -> None:
        self.lines: list[dict[str, Any]] = []
        self._cameras = cameras

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        for action in actions:
            self.lines.append(entry(now_ns, action))
            if isinstance(action, Rejected):
                self._cameras.refused.add(action.stream_id)


class Cameras:
    """Every stream of a trace registers, then sends on its own until its frames, or the time, are over."""

    def __init__(self, trace: tuple[TraceEntry, ...], behaviour: Behaviour, clock: VirtualClock) -> None:
        self.refused: set[str] = set()
        self.driver: Driver
        self._clock = clock
        self._behaviour = behaviour
        for place, camera in enumerate(trace):
            if camera.at_ns < DURATION_NS:
                self._at(camera.at_ns, place, RegisterStream(camera.stream_id, camera.spec), camera)

    def _at(self, t_ns: int, place: int, what: Event, camera: TraceEntry) -> None:
        self._clock.call_at(t_ns, lambda: self._do(place, what, camera), EVENT_RANK[type(what)], place)

    def _do(self, place: int, what: Event, camera: TraceEntry) -> None:
        if camera.stream_id in self.refused:
            return
        self.driver.post(what)
        if isinstance(what, RegisterStream):
            self._send(place, camera)

    def _send(self, place: int, camera: TraceEntry) -> None:
        """Put all that the camera will do on the clock."""
        spec, start_ns = camera.spec, self._clock.now_ns() + camera.spec.start_in_ns
        asked, came, last_ns = 0, 0, 0
        for group in itertools.count():
            due_ns = start_ns + group * spec.period_ns
            count = spec.burst if spec.frames is None else min(spec.burst, spec.frames - asked)
            if count < 1 or due_ns >= DURATION_NS:
                break
            asked += count
            if sent := self._behaviour.sent(place, group, count):
                last_ns = max(last_ns, due_ns + self._behaviour.delay_ns(spec, place, group))
                if last_ns >= DURATION_NS:
                    break
                came += sent
                self._at(last_ns, place, FramesArrived(camera.stream_id, sent), camera)
        if came != spec.frames:
            self._at(min(DURATION_NS, due_ns + spec.jitter_ns), place, CloseStream(camera.stream_id), camera)


def live(
    trace: tuple[TraceEntry, ...], config: EngineConfig, execution: Execution, behaviour: Behaviour = PUNCTUAL
) -> list[dict[str, Any]]:
    clock = VirtualClock()
    cameras = Cameras(trace, behaviour, clock)
    watcher = Watcher(cameras)
    executor = TimedExecutor(clock, execution)
    driver = Driver(Engine(PROFILE, config), clock, executor, NoSink(), [watcher])
    driver.on_can_widen = WidenInTurn(clock, driver.post)
    executor.connect(driver.post)
    cameras.driver = driver
    clock.run()
    assert not driver.broken
    return watcher.lines


def simulated(
    trace: tuple[TraceEntry, ...], config: EngineConfig, execution: Execution, behaviour: Behaviour = PUNCTUAL
) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    simulate(
        trace, PROFILE, config, execution=execution, duration_ns=DURATION_NS, behaviour=behaviour, log=lines.append
    )
    return lines


@settings(max_examples=300)
@given(traces(), configs, executions, behaviours)
def test_the_decision_logs_are_equal(
    trace: tuple[TraceEntry, ...], config: EngineConfig, execution: Execution, behaviour: Behaviour
) -> None:
    expected = simulated(trace, config, execution, behaviour)
    for kind in {line["action"] for line in expected}:
        event(kind)
    assert live(trace, config, execution, behaviour) == expected


def test_the_comparison_sees_a_device_that_differs() -> None:
    """Else the test above could not fail."""
    spec = StreamSpec("small", "1", SHAPES[0], 10 * NS_PER_MS, 20 * NS_PER_MS)
    trace = (TraceEntry("stream-1", 0, spec),)

    def slower(job: Job) -> int:
        return job.execution_ns + 1

    assert live(trace, EngineConfig(), exact) == simulated(trace, EngineConfig(), exact)
    assert live(trace, EngineConfig(), slower) != simulated(trace, EngineConfig(), exact)
