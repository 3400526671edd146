"""First executions after a load: which, when, and what becomes of a model whose warm-up fails."""

from gateway.core.actions import DeliverFrames, DropFrames, StartJob, UnloadModel
from gateway.core.events import (
    FrameCancelled,
    ModelLost,
    ModelUnloadFailed,
    RequestUnload,
    WorkerBack,
    WorkerLost,
)
from gateway.core.log import entry
from gateway.core.profile import ModelEntry, Profile
from gateway.core.types import LOCAL_WORKER, ServiceClass
from tests.core.factories import MS, every, make_profile, only
from tests.core.model_drive import Models, calls, changes, reasons

PROFILE = make_profile(a=[10, 12, 14, 16], b=[10])


def loading(profile=PROFILE, **residency):
    models = Models(profile, streams="ab", **({"max_models": 1} | residency))
    models.frames(0, "a")
    return models


def jobs(models, t, started):
    """Run what has started and all that follows, 10 ms each; return the jobs."""
    found = [action.job for action in every(started, StartJob)]
    while models.engine.snapshot().running is not None:
        t += 10
        found += [action.job for action in every(models.run(t), StartJob)]
    return found


def test_one_frame_and_the_largest_batch_of_each_category_then_it_is_resident():
    models = loading()
    started = models.loaded(1, "a", warm=False)
    assert calls(started) == "~a"
    assert models.states() == {"loading": "a"}
    found = jobs(models, 1, started)
    assert [(job.warm_up, len(job.frames)) for job in found] == [(1, 0), (4, 0), (0, 1)]
    assert len({job.id for job in found}) == 3
    assert models.states() == {"resident": "a"}


def test_nobody_is_told_of_blank_frames():
    models = loading()
    models.loaded(1, "a", warm=False)
    models.run(11)
    ended = models.run(21)
    assert every(ended, DeliverFrames) == every(ended, DropFrames) == []
    assert changes(ended) == [("a", "resident")]
    assert models.view("a").last_use_ns is None


def test_a_model_without_streams_runs_its_smallest_shape():
    models = Models(PROFILE, streams="", max_models=1)
    models.hold(0, "a")
    found = jobs(models, 1, models.loaded(1, "a", warm=False))
    assert [job.warm_up for job in found] == [1, 4]
    assert changes(models.hold(90, "a", "other")) == [("a", "resident")]


def test_what_is_not_profiled_needs_none():
    models = Models(PROFILE, streams="", max_models=1)
    models.hold(0, "x")
    assert changes(models.loaded(1, "x", warm=False)) == [("x", "resident")]


def test_times_that_are_planned():
    category = only(models_jobs := loading(warm_up_factor=3).loaded(1, "a", warm=False), StartJob).job.category
    assert models_jobs[0].job.execution_ns == 30 * MS, "E(1) x factor"
    assert PROFILE.warm_up_ns(category, 4, 3.0) == 48 * MS
    measured = Profile(PROFILE.entries, (ModelEntry("a", "1", 1, 1, 1, warm_up_ms=200),))
    assert measured.warm_up_ns(category, 1, 3.0) == measured.warm_up_ns(category, 4, 3.0) == 220 * MS
    quick = Profile(PROFILE.entries, (ModelEntry("a", "1", 1, 1, 1, warm_up_ms=1),))
    assert quick.warm_up_ns(category, 4, 3.0) == 16 * MS, "no less than any other execution"


def test_the_decision_log_says_what_a_job_without_frames_is():
    job = only(loading().loaded(1, "a", warm=False), StartJob)
    assert entry(0, job) | {"batch": 0, "warm_up": 1} == entry(0, job)


class TestFailure:
    def test_it_is_unloaded_and_counts_as_failed(self):
        models = loading()
        models.loaded(1, "a", warm=False)
        failed = models.broken(11)
        assert reasons(failed, UnloadModel) == ["warm_up_failed"]
        assert only(failed, DropFrames).reason == "model_load_failed: warm-up: broken"
        assert models.held == 1
        assert changes(models.gone(20, "a")) == [("a", "failed")]
        assert models.held == 0
        assert models.view("a").reason == "warm-up: broken"
        assert calls(models.frames(2000, "a")) == "+a"

    def test_and_if_it_cannot_even_be_unloaded_nothing_of_it_starts(self):
        models = loading()
        models.loaded(1, "a", warm=False)
        models.broken(11)
        models.at(20, ModelUnloadFailed("a", "still there"))
        assert calls(models.frames(21, "a")) == ""
        assert models.wakeup == 2020
        assert calls(models.at(2020)) == "-a"
        assert changes(models.gone(2030, "a")) == [("a", "failed")]


class TestCutShort:
    def test_by_a_command(self):
        models = loading()
        models.loaded(1, "a", warm=False)
        assert calls(models.at(2, RequestUnload("a"))) == "", "one of them runs"
        assert calls(models.run(11)) == "-a"

    def test_by_the_loss_of_the_worker(self):
        models = loading()
        models.loaded(1, "a", warm=False)
        models.at(2, WorkerLost(LOCAL_WORKER))
        assert calls(models.run(3) if models.engine.snapshot().running else []) == ""
        assert calls(models.at(4, WorkerBack(LOCAL_WORKER))) == "+a"
        found = jobs(models, 5, models.loaded(5, "a", warm=False))
        assert [job.warm_up for job in found] == [1, 4, 0], "from the beginning"

    def test_one_from_before_the_loss_does_not_count(self):
        models = loading()
        old = only(models.loaded(1, "a", warm=False), StartJob).job
        models.at(2, WorkerLost(LOCAL_WORKER), WorkerBack(LOCAL_WORKER))
        models.loaded(3, "a", warm=False)
        assert models.finish(4, old) == []

    def test_nor_does_one_from_before_the_model_was_lost(self):
        models = loading()
        models.loaded(1, "a", warm=False)
        models.at(2, ModelLost("a", "somebody"))
        models.loaded(3, "a", warm=False)
        found = jobs(models, 3, models.run(13))
        assert [job.warm_up for job in found] == [1, 4, 0], "what ran was of the load before"

    def test_by_another_model_when_nobody_waits_for_it_any_more(self):
        models = loading(profile=make_profile(a=[10, 12], b=[10]))
        models.frames(0, "b")
        models.loaded(1, "a", warm=False)
        models.at(2, FrameCancelled("a", 0))
        assert calls(models.run(11)) == "-a"


class TestPlace:
    def camera(self, models, name, model, t=0, **spec):
        spec = {"service_class": ServiceClass.REAL_TIME, "deadline": 40, "period": 40} | spec
        return models.stream(name, model, t=t, **spec)

    def ready(self, **spec):
        """A camera's model is there, with room for another."""
        models = Models(make_profile(a=[10, 12], b=[15]), streams="a", max_models=2)
        models.at(0, WorkerLost(LOCAL_WORKER))
        models.loaded(0, "b")
        models.at(0, WorkerBack(LOCAL_WORKER))
        self.camera(models, "cam", "b", **spec)
        return models

    def test_where_no_promise_is_touched(self):
        """By the plan the camera's job is due at 44 and takes 15 ms: one of 10 ms fits before it, not two."""
        models = self.ready(frames=5, start_in=4)
        models.frames(3, "a")
        assert calls(models.loaded(3, "a", warm=False)) == "~a"
        models.frames(4, "cam")
        assert calls(models.run(13)) == "b"
        assert calls(models.run(28)) == "~a"

    def test_not_where_one_would_be(self):
        """The camera's first frame is due at 44, so its job starts at 29 at the latest; it may come until 20."""
        models = self.ready(frames=5, start_in=4)
        models.frames(3, "a")
        assert calls(models.loaded(19.5, "a", warm=False)) == ""
        assert models.wakeup == 20
        assert calls(models.at(20)) == "~a", "it has not come"

    def test_promised_work_waits_for_it_so_it_starts_though_it_takes_too_long(self):
        """The first execution takes 90 ms, longer than any gap; without it the camera would never be served."""
        models = Models(make_profile(a=[10], b=[10]), streams="", max_models=2, warm_up_factor=9)
        self.camera(models, "cam", "a")
        self.camera(models, "other", "b")
        models.loaded(1, "b")
        assert calls(models.loaded(2, "a", warm=False)) == "~a"

    def test_a_large_one_that_would_find_no_turn_is_left_out(self):
        """B of the sporadic test is 30 ms, for a first execution of one frame; one of two frames takes 36."""
        models = Models(make_profile(a=[10, 12], b=[5]), streams="", max_models=2, warm_up_factor=3)
        models.at(0, WorkerLost(LOCAL_WORKER))
        models.loaded(0, "b")
        models.at(0, WorkerBack(LOCAL_WORKER))
        models.stream("a", "a", deadline=5000)
        models.stream("cam", "b", deadline=200, service_class=ServiceClass.REAL_TIME)
        assert models.engine._waiting.blocking_ns == 30 * MS
        models.frames(1, "a")
        assert [job.warm_up for job in jobs(models, 1, models.loaded(1, "a", warm=False))] == [1, 0]
