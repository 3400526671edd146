"""Models that come and go in the simulator: figures by hand (times in ms), and how loads are drawn."""

import pytest

from gateway.core.actions import LoadModel, UnloadModel
from gateway.core.config import EngineConfig, ResidencyConfig
from gateway.core.events import ModelLoaded, ModelLoadFailed, ModelUnloaded
from gateway.core.profile import ModelEntry
from gateway.core.types import ServiceClass
from gateway.sim.driver import simulate
from gateway.sim.loads import Course, Loading, failing, profiled, shorter
from tests.core.factories import MS, make_profile, make_spec, make_trace

LOAD = LoadModel("a", "demand")
UNLOAD = UnloadModel("a", "eviction")


def with_loads(profile, **times):
    """`with_loads(profile, a=(100, 20))`: model a takes 100 ms to load and 20 to unload."""
    entries = tuple(ModelEntry(name, "1", load, unload, 1) for name, (load, unload) in times.items())
    return type(profile)(profile.entries, entries)


PROFILE = with_loads(make_profile(a=[10], b=[10]), a=(100, 20), b=(50, 20))


def best_effort(model, **fields):
    return make_spec(1_000, 10_000, model=model, service_class=ServiceClass.BEST_EFFORT, **fields)


def room_for(models, **residency):
    return EngineConfig(residency=ResidencyConfig(max_models=models, interference=1, warm_up_factor=1, **residency))


class TestFigures:
    def test_a_swap_by_hand(self):
        """Frame of a at 0: load 100, warm-up 10, job 10. Frame of b at 500: unload 20, load 50, warm-up, job."""
        trace = make_trace([(0, best_effort("a", frames=1)), (500, best_effort("b", frames=1))])
        lines = []
        report = simulate(trace, PROFILE, room_for(1), log=lines.append)
        assert report.outcomes["met"] == 2
        models = report.models
        assert (models.loads, models.unloads, models.swaps, models.loads_failed, models.warm_ups) == (2, 1, 1, 0, 2)
        assert (models.frames_waited, models.mean_wait_ms, models.max_wait_ms) == (2, (110 + 80) / 2, 110)
        assert report.max_latency_ms == 120
        assert [line["t_ns"] // MS for line in lines if line["action"] == "start_job"] == [100, 110, 570, 580]
        assert report.busy == pytest.approx(40 / 590), "first executions count"
        text = "\n".join(report.lines())
        assert "2 loads, 1 unload, 1 swap" in text
        assert "2 frames waited for a load, 95.00 ms on average, 110.00 ms at most" in text

    def test_a_camera_registers_once_its_model_is_there(self):
        """Its first frame comes `start_in` after that: at 100 + 10 + 40."""
        trace = make_trace([(0, make_spec(100, 200, model="a", frames=3, start_in=40))])
        lines = []
        report = simulate(trace, PROFILE, room_for(1), log=lines.append)
        at_ms = {line["action"]: line["t_ns"] // MS for line in reversed(lines)}
        assert (at_ms["load_model"], at_ms["admitted"], at_ms["accept_frames"]) == (0, 110, 150)
        assert report.outcomes["met"] == 3
        assert report.models.frames_waited == 0

    def test_a_camera_that_finds_no_room_is_refused_with_the_figures(self):
        trace = make_trace(
            [
                (0, make_spec(100, 200, model="a", frames=9)),
                (300, make_spec(100, 200, model="b", frames=9, name="second")),
            ]
        )
        report = simulate(trace, PROFILE, room_for(1))
        assert (report.admitted, report.refused) == (1, 1)
        refused = report.streams[1]
        assert (refused.verdict["reason"], refused.verdict["memory"]["held"]) == ("memory", {"a": 1})
        why = "memory: its model needs 1 model; the budget is 1 model, and beside a (1 model) it has 0 models left"
        assert any(f"refused second: {why}" in line for line in report.lines())

    def test_a_camera_whose_model_cannot_be_loaded_is_refused_and_sends_nothing(self):
        trace = make_trace([(0, make_spec(100, 200, model="a", frames=9))])
        report = simulate(trace, PROFILE, room_for(1), loads=failing(profiled(PROFILE), 1.0, 0))
        (stream,) = report.streams
        assert (stream.admitted, stream.verdict) == (False, None)
        assert (report.admitted, report.refused, report.frames, report.models.loads_failed) == (0, 1, 0, 1)
        assert any("model_load_failed: simulated failure" in line for line in report.lines())

    def test_one_that_waits_beyond_the_end_is_not_answered(self):
        trace = make_trace([(0, make_spec(100, 200, model="a"))])
        report = simulate(trace, PROFILE, room_for(1), duration_ns=50 * MS)
        assert [stream.admitted for stream in report.streams] == [None]

    def test_without_a_budget_nothing_is_loaded(self):
        report = simulate(make_trace([(0, best_effort("a", frames=1))]), PROFILE)
        assert (report.models.loads, report.max_latency_ms) == (0, 10)
        assert not any(line.startswith("models") for line in report.lines())


class TestLoads:
    def test_as_profiled(self):
        loads = profiled(with_loads(make_profile(a=[1]), a=(30, 7)))
        assert loads(LOAD, 0) == Course(30 * MS)
        assert loads(UNLOAD, 0) == Course(7 * MS)
        assert loads(LoadModel("unknown", "demand"), 0).takes_ns == 500 * MS

    def test_the_longest_that_was_measured_and_the_slowest_version(self):
        entries = (
            ModelEntry("a", "1", 30, 7, 1, load_max_ms=40, unload_max_ms=8),
            ModelEntry("a", "2", 35, 7, 1),
        )
        loads = profiled(type(PROFILE)((), entries))
        assert (loads(LOAD, 0).takes_ns, loads(UNLOAD, 0).takes_ns) == (40 * MS, 8 * MS)

    def test_shorter_ones_depend_on_seed_model_and_number_alone(self):
        loads = shorter(profiled(PROFILE), 0.5, 3)
        drawn = [loads(LOAD, n).takes_ns for n in range(500)]
        assert drawn == [shorter(profiled(PROFILE), 0.5, 3)(LOAD, n).takes_ns for n in range(500)]
        assert 50 * MS <= min(drawn) < 52 * MS
        assert 98 * MS < max(drawn) <= 100 * MS
        assert [loads(LoadModel("b", "x"), n).takes_ns * 2 for n in range(500)] != drawn

    def test_a_share_fails(self):
        loads = failing(profiled(PROFILE), 0.25, 0)
        failed = sum(bool(loads(LOAD, n).failure) for n in range(2_000))
        assert 420 < failed < 580
        assert not any(loads(UNLOAD, n).failure for n in range(100))

    @pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
    def test_a_share_out_of_range_is_an_error(self, share):
        with pytest.raises(ValueError, match="must lie in"):
            shorter(profiled(PROFILE), share, 0)
        with pytest.raises(ValueError, match="must lie in"):
            failing(profiled(PROFILE), share, 0)

    def test_what_the_worker_says_at_the_end(self):
        loading = Loading(lambda action, before: Course(5 + before, "broken" if before == 1 else ""))
        assert loading.begin(LOAD) == (5, ModelLoaded("a"))
        assert loading.begin(UNLOAD) == (5, ModelUnloaded("a"))
        assert loading.begin(LOAD) == (6, ModelLoadFailed("a", "broken"))
        assert loading.begin(LoadModel("b", "demand")) == (5, ModelLoaded("b")), "each model is counted by itself"
