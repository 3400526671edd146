"""Load, unload, pin and hold: what a command comes to, whatever its model is about just then."""

from gateway.core.actions import DropFrames, ModelRefused
from gateway.core.events import (
    LateLoadEnded,
    ModelLoaded,
    ModelUnloadFailed,
    PinModel,
    RegisterStream,
    ReleaseModel,
    RequestLoad,
    RequestUnload,
    WorkerBack,
    WorkerLost,
)
from gateway.core.types import LOCAL_WORKER, ServiceClass
from tests.core.factories import every, make_profile, make_spec, only
from tests.core.model_drive import Models, calls, changes, reasons, refusals, sized


def resident(*names, room=2, **residency):
    models = Models(max_models=room, **residency)
    for n, name in enumerate(names):
        models.hold(n, name)
        models.loaded(n, name)
        models.at(n, ReleaseModel(name, "h"))
    return models


def pin_by_stream(models, name, t=0):
    spec = make_spec(200, 200, model=name, service_class=ServiceClass.REAL_TIME)
    return models.at(t, RegisterStream(f"cam-{name}", spec))


class TestLoad:
    def test_an_absent_model(self):
        models = Models(max_models=2)
        loaded = models.at(1, RequestLoad("a"))
        assert (calls(loaded), reasons(loaded)) == ("+a", ["command"])
        assert changes(models.loaded(2, "a")) == [("a", "resident")]

    def test_twenty_at_once_are_one_load(self):
        models = Models(max_models=2)
        assert calls(models.at(1, *[RequestLoad("a")] * 20)) == "+a"
        assert refusals(models.at(2, RequestLoad("a"))) == []

    def test_a_resident_model_is_loaded_anew_and_serves_on(self):
        models = resident("a", room=2)
        again = models.at(10, RequestLoad("a"), RequestLoad("a"))
        assert (calls(again), reasons(again)) == ("+a", ["reload"])
        assert models.held == 1, "two versions are one model"
        assert calls(models.frames(11, "a")) == "a"
        models.run(20)
        assert calls(models.frames(21, "b", "c")) == "+b", "and it does not give way"
        done = models.loaded(30, "a", warm=False)
        assert changes(done)[0] == ("a", "resident")
        assert calls(done) == "-a"
        assert models.held == 2

    def test_in_bytes_a_reload_holds_its_memory_twice(self):
        models = Models(sized(make_profile(a=[10]), a=8), streams="a", budget_bytes=16)
        models.hold(0, "a")
        models.loaded(1, "a")
        assert calls(models.at(10, RequestLoad("a"))) == "+a"
        assert models.held == 16
        models.loaded(30, "a")
        assert models.held == 8

    def test_a_reload_that_was_given_up_holds_its_memory_twice_until_it_has_ended(self):
        models = Models(sized(make_profile(a=[10], b=[10]), a=8, b=8), streams="ab", budget_bytes=16)
        models.hold(0, "a")
        models.loaded(1, "a")
        models.at(10, RequestLoad("a"))
        models.failed(20, "a", "timed out", lingers=True)
        assert models.held == 16
        assert calls(models.frames(21, "a", "b")) == "a"
        assert calls(models.at(25, RequestLoad("a"))) == ""
        assert calls(models.at(26, LateLoadEnded("a"))) == "+a"
        models.loaded(27, "a")
        assert models.held == 16, "a is there, and b comes"

    def test_a_corrupt_new_version_changes_nothing(self):
        models = resident("a", room=2)
        models.at(10, RequestLoad("a"))
        (failed,) = [a for a in models.failed(20, "a", "corrupt") if type(a).__name__ == "ModelChanged"]
        assert (failed.state.value, failed.reason) == ("resident", "reload_failed: corrupt")
        assert models.held == 1
        assert calls(models.frames(21, "a")) == "a"

    def test_a_reload_that_never_fits_is_refused(self):
        models = Models(sized(make_profile(a=[10]), a=8), streams="a", budget_bytes=15)
        models.hold(0, "a")
        models.loaded(1, "a")
        (refused,) = every(models.at(10, RequestLoad("a")), ModelRefused)
        assert refused.reason == "no_room"
        assert (refused.memory.needed, refused.memory.free) == (16, 15)

    def test_a_reload_waits_for_room(self):
        models = Models(sized(make_profile(a=[10], b=[10]), a=8, b=8), streams="ab", budget_bytes=16)
        models.hold(0, "a")
        models.hold(0, "b")
        models.loaded(1, "a", "b")
        models.at(2, ReleaseModel("a", "h"))
        assert calls(models.at(10, RequestLoad("a"))) == ""
        assert calls(models.at(20, ReleaseModel("b", "h"))) == "-b"
        assert calls(models.gone(30, "b")) == "+a"

    def test_without_room_for_ever_it_is_refused_with_the_figures(self):
        profile = sized(make_profile(a=[10], b=[10]), a=8, b=6)
        models = Models(profile, streams="b", budget_bytes=12)
        pin_by_stream(models, "a")
        models.loaded(1, "a")
        (refused,) = every(models.at(2, RequestLoad("b")), ModelRefused)
        memory = refused.memory
        assert (memory.unit, memory.needed, memory.budget, memory.free) == ("bytes", 6, 12, 4)
        assert memory.held == (("a", 8),)

    def test_room_that_is_taken_meanwhile(self):
        models = Models(max_models=1)
        models.hold(1, "b")
        models.at(2, RequestLoad("a"))
        answered = pin_by_stream(models, "c", t=3)
        assert ("a", "no_room") in refusals(answered)
        assert models.view("a").state.value == "absent"

    def test_a_command_does_not_wait_for_the_pause_after_a_failure(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        models.failed(2, "a")
        assert calls(models.at(3, RequestLoad("a"))) == "+a"

    def test_a_command_outlives_the_worker(self):
        models = Models(max_models=1)
        models.at(1, RequestLoad("a"), WorkerLost(LOCAL_WORKER))
        assert calls(models.at(2, WorkerBack(LOCAL_WORKER))) == "+a"

    def test_without_a_budget(self):
        models = Models()
        models.at(0, WorkerLost(LOCAL_WORKER), ModelLoaded("a", warm=True), WorkerBack(LOCAL_WORKER))
        assert reasons(models.at(1, RequestLoad("a"))) == ["reload"]
        models.failed(2, "a", "corrupt")
        assert calls(models.frames(3, "a")) == "a"


class TestUnload:
    def test_an_idle_model_goes_and_stays_away(self):
        models = resident("a")
        models.frames(9, "b")
        models.loaded(9, "b")
        gone = models.at(10, RequestUnload("a"))
        assert (calls(gone), changes(gone)) == ("-a", [("a", "unloading")])
        assert changes(models.gone(20, "a")) == [("a", "absent")]
        (drop,) = every(models.frames(21, "a"), DropFrames)
        assert (drop.outcome, drop.reason) == ("failed", "model_unloaded")
        assert refusals(models.hold(22, "a")) == [("a", "unloaded")]
        assert calls(models.at(23, RequestLoad("a"))) == "+a"

    def test_what_runs_ends_first_and_what_waits_fails(self):
        models = resident("a")
        models.frames(10, "a")
        models.frames(11, "a")
        told = models.at(12, RequestUnload("a"))
        assert calls(told) == ""
        assert only(told, DropFrames).reason == "model_unloaded"
        assert len(every(models.frames(13, "a"), DropFrames)) == 1
        assert calls(models.run(20)) == "-a"

    def test_an_absent_model_is_barred_at_once(self):
        models = Models(max_models=1)
        assert changes(models.at(1, RequestUnload("a"))) == [("a", "absent")]
        assert models.view("a").barred

    def test_a_model_on_its_way_in_goes_once_it_is_there(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        assert calls(models.at(2, RequestUnload("a"))) == ""
        assert calls(models.loaded(50, "a")) == "-a"
        models.gone(60, "a")
        assert models.held == 0

    def test_the_last_command_decides(self):
        models = Models(max_models=1)
        models.at(1, RequestLoad("a"), RequestUnload("a"), RequestLoad("a"))
        assert changes(models.loaded(50, "a")) == [("a", "resident")]
        models.at(51, RequestUnload("a"), RequestLoad("a"))
        assert models.states() == {"unloading": "a"}
        assert calls(models.gone(60, "a")) == "+a"
        models.loaded(70, "a")
        models.frames(71, "a")
        stays = models.at(72, RequestUnload("a"), RequestLoad("a"))
        assert calls(stays) == "", "its job runs, so it had not gone yet"
        assert changes(stays)[-1] == ("a", "resident")
        assert calls(models.run(80)) == ""

    def test_a_pinned_model_only_by_force(self):
        models = resident("a", "b")
        models.at(5, PinModel("a"))
        pin_by_stream(models, "b", t=5)
        assert refusals(models.at(6, RequestUnload("a"), RequestUnload("b"))) == [("a", "pinned"), ("b", "pinned")]
        assert calls(models.at(7, RequestUnload("b", force=True))) == "-b"
        models.gone(8, "b")
        (drop,) = every(models.frames(9, "cam-b"), DropFrames)
        assert drop.reason == "model_unloaded"
        assert calls(models.at(10)) == "", "though it is pinned still"

    def test_a_hold_does_not_stop_it(self):
        models = resident("a")
        models.hold(5, "a")
        assert calls(models.at(6, RequestUnload("a"))) == "-a"
        assert models.at(7, ReleaseModel("a", "h")) == []

    def test_one_that_will_not_go_is_told_again(self):
        models = resident("a")
        models.at(10, RequestUnload("a"))
        models.at(20, ModelUnloadFailed("a", "busy"))
        assert len(every(models.frames(21, "a"), DropFrames)) == 1, "nothing of it starts any more"
        assert models.wakeup == 1020
        assert calls(models.at(1020)) == "-a"

    def test_it_outlives_the_worker(self):
        models = resident("a")
        models.at(10, RequestUnload("a"), WorkerLost(LOCAL_WORKER))
        assert models.engine.models_to_load(["a"], ["a", "b"]) == ("b",)

    def test_without_a_budget(self):
        models = Models()
        assert calls(models.at(1, RequestUnload("a"))) == "-a"
        models.gone(2, "a")
        assert len(every(models.frames(3, "a"), DropFrames)) == 1
        assert calls(models.frames(4, "b")) == "b"
        models.run(14)
        assert calls(models.at(15, RequestLoad("a"))) == "+a"
        assert calls(models.frames(16, "a")) == "", "it waits for the command"
        assert calls(models.loaded(20, "a")) == "a"
        models.run(30)
        assert models.engine.models_to_load([], "ab") == ("a", "b")


class TestPinAndHold:
    def test_a_pinned_model_is_loaded_and_stays(self):
        models = Models(max_models=1)
        assert calls(models.at(1, PinModel("a"))) == "+a"
        models.loaded(2, "a")
        (drop,) = every(models.frames(3, "b"), DropFrames)
        assert drop.reason.startswith("no_room")
        assert calls(models.at(4, PinModel("a", pinned=False))) == ""
        assert calls(models.frames(5, "b")) == "-a"

    def test_a_pin_that_never_fits_is_refused(self):
        models = Models(max_models=1)
        models.at(1, PinModel("a"))
        assert refusals(models.at(2, PinModel("b"))) == [("b", "no_room")]
        assert models.view("b").pins == ()

    def test_a_hold_is_answered_when_the_model_is_there(self):
        models = Models(max_models=1)
        held = models.hold(1, "a")
        assert (calls(held), reasons(held)) == ("+a", ["hold"])
        assert changes(models.loaded(2, "a")) == [("a", "resident")]
        assert changes(models.hold(3, "a", "other")) == [("a", "resident")], "at once"
        models.frames(4, "b")
        assert models.states() == {"resident": "a"}
        models.at(5, ReleaseModel("a", "h"))
        assert models.view("a").pins == ("hold",)
        assert calls(models.at(6, ReleaseModel("a", "other"))) == "-a"

    def test_those_who_came_first_are_served_first(self):
        models = Models(max_models=1)
        models.hold(1, "b", "first")
        models.hold(2, "a", "second")
        models.loaded(3, "b")
        assert calls(models.at(4, ReleaseModel("b", "first"))) == "-b"
        assert calls(models.gone(5, "b")) == "+a"

    def test_a_hold_during_the_pause_after_a_failure_is_refused_with_the_words(self):
        models = Models(max_models=1)
        models.hold(1, "a", "first")
        assert changes(models.failed(2, "a", "corrupt")) == [("a", "failed")]
        assert refusals(models.hold(3, "a", "second")) == [("a", "failed: corrupt")]
        models.at(4, ReleaseModel("a", "first"))
        assert models.wakeup is None
        assert calls(models.hold(1002, "a", "third")) == "+a"

    def test_what_is_not_sized_is_refused(self):
        models = Models(sized(make_profile(a=[10], b=[10]), a=5), streams="ab", budget_bytes=20)
        assert refusals(models.hold(1, "b")) == [("b", "not_sized")]
        assert refusals(models.at(2, RequestLoad("b"), PinModel("b"))) == [("b", "not_sized"), ("b", "not_sized")]
