"""Delayed jobs in the simulator, the synthetic profile, and what the experiment of `benchmarks.adaptation` claims."""

import json

import pytest

from benchmarks import adaptation, synthetic_profile
from gateway.core.config import EngineConfig
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS as MS
from gateway.core.types import OnLate
from gateway.runtime.profile_file import read_profile
from gateway.sim.driver import simulate
from gateway.sim.execution import delayed, exact
from tests.core.factories import make_spec, make_trace


def test_so_many_jobs_in_a_row_take_longer():
    jobs = simulate_ends(delayed(exact, 1, 2, 30 * MS))
    assert jobs == [8, 38, 38, 8]


def simulate_ends(execution):
    """Four jobs of one frame, far apart: how long each took."""
    spec = make_spec(100, 90, model="resnet50", shape=(224, 224, 3), frames=4)
    lines = []
    config = EngineConfig(adaptation=False)
    simulate(make_trace([(0, spec)]), synthetic_profile.profile(), config, execution=execution, log=lines.append)
    return [line["actual_ns"] // MS for line in lines if line["action"] == "deliver_frames"]


def test_counts_are_not_negative():
    with pytest.raises(ValueError, match="negative"):
        delayed(exact, 0, -1, 0)


def test_the_report_counts_degraded_frames():
    spec = make_spec(100, 90, model="resnet50", shape=(224, 224, 3), frames=6, on_late=OnLate.SERVE)
    report = simulate(make_trace([(0, spec)]), synthetic_profile.profile(), execution=delayed(exact, 1, 1, 3 * MS))
    assert report.to_dict()["frames_degraded"] == 2  # each saves 1.6 ms of 8
    assert "degraded  2 frames ran at a smaller shape" in report.lines()


def test_the_synthetic_profile_is_as_its_command_writes_it():
    found = json.loads(synthetic_profile.PATH.read_text())
    assert found == synthetic_profile.profile().to_dict()
    assert "synthetic" in found["device"]
    assert found["engine"] == "synthetic"
    profile = read_profile(synthetic_profile.PATH)
    assert isinstance(profile, Profile)
    for entry in profile.entries:
        height, width, _ = entry.shape
        expected = 2 + 6 * (height * width / 50_176) * entry.batch**0.6
        assert entry.execution_ms == pytest.approx(expected, abs=0.001)


def test_adaptation_cuts_the_misses_of_five_delayed_jobs_by_a_third_and_more():
    """The experiment with one seed, and shorter; ``python -m benchmarks.adaptation --simulated-only`` has all of it."""
    profile = read_profile(synthetic_profile.PATH)
    (trace,) = adaptation.simulated(profile, lambda line: None, seeds=[2], seconds=30)["traces"]
    assert trace["busy"] > 0.9
    assert trace["missed_without_delay"] == 0
    for delay_ms, found in trace["missed"].items():
        assert found["without"] > 100
        assert found["with"] <= found["without"]
        if int(delay_ms) <= 500:  # in so short a run the backlog of the longest ones is not worked off
            assert found["cut"] >= 0.3
