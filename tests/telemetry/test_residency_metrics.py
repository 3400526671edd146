"""Loads, unloads, swaps and waits, as an observer of the engine sees them."""

import pytest

from gateway.core.actions import LoadModel, ModelChanged, ModelRefused, UnloadModel
from gateway.core.events import (
    ModelLoaded,
    ModelLoadFailed,
    ModelLost,
    ModelUnloaded,
    ModelUnloadFailed,
    Tick,
    WorkerLost,
)
from gateway.core.types import LOCAL_WORKER, NS_PER_MS, ModelState
from gateway.core.view import MemoryView, ModelView
from gateway.telemetry.metrics import Metrics
from tests.telemetry.test_metrics import collected, delivery, frame, samples


class Observed:
    """Metrics that are told what happens at so many milliseconds."""

    def __init__(self):
        self.metrics = Metrics("1")

    def at(self, now_ms, *actions, event=None):
        self.metrics.on_actions(now_ms * NS_PER_MS, event or Tick(), list(actions))
        return self

    def loads(self, model, began_ms, loaded_ms, resident_ms, reason="demand"):
        """A load from the order to the end of the warm-up."""
        self.at(began_ms, LoadModel(model, reason), ModelChanged(model, ModelState.LOADING))
        self.at(loaded_ms, event=ModelLoaded(model))
        return self.at(resident_ms, ModelChanged(model, ModelState.RESIDENT))

    def unloads(self, model, began_ms, gone_ms, reason="eviction"):
        self.at(began_ms, UnloadModel(model, reason), ModelChanged(model, ModelState.UNLOADING))
        return self.at(gone_ms, ModelChanged(model, ModelState.ABSENT), event=ModelUnloaded(model))

    def seen(self, name):
        """Return the series of one metric, by label values in order of label name."""
        return {key[1:]: value for key, value in samples(self.metrics).items() if key[0] == f"framegate_{name}"}

    def total(self, name):
        return {labels: value for labels, value in self.seen(name).items() if value}


def test_a_load_is_timed_to_triton_s_word_and_its_warm_up_from_there():
    observed = Observed().loads("a", 100, 400, 450)
    assert observed.seen("model_load_seconds_sum") == {("a",): pytest.approx(0.3)}
    assert observed.seen("model_warm_up_seconds_sum") == {("a",): pytest.approx(0.05)}
    assert observed.seen("model_loads_total") == {("a", "loaded"): 1}


def test_a_model_that_comes_warm_has_a_warm_up_of_nothing():
    observed = Observed().at(0, LoadModel("a", "restart"), ModelChanged("a", ModelState.LOADING, "restart"))
    observed.at(300, ModelChanged("a", ModelState.RESIDENT), event=ModelLoaded("a", warm=True))
    assert observed.seen("model_warm_up_seconds_sum") == {("a",): 0}
    assert observed.seen("model_loads_total") == {("a", "loaded"): 1}


def test_loads_that_fail_are_counted_by_how():
    observed = Observed().at(0, LoadModel("a", "demand")).at(10, event=ModelLoadFailed("a", "no file"))
    observed.at(20, LoadModel("a", "retry")).at(30, event=ModelLoaded("a"))
    observed.at(40, UnloadModel("a", "warm_up_failed"))
    observed.at(50, LoadModel("b", "demand")).at(60, event=WorkerLost(LOCAL_WORKER))
    assert observed.seen("model_loads_total") == {
        ("a", "failed"): 1,
        ("a", "warm_up_failed"): 1,
        ("b", "worker_lost"): 1,
    }
    assert observed.total("model_load_seconds_count") == {("a",): 1}, "only of those that got there"


def test_a_load_that_nobody_waits_for_any_more_leaves_no_trace():
    """The worker answers after it was lost, and twice."""
    observed = Observed().at(0, LoadModel("a", "demand")).at(10, event=WorkerLost(LOCAL_WORKER))
    observed.at(20, event=ModelLoaded("a")).at(30, event=ModelLoadFailed("a", "late")).at(40, event=ModelUnloaded("a"))
    assert observed.seen("model_loads_total") == {("a", "worker_lost"): 1}
    assert observed.seen("model_load_seconds_count") == {}
    assert observed.seen("model_unloads_total") == {}


def test_a_reload_ends_when_the_new_one_is_there():
    observed = Observed().loads("a", 0, 100, 110).at(200, LoadModel("a", "reload")).at(300, event=ModelLoaded("a"))
    assert observed.seen("model_loads_total") == {("a", "loaded"): 2}
    assert observed.seen("model_load_seconds_sum") == {("a",): pytest.approx(0.2)}


def test_unloads_are_timed_and_counted_by_end_and_by_reason():
    observed = Observed().unloads("a", 0, 1_500).unloads("b", 0, 500, reason="command")
    observed.at(10, UnloadModel("c", "eviction")).at(30_000, event=ModelUnloadFailed("c", "still there"))
    assert observed.seen("model_unload_seconds_sum") == {("a",): pytest.approx(1.5), ("b",): pytest.approx(0.5)}
    assert observed.seen("model_unloads_total") == {("a", "unloaded"): 1, ("b", "unloaded"): 1, ("c", "failed"): 1}
    assert observed.total("evictions_total") == {("eviction",): 2, ("command",): 1}
    assert observed.seen("evictions_total")["swap",] == 0, "absent is not zero to a query"


def test_a_model_that_vanished_is_lost_only_if_the_engine_thought_that_it_was_there():
    observed = Observed().at(0, event=ModelLost("a", "not in the index"))
    assert observed.seen("model_unloads_total") == {}
    observed.at(10, ModelChanged("a", ModelState.ABSENT), event=ModelLost("a", "not in the index"))
    assert observed.seen("model_unloads_total") == {("a", "lost"): 1}


def test_a_swap_is_a_load_in_the_place_of_another_model():
    observed = Observed().loads("a", 0, 10, 20)
    assert observed.total("swaps_total") == {}, "there was room"
    observed.unloads("a", 30, 40).loads("b", 40, 50, 60)
    observed.unloads("b", 70, 80, reason="swap").loads("a", 80, 90, 100, reason="swap")
    assert observed.seen("swaps_total") == {("b",): 1, ("a",): 1}


def test_neither_commands_nor_reloads_are_swaps():
    observed = Observed().unloads("a", 0, 10, reason="command").loads("b", 20, 30, 40)
    observed.unloads("b", 50, 60).loads("c", 70, 80, 90, reason="reload")
    assert observed.total("swaps_total") == {}


def test_room_that_was_made_is_taken_once_and_not_after_the_worker_was_lost():
    observed = Observed().unloads("a", 0, 10).loads("b", 20, 30, 40).loads("c", 20, 30, 40)
    assert observed.seen("swaps_total") == {("b",): 1}
    observed.unloads("b", 50, 60).at(70, event=WorkerLost(LOCAL_WORKER)).loads("b", 80, 90, 100)
    assert observed.seen("swaps_total") == {("b",): 1}


def test_frames_waited_from_their_arrival_until_their_model_was_there():
    observed = Observed().loads("echo", 100, 400, 450)
    observed.at(500, delivery([frame(0, 50), frame(1, 440), frame(2, 460)], 460, 480))
    assert observed.seen("load_wait_seconds_count") == {("echo",): 2}, "the last one came when it was there"
    assert observed.seen("load_wait_seconds_sum") == {("echo",): pytest.approx(0.400 + 0.010)}


def test_the_time_before_the_model_went_away_is_no_wait_for_it():
    observed = Observed().loads("echo", 0, 10, 20).unloads("echo", 200, 300).loads("echo", 300, 380, 400)
    observed.at(500, delivery([frame(0, 150)], 410, 430))
    assert observed.seen("load_wait_seconds_sum") == {("echo",): pytest.approx(0.200)}


def test_a_reload_that_fails_keeps_nobody_waiting():
    observed = Observed().loads("echo", 0, 10, 20).at(100, LoadModel("echo", "reload"))
    resident = ModelChanged("echo", ModelState.RESIDENT, "reload_failed: no file")
    observed.at(400, resident, event=ModelLoadFailed("echo", "no file"))
    observed.at(500, delivery([frame(0, 390)], 410, 430))
    assert observed.seen("load_wait_seconds_count") == {}
    assert observed.seen("model_loads_total") == {("echo", "loaded"): 1, ("echo", "failed"): 1}


def test_a_model_that_was_there_all_the_time_keeps_nobody_waiting():
    """Its state is also said as the answer to a command."""
    observed = Observed().at(400, ModelChanged("echo", ModelState.RESIDENT, "hold"))
    observed.at(500, delivery([frame(0, 390)], 410, 430))
    assert observed.seen("load_wait_seconds_count") == {}


def test_without_loads_no_frame_waits_for_one():
    observed = Observed().at(500, delivery([frame(0, 50)], 410, 430))
    assert observed.seen("load_wait_seconds_count") == {}


def test_refusals_are_counted_without_the_words_behind_them():
    """Those come from Triton, and could be anything."""
    observed = Observed().at(0, ModelRefused("a", "no_room"), ModelRefused("a", "failed: /models/a: \x00 is broken"))
    observed.at(1, ModelRefused("b", "failed: something else"))
    assert observed.total("model_refusals_total") == {("no_room",): 1, ("failed",): 2}


# ---------------------------------------------------------------- read when asked for


def test_states_pins_and_waiting_frames_of_every_model():
    gateway, metrics = collected()
    gateway.residency = [
        ModelView("a", ModelState.RESIDENT, pins=("stream",)),
        ModelView("b", ModelState.LOADING, waiting=3),
    ]
    seen = samples(metrics)
    states = {key[1:]: value for key, value in seen.items() if key[0] == "framegate_model_state" and value}
    assert states == {("a", "resident"): 1, ("b", "loading"): 1}
    assert seen["framegate_model_state", "a", "absent"] == 0
    assert (seen["framegate_model_pinned", "a"], seen["framegate_model_pinned", "b"]) == (1, 0)
    assert (seen["framegate_model_frames_waiting", "a"], seen["framegate_model_frames_waiting", "b"]) == (0, 3)


def test_memory_in_the_unit_of_its_budget():
    gateway, metrics = collected()
    gateway.memory = MemoryView("bytes", budget=4_000, held=3_000, region=1_000, lost=200)
    seen = {
        key[0].removeprefix("framegate_memory_"): value for key, value in samples(metrics).items() if "bytes" in key
    }
    assert seen == {"budget": 4_000, "held": 3_000, "region": 1_000, "lost": 200}


def test_without_a_budget_none_is_shown():
    _gateway, metrics = collected()
    names = {key[0] for key in samples(metrics)}
    assert "framegate_memory_budget" not in names
    assert "framegate_memory_held" in names
