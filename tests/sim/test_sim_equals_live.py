"""The same trace gives the same decision log in the simulator and in the live driver on virtual time.

The live side is `gateway.runtime.driver.Driver`, with its own event queue, its re-armed timer and its executor; its
cameras are written here, from the words of the trace's description. Times lie on a grid of a few milliseconds, so that
arrivals, joints, completions, expiries and closes fall on one instant all the time. Each job ends after a seeded
time of up to its profiled one, in some runs on the grid as well, in some far beyond it.
"""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import EVENT_RANK, Action, CloseStream, Event, FramesArrived, RegisterStream, Rejected
from gateway.core.log import entry
from gateway.core.profile import Profile
from gateway.core.profile_entry import ProfileEntry
from gateway.core.types import NS_PER_MS, Job, JobDeadline, OnLate, StreamSpec
from gateway.runtime.driver import Driver
from gateway.runtime.virtual import NoSink, TimedExecutor, VirtualClock
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
            start_in_ns=draw(milliseconds),
            on_late=draw(st.sampled_from(OnLate)),
        )
        entries.append(TraceEntry(f"stream-{number + 1}", draw(milliseconds), spec))
    return tuple(entries)


configs = st.builds(
    EngineConfig,
    early_dispatch=st.booleans(),
    job_deadline=st.sampled_from(JobDeadline),
    horizon_ns=st.just(200 * NS_PER_MS),
)


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


class Log:
    """The decision log of the live side, kept by an observer."""

    def __init__(self, on_rejected: Any) -> None:
        self.lines: list[dict[str, Any]] = []
        self._on_rejected = on_rejected

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        for action in actions:
            self.lines.append(entry(now_ns, action))
            if isinstance(action, Rejected):
                self._on_rejected(action.stream_id)


class Cameras:
    """Every stream of a trace registers, then sends on its own until its frames, or the time, are over."""

    def __init__(self, trace: tuple[TraceEntry, ...], clock: VirtualClock) -> None:
        self.refused: set[str] = set()
        self.driver: Driver
        self._clock = clock
        for place, camera in enumerate(trace):
            if camera.at_ns < DURATION_NS:
                self._at(camera.at_ns, place, RegisterStream(camera.stream_id, camera.spec), camera)

    def _at(self, t_ns: int, place: int, what: Event, camera: TraceEntry, sent: int = 0) -> None:
        self._clock.call_at(t_ns, lambda: self._do(place, what, camera, sent), EVENT_RANK[type(what)], place)

    def _do(self, place: int, what: Event, camera: TraceEntry, sent: int) -> None:
        if camera.stream_id in self.refused:
            return
        self.driver.post(what)
        if isinstance(what, RegisterStream):
            self._next(self._clock.now_ns() + camera.spec.start_in_ns, place, camera, sent)
        elif isinstance(what, FramesArrived):
            self._next(self._clock.now_ns() + camera.spec.period_ns, place, camera, sent + 1)

    def _next(self, t_ns: int, place: int, camera: TraceEntry, sent: int) -> None:
        if sent == camera.spec.frames:
            return
        if t_ns >= DURATION_NS:
            self._at(DURATION_NS, place, CloseStream(camera.stream_id), camera, sent)
        else:
            self._at(t_ns, place, FramesArrived(camera.stream_id), camera, sent)


def live(trace: tuple[TraceEntry, ...], config: EngineConfig, execution: Execution) -> list[dict[str, Any]]:
    clock = VirtualClock()
    cameras = Cameras(trace, clock)
    log = Log(cameras.refused.add)
    executor = TimedExecutor(clock, execution)
    driver = Driver(Engine(PROFILE, config), clock, executor, NoSink(), [log])
    executor.connect(driver.post)
    cameras.driver = driver
    clock.run()
    assert not driver.broken
    return log.lines


def simulated(trace: tuple[TraceEntry, ...], config: EngineConfig, execution: Execution) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    simulate(trace, PROFILE, config, execution=execution, duration_ns=DURATION_NS, log=lines.append)
    return lines


@settings(max_examples=300)
@given(traces(), configs, executions)
def test_the_decision_logs_are_equal(trace: tuple[TraceEntry, ...], config: EngineConfig, execution: Execution) -> None:
    expected = simulated(trace, config, execution)
    for kind in {line["action"] for line in expected}:
        event(kind)
    assert live(trace, config, execution) == expected


def test_the_comparison_sees_a_device_that_differs() -> None:
    """Else the test above could not fail."""
    spec = StreamSpec("small", "1", SHAPES[0], 10 * NS_PER_MS, 20 * NS_PER_MS)
    trace = (TraceEntry("stream-1", 0, spec),)

    def slower(job: Job) -> int:
        return job.execution_ns + 1

    assert live(trace, EngineConfig(), exact) == simulated(trace, EngineConfig(), exact)
    assert live(trace, EngineConfig(), slower) != simulated(trace, EngineConfig(), exact)
