"""The simulator: figures by hand, and the same decisions as a second, plainer driver (times in ms)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.log import entry
from gateway.core.types import OnLate
from gateway.sim.driver import simulate
from gateway.sim.execution import exact, uniform
from gateway.sim.trace import TraceError
from tests.core.factories import MS, make_profile, make_spec, make_trace, replay
from tests.properties.strategies import configs, profiles, traces

WAIT = EngineConfig(early_dispatch=False)


class TestFigures:
    def test_one_stream_by_hand(self):
        # Frames at 0, 100, 200, 300; joints every 20; each done 20 + 10 after its arrival.
        report = simulate(make_trace([(0, make_spec(100, 40, frames=4))]), make_profile(m=[10]), WAIT)
        assert (report.admitted, report.refused, report.frames) == (1, 0, 4)
        assert report.outcomes == {"met": 4, "missed": 0, "expired": 0, "cancelled": 0, "failed": 0}
        assert (report.p50_latency_ms, report.p99_latency_ms, report.max_latency_ms) == (30, 30, 30)
        assert (report.jobs, report.mean_batch, report.early_jobs, report.miss_rate) == (4, 1.0, 0, 0.0)
        assert report.span_ms == 330
        assert report.busy == pytest.approx(40 / 330)
        assert report.goodput_fps == pytest.approx(4 / 0.330)

    def test_early_dispatch_on_an_idle_device_is_one_frames_time(self):
        report = simulate(make_trace([(0, make_spec(200, 100, frames=20))]), make_profile(m=[10]))
        assert (report.p50_latency_ms, report.max_latency_ms, report.early_jobs) == (10, 10, 20)

    @pytest.mark.parametrize("shift", [0, 3, 50, 99])
    def test_two_streams_of_one_period_share_batches(self, shift):
        """Period p and deadline 2p, waiting for joints: W = p, so each window holds a frame of each."""
        streams = [(0, make_spec(100, 200, frames=100)), (0, make_spec(100, 200, frames=100, start_in=shift))]
        report = simulate(make_trace(streams), make_profile(m=[10, 12]), WAIT)
        assert report.mean_batch >= 1.9
        assert report.miss_rate == 0

    def test_late_frames_count_as_misses(self):
        trace = make_trace([(0, make_spec(100, 40, frames=4)), (0, make_spec(100, 40, frames=4, on_late=OnLate.SERVE))])
        report = simulate(trace, make_profile(m=[10, 20]), WAIT, execution=lambda job: 130 * MS)
        assert report.outcomes["missed"] > 0
        assert report.outcomes["expired"] > 0
        assert report.miss_rate == 1.0
        assert report.goodput_fps == 0

    def test_a_refused_stream_sends_nothing_and_says_why(self):
        trace = make_trace([(0, make_spec(100, 40, frames=4)), (1, make_spec(1, 40, frames=400, name="fast"))])
        report = simulate(trace, make_profile(m=[10]), WAIT)
        assert (report.admitted, report.refused, report.frames, report.frames_refused) == (1, 1, 4, {})
        refused = report.streams[1]
        assert (refused.admitted, refused.verdict["reason"], refused.verdict["phase"]) == (False, "utilization", 1)
        assert any("refused fast: utilization" in line for line in report.lines())

    def test_the_first_miss_is_in_the_report(self):
        trace = make_trace([(0, make_spec(100, 40, frames=4)), (1, make_spec(100, 12, frames=4, name="tight"))])
        report = simulate(trace, make_profile(m=[10]), WAIT)
        assert report.streams[1].verdict["first_miss"]["late_ms"] > 0
        assert any("refused tight: deadline_miss: a batch of m/1[8, 8, 3]UINT8 would be" in s for s in report.lines())

    def test_an_unbounded_stream_runs_until_the_duration(self):
        report = simulate(make_trace([(0, make_spec(100, 40))]), make_profile(m=[10]), duration_ns=1000 * MS)
        assert report.frames == 10
        with pytest.raises(TraceError, match="unbounded"):
            simulate(make_trace([(0, make_spec(100, 40))]), make_profile(m=[10]))

    def test_a_registration_after_the_end_is_not_answered(self):
        trace = make_trace([(0, make_spec(100, 40)), (500, make_spec(100, 40))])
        report = simulate(trace, make_profile(m=[10]), duration_ns=300 * MS)
        assert [stream.admitted for stream in report.streams] == [True, None]

    def test_an_empty_trace(self):
        report = simulate([], make_profile(m=[10]))
        assert (report.frames, report.mean_batch, report.p50_latency_ms, report.busy) == (0, 0.0, None, 0.0)
        assert report.lines()

    def test_it_is_json(self):
        report = simulate(make_trace([(0, make_spec(100, 40, frames=4))]), make_profile(m=[10]))
        assert json.loads(json.dumps(report.to_dict()))["outcomes"]["met"] == 4


class TestExecution:
    def test_draws_depend_on_seed_and_job_alone(self):
        job = _a_job()
        first, other = uniform(0.5, 1), uniform(0.5, 2)
        assert first(job) == first(job) == uniform(0.5, 1)(job)
        assert first(job) != other(job)
        assert exact(job) == job.execution_ns

    def test_draws_stay_within_their_range(self):
        job = _a_job()
        draws = [uniform(0.5, seed)(job) for seed in range(2000)]
        assert 0.5 * job.execution_ns <= min(draws) < 0.51 * job.execution_ns
        assert 0.99 * job.execution_ns < max(draws) <= job.execution_ns
        assert sum(draws) / len(draws) == pytest.approx(0.75 * job.execution_ns, rel=0.02)

    def test_a_job_takes_at_least_a_nanosecond(self):
        assert min(uniform(0.0, seed)(_a_job()) for seed in range(100)) >= 1

    @pytest.mark.parametrize("low", [-0.1, 1.1, float("nan")])
    def test_a_share_out_of_range_is_an_error(self, low):
        with pytest.raises(ValueError, match="low must lie in"):
            uniform(low, 0)


def _a_job():
    log = replay(Engine(make_profile(m=[10])), make_trace([(0, make_spec(frames=1))]))
    return next(action.job for _, action in log if hasattr(action, "job"))


@given(
    profiles(),
    traces(on_late=st.sampled_from(OnLate)),
    configs(),
    st.sampled_from([exact, uniform(0.2, 7)]),
    st.sampled_from([None, 60 * MS]),
)
def test_it_decides_as_a_plainer_driver_does(profile, streams, config, execution, duration_ns):
    trace, log = make_trace(streams), []
    report = simulate(
        trace, profile, EngineConfig(**config), execution=execution, duration_ns=duration_ns, log=log.append
    )
    plain = replay(Engine(profile, EngineConfig(**config)), trace, execution=execution, duration_ns=duration_ns)
    assert log == [entry(t_ns, action) for t_ns, action in plain]
    assert report.frames == sum(report.outcomes.values())


@given(profiles(), traces(), configs(early_dispatch=False))
def test_shorter_executions_never_change_who_is_admitted_at_the_start(profile, streams, config):
    """Verdicts of one instant rest on the profile, not on what the device does later."""
    trace = make_trace([(0, spec) for _, spec in streams])
    answers = [
        [stream.admitted for stream in simulate(trace, profile, EngineConfig(**config), execution=time).streams]
        for time in (exact, uniform(0.1, 3))
    ]
    assert answers[0] == answers[1]
