"""What once kept a model from being loaded at all, or its callers from being answered; and what loads cost others."""

from gateway.core.actions import DeliverFrames
from gateway.core.events import FramesArrived, ModelUnloadFailed, PinModel, RegisterStream, RequestLoad
from tests.core.factories import make_profile, make_spec, only
from tests.core.model_drive import Models, calls, reasons, refusals, sized


def test_a_command_that_a_failed_unload_has_carried_out_keeps_nobody_out():
    models = Models(max_models=1)
    models.frames(0, "a")
    models.loaded(1, "a")
    assert calls(models.frames(2, "b")) == ""
    assert calls(models.run(11)) == "-a"
    assert calls(models.at(12, RequestLoad("a"))) == "", "it is on its way out"
    assert models.at(13, ModelUnloadFailed("a", "busy")), "so it is there, as the command wants"
    assert calls(models.at(1_014)) == "-a", "after a pause, for the frame that waits"
    assert calls(models.gone(2_000, "a")) == "+b"


def test_small_models_that_come_and_go_do_not_keep_a_large_one_out():
    """What has to go for a later load holds its memory until it has gone, and an older one waits for that too."""
    profile = sized(make_profile(**{name: [10] for name in "abcde"}), a=4, b=3, c=3, d=3, e=7)
    models = Models(profile, streams="abcde", budget_bytes=10)
    models.frames(0, "a")
    models.loaded(1, "a")
    models.run(11)
    assert calls(models.frames(20, "e")) == "-a"
    assert calls(models.frames(21, "b")) == "+b", "beside the old one and the large one there is room for it"
    models.loaded(22, "b")
    models.run(32)
    assert calls(models.frames(33, "c")) == "-b", "its load would have the large one wait for b too"
    assert calls(models.gone(50, "a")) == "+e"
    assert calls(models.gone(60, "b")) == "+c"


def test_who_waits_for_a_model_that_cannot_be_warmed_is_told():
    """Unbounded streams of short jobs are promised to wait no longer than one of those takes."""
    models = Models(make_profile(a=[10], b=[50]), streams="", max_models=2)
    models.hold(0, "a")
    models.loaded(1, "a")
    models.at(2, RegisterStream("camera", make_spec(100, 60, model="a")))
    models.hold(3, "b")
    refused = models.loaded(4, "b", warm=False)
    assert calls(refused) == ""
    (refusal,) = refusals(refused)
    assert refusal == (
        "b",
        "failed: too_long: its first execution takes 50.0 ms, promised work can wait for 10.0 ms at most",
    )
    assert models.view("b").pins == ()


def test_where_the_test_bears_it_a_long_first_execution_finds_its_turn():
    models = Models(make_profile(a=[10], b=[50]), streams="", max_models=2)
    models.hold(0, "a")
    models.loaded(1, "a")
    models.at(2, RegisterStream("camera", make_spec(100, 400, model="a")))
    models.hold(3, "b")
    assert calls(models.loaded(4, "b", warm=False)) == "~b"


class TestWhatLoadsCost:
    """Executions that a load disturbs more than was planned for are not held against their category."""

    def overrun(self, *, loads):
        """Return why a job of 10 ms took 15, and what its category has to pay; a load of another model beside it."""
        models = Models(make_profile(a=[10], b=[10]), streams="b", max_models=2)
        models.hold(0, "a")
        models.loaded(1, "a")
        models.at(2, RegisterStream("camera", make_spec(100, 60, model="a", frames=3)))
        models.at(3, FramesArrived("camera"))
        models.run(13)
        models.at(103, FramesArrived("camera"))
        if loads:
            models.frames(104, "b")
            models.loaded(105, "b")
        ended = models.run(118)
        penalties = {view.category.model: view.penalty_ns for view in models.engine.snapshot().categories}
        return only(ended, DeliverFrames).cause, penalties["a"]

    def test_their_cause_is_said(self):
        assert self.overrun(loads=True) == ("swap", 0)

    def test_without_a_load_it_is_an_overrun(self):
        assert self.overrun(loads=False) == ("overrun", 5_000_000)


def test_a_command_is_one_to_the_worker_whatever_went_before():
    """It tries at once what it would leave out for a while (`gateway.runtime.fatal_loads`)."""
    models = Models(max_models=2)
    models.at(0, PinModel("a"))
    models.failed(1, "a")
    assert reasons(models.at(1_001)) == ["retry"]
    models.failed(1_002, "a")
    assert reasons(models.at(1_003, RequestLoad("a"))) == ["command"]
