"""The same trace gives the same decision log in the simulator and in the live driver on virtual time.

The live side is `gateway.runtime.driver.Driver`, with its own event queue, its re-armed timer and its executor; its
cameras (`tests.sim.live_side`) are written from the words of the trace's description. Times lie on a grid of a few
milliseconds, so that arrivals, joints, completions, expiries and closes fall on one instant all the time. Groups of
frames come late within their jitter, and some frames never. When a stream has ended, both sides let windows grow. Each
job ends after a seeded time of up to its profiled one, in some runs on the grid as well, in some far beyond it. With a
memory budget, models come and go, and some of their loads fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.core.actions import LoadModel, UnloadModel
from gateway.core.config import AdmissionTest, EngineConfig, Replacement, ResidencyConfig
from gateway.core.profile import Profile
from gateway.core.profile_entry import ModelEntry, ProfileEntry
from gateway.core.types import NS_PER_MS, Job, JobDeadline, OnLate, ServiceClass, StreamSpec
from gateway.sim.cameras import PUNCTUAL, Behaviour
from gateway.sim.driver import simulate
from gateway.sim.execution import Execution, exact, uniform
from gateway.sim.loads import Course, Loads, failing, profiled, shorter
from gateway.sim.trace import TraceEntry
from tests.sim.live_side import live as run_live

DURATION_NS = 400 * NS_PER_MS
SHAPES = ((8, 8, 3), (16, 16, 3))

PROFILE = Profile(
    entries=tuple(
        ProfileEntry(model, "1", shape, "UINT8", batch, 100, ms, ms, ms)
        for model in ("small", "large")
        for size, shape in enumerate(SHAPES, 1)
        for batch, ms in ((1, 2.0 * size), (2, 3.0 * size), (4, 5.0 * size))
    ),
    models=(ModelEntry("small", "1", 10.0, 2.0, 100), ModelEntry("large", "1", 25.0, 5.0, 150)),
)

AS_PROFILED = profiled(PROFILE)

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
            service_class=draw(st.sampled_from([ServiceClass.REAL_TIME] * 3 + [ServiceClass.BEST_EFFORT])),
        )
        entries.append(TraceEntry(f"stream-{number + 1}", draw(milliseconds), spec))
    return tuple(entries)


residencies = st.one_of(
    st.just(ResidencyConfig()),
    st.builds(
        ResidencyConfig,
        max_models=st.sampled_from([1, 1, 2]),
        headroom_models=st.sampled_from([0, 1]),
        replacement=st.sampled_from(Replacement),
        prefetch=st.booleans(),
        synchronous=st.booleans(),
        interference=st.sampled_from([1.0, 1.5]),
        warm_up_factor=st.sampled_from([1.0, 3.0]),
        backoff_ns=st.just(20 * NS_PER_MS),
    ),
    st.builds(ResidencyConfig, budget_bytes=st.sampled_from([140, 200, 250]), prefetch=st.booleans()),
)

configs = st.builds(
    EngineConfig,
    early_dispatch=st.booleans(),
    job_deadline=st.sampled_from(JobDeadline),
    admission_test=st.sampled_from(AdmissionTest),
    guard=st.sampled_from([True, True, False]),
    max_horizon_frames=st.sampled_from([50, 5_000]),
    best_effort_window_ns=st.sampled_from([5, 50]).map(lambda ms: ms * NS_PER_MS),
    send_ahead_ns=st.sampled_from([0, 1, 5]).map(lambda ms: ms * NS_PER_MS),
    residency=residencies,
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


def loads_on_grid(loads: Loads) -> Loads:
    """The same for loads and unloads."""

    def take(action: LoadModel | UnloadModel, before: int) -> Course:
        course = loads(action, before)
        return Course(-(-course.takes_ns // NS_PER_MS) * NS_PER_MS, course.failure)

    return take


loadings = st.builds(
    lambda low, part, seed, finish: finish(failing(shorter(profiled(PROFILE), low, seed), part, seed)),
    st.sampled_from([1.0, 0.3]),
    st.sampled_from([0.0, 0.0, 0.4]),
    st.integers(0, 2**32),
    st.sampled_from([loads_on_grid, loads_on_grid, lambda loads: loads]),
)


def live(
    trace: tuple[TraceEntry, ...],
    config: EngineConfig,
    execution: Execution,
    behaviour: Behaviour = PUNCTUAL,
    loads: Loads = AS_PROFILED,
) -> list[dict[str, Any]]:
    options = {"execution": execution, "loads": loads, "duration_ns": DURATION_NS, "behaviour": behaviour}
    return run_live(trace, PROFILE, config, **options)


def simulated(
    trace: tuple[TraceEntry, ...],
    config: EngineConfig,
    execution: Execution,
    behaviour: Behaviour = PUNCTUAL,
    loads: Loads = AS_PROFILED,
) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    options = {"execution": execution, "loads": loads, "duration_ns": DURATION_NS, "behaviour": behaviour}
    simulate(trace, PROFILE, config, **options, log=lines.append)
    return lines


@settings(max_examples=300)
@given(traces(), configs, executions, behaviours, loadings)
def test_the_decision_logs_are_equal(
    trace: tuple[TraceEntry, ...], config: EngineConfig, execution: Execution, behaviour: Behaviour, loads: Loads
) -> None:
    expected = simulated(trace, config, execution, behaviour, loads)
    for kind in {line["action"] for line in expected}:
        event(kind)
    assert live(trace, config, execution, behaviour, loads) == expected


def test_the_comparison_sees_a_device_that_differs() -> None:
    """Else the test above could not fail."""
    spec = StreamSpec("small", "1", SHAPES[0], 10 * NS_PER_MS, 20 * NS_PER_MS)
    trace = (TraceEntry("stream-1", 0, spec),)

    def slower(job: Job) -> int:
        return job.execution_ns + 1

    assert live(trace, EngineConfig(), exact) == simulated(trace, EngineConfig(), exact)
    assert live(trace, EngineConfig(), slower) != simulated(trace, EngineConfig(), exact)


def test_the_comparison_sees_loads_that_differ() -> None:
    spec = StreamSpec("small", "1", SHAPES[0], 10 * NS_PER_MS, 40 * NS_PER_MS)
    trace = (TraceEntry("stream-1", 0, spec),)
    config = EngineConfig(residency=ResidencyConfig(max_models=1))
    expected = simulated(trace, config, exact)
    assert {"load_model", "model_changed", "admitted"} <= {line["action"] for line in expected}
    assert live(trace, config, exact) == expected
    assert live(trace, config, exact, loads=lambda action, before: Course(1)) != expected
