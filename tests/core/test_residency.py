"""Models come and go for the frames that wait for them: what is loaded, what gives way, and what runs when."""

import pytest

from gateway.core.actions import AcceptFrames, DeliverFrames, DropFrames, UnloadModel
from gateway.core.config import Replacement
from gateway.core.events import (
    CloseStream,
    FrameCancelled,
    LateLoadEnded,
    ModelLoaded,
    ModelLost,
    ModelUnloaded,
    ModelUnloadFailed,
    WorkerBack,
    WorkerLost,
)
from gateway.core.types import LOCAL_WORKER, OnLate, ServiceClass
from tests.core.factories import every, make_profile, only
from tests.core.model_drive import Models, calls, changes, reasons, sized


class TestUnmanaged:
    def test_every_model_counts_as_resident(self):
        models = Models()
        assert calls(models.frames(1, "a", "b")) == "a"
        assert models.engine.snapshot().residency == ()
        assert models.engine.snapshot().memory.budget is None

    def test_words_about_models_change_nothing_but_what_is_shown(self):
        models = Models()
        models.at(1, WorkerLost(LOCAL_WORKER), ModelLoaded("a", warm=True))
        assert changes(models.failed(2, "b", "corrupt")) == [("b", "failed")]
        assert calls(models.frames(3, "a", "b", "c")) == ""
        assert calls(models.at(4, WorkerBack(LOCAL_WORKER))) == "a"
        assert calls(models.run(5)) == "b", "the worker answers for what is not there"
        assert calls(models.run(6)) == "c"
        assert models.states() == {"resident": "a", "failed": "b"}
        assert models.wakeup is None, "nothing is tried again by itself"

    def test_a_model_that_is_lost_is_not_held_back(self):
        models = Models()
        assert changes(models.at(1, ModelLost("a", "somebody"))) == [("a", "absent")]
        assert calls(models.frames(2, "a")) == "a"
        assert changes(models.loaded(3, "a")) == [("a", "resident")], "the supervisor has repaired it"


class TestDemand:
    def test_a_frame_has_its_model_loaded_and_waits_for_it(self):
        models = Models(max_models=2)
        first = models.frames(1, "a")
        assert calls(first) == "+a"
        assert reasons(first) == ["prefetch"]
        assert calls(models.frames(2, "a")) == "", "once"
        assert calls(models.loaded(50, "a")) == "a"
        assert models.view("a").last_use_ns is None
        assert only(models.run(60), DeliverFrames).outcomes == ("met",)
        assert models.view("a").last_use_ns == 60_000_000

    def test_without_prefetch_it_waits_for_the_joint(self):
        models = Models(max_models=2, prefetch=False)
        assert calls(models.frames(1, "a")) == ""
        assert models.wakeup == 1000
        loaded = models.at(1000)
        assert (calls(loaded), reasons(loaded)) == ("+a", ["demand"])

    def test_without_prefetch_it_wakes_up_for_the_joint_though_the_device_is_busy(self):
        models = Models(max_models=2, prefetch=False)
        models.hold(0, "a")
        models.loaded(0, "a")
        models.frames(1, "a", "b")
        assert models.engine.snapshot().running is not None
        assert models.wakeup == 1000

    def test_other_models_run_on_while_one_loads(self):
        models = Models(max_models=2)
        models.frames(1, "a")
        models.loaded(2, "a")
        models.frames(3, "b")
        assert calls(models.frames(4, "a")) == ""
        assert calls(models.run(12)) == "a"
        assert calls(models.loaded(13, "b")) == ""
        assert calls(models.run(22)) == "b"

    def test_models_are_loaded_in_parallel_as_far_as_they_fit(self):
        models = Models(max_models=2)
        assert calls(models.frames(1, "a", "b", "c")) == "+a +b"
        assert models.states() == {"loading": "ab"}
        assert models.held == 2

    def test_the_oldest_frame_comes_first(self):
        """With room for one: a, whose frame came first, then b, though a has got another frame meanwhile."""
        models = Models(max_models=1)
        models.frames(1, "a", "b")
        assert calls(models.loaded(50, "a")) == "a"
        models.frames(51, "a")
        assert calls(models.run(60)) == "-a"
        assert calls(models.gone(70, "a")) == "+b"
        assert calls(models.loaded(90, "b")) == "b"
        assert calls(models.run(100)) == "-b"
        assert calls(models.gone(110, "b")) == "+a"

    def test_all_that_waits_when_a_model_comes_is_served_before_it_gives_way(self):
        """Each job takes one frame here. What comes later has to wait until others have had their turn."""
        models = Models(max_models=1)
        models.frames(1, "a", "a", "b")
        models.frames(40, "a")
        assert calls(models.loaded(50, "a")) == "a"
        models.frames(51, "a")
        assert [calls(models.run(t)) for t in (60, 70, 80)] == ["a", "a", "-a"]
        assert calls(models.gone(90, "a")) == "+b"

    def test_what_ran_last_stays_as_long_as_nobody_needs_its_memory(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        models.loaded(50, "a")
        assert calls(models.run(60)) == ""
        assert calls(models.frames(99, "a")) == "a"

    def test_a_running_job_ends_before_its_model_goes(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        models.loaded(2, "a")
        assert calls(models.frames(3, "b")) == ""
        assert calls(models.at(5)) == ""
        assert calls(models.run(12)) == "-a"

    def test_memory_is_free_when_the_worker_says_so(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        models.loaded(2, "a")
        models.run(12)
        models.frames(13, "b")
        assert models.states() == {"unloading": "a"}
        assert calls(models.at(500)) == ""
        assert models.held == 1
        assert calls(models.gone(501, "a")) == "+b"

    def test_headroom_lets_a_load_begin_while_another_model_goes(self):
        models = Models(max_models=1, headroom_models=1)
        models.frames(1, "a")
        models.loaded(2, "a")
        models.run(12)
        assert calls(models.frames(13, "b")) == "-a +b"
        assert models.held == 2
        assert calls(models.frames(14, "c")) == ""

    def test_it_is_needed_again_while_it_goes(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        models.loaded(2, "a")
        models.run(12)
        models.frames(13, "b")
        models.at(14, FrameCancelled("b", 0))
        models.frames(15, "a")
        assert calls(models.gone(30, "a")) == "+a"

    def test_a_model_loaded_for_nothing_gives_way(self):
        models = Models(max_models=1)
        models.frames(1, "a", "b")
        models.at(2, FrameCancelled("a", 0))
        assert models.states() == {"loading": "a"}
        assert calls(models.loaded(50, "a")) == "-a"

    def test_a_model_is_not_asked_to_go_before_it_has_run_what_it_was_loaded_for(self):
        """Held for somebody else, b comes first; but a was loaded for a frame, and that frame can start."""
        models = Models(max_models=1)
        models.frames(1, "a")
        models.hold(2, "b")
        assert calls(models.loaded(50, "a")) == "a"
        assert calls(models.run(60)) == "-a"

    def test_a_stream_that_ends_takes_its_demand_along(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        models.loaded(2, "a")
        models.frames(3, "b")
        models.at(4, FrameCancelled("b", 0), CloseStream("b"))
        assert calls(models.run(12)) == ""

    def test_frames_expire_while_they_wait_for_their_model(self):
        models = Models(max_models=1, streams="")
        models.stream("a", "a", deadline=200)
        models.frames(0, "a")
        (drop,) = every(models.at(200), DropFrames)
        assert (drop.outcome, drop.reason.partition(":")[0]) == ("expired", "model_not_resident")
        assert calls(models.loaded(300, "a")) == ""
        assert models.states() == {"resident": "a"}


class TestVictims:
    def full(self, **residency):
        """a, b and c are resident and were used in that order; d is not."""
        models = Models(max_models=3, **residency)
        for n, name in enumerate("abc"):
            models.frames(10 * n, name)
            models.loaded(10 * n + 1, name)
            models.run(10 * n + 9)
        return models

    def test_lru(self):
        models = self.full(replacement=Replacement.LRU)
        assert calls(models.frames(100, "d")) == "-a"

    def test_next_use(self):
        """Streams a, b and c have a period of 100 ms: next frames at 100, 110, 120; c's is furthest away."""
        models = self.full()
        assert calls(models.frames(99, "d")) == "-c"

    def test_a_camera_that_missed_its_turn_is_expected_at_the_next_one(self):
        models = self.full()
        assert calls(models.frames(105, "d")) == "-a", "due at 200; b at 110, c at 120"

    def test_a_model_without_streams_is_the_first_to_go(self):
        models = self.full()
        models.at(50, CloseStream("b"))
        assert calls(models.frames(99, "d")) == "-b"

    def test_ties_go_by_last_use(self):
        models = self.full()
        models.at(50, CloseStream("b"), CloseStream("a"), CloseStream("c"))
        assert calls(models.frames(99, "d")) == "-a"

    def test_a_model_for_which_frames_wait_goes_last(self):
        models = self.full(replacement=Replacement.LRU)
        models.frames(90, "b")  # runs, and with it the device is busy
        models.frames(91, "a")
        assert calls(models.frames(92, "d")) == "-c"

    def test_just_enough(self):
        profile = sized(make_profile(a=[10], b=[10], c=[10], d=[10]), a=2, b=1, c=5, d=5)
        models = Models(profile, streams="abcd", budget_bytes=8, replacement=Replacement.LRU)
        for n, name in enumerate("abc"):
            models.frames(10 * n, name)
            models.loaded(10 * n + 1, name)
            models.run(10 * n + 9)
        assert models.held == 8
        assert calls(models.frames(100, "d")) == "-c", "5 bytes are needed: a and b alone are too little, c is enough"

    def test_what_is_going_already_counts(self):
        profile = sized(make_profile(a=[10], b=[10], c=[10]), a=2, b=2, c=1)
        models = Models(profile, streams="abc", budget_bytes=4)
        for n, name in enumerate("ab"):
            models.frames(10 * n, name)
            models.loaded(10 * n + 1, name)
            models.run(10 * n + 9)
        models.at(50, CloseStream("a"))
        assert calls(models.frames(90, "c")) == "-a"
        assert calls(models.frames(91, "c")) == ""
        models.at(92, FrameCancelled("c", 0), FrameCancelled("c", 1))
        assert calls(models.frames(93, "c")) == ""
        assert calls(models.gone(94, "a")) == "+c"

    def test_a_model_that_will_not_go_is_left_alone_for_a_while(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        models.loaded(2, "a")
        models.run(12)
        models.frames(13, "b")
        stuck = models.at(100, ModelUnloadFailed("a", "still listed"))
        assert changes(stuck) == [("a", "resident")]
        assert calls(stuck) == ""
        assert calls(models.frames(200, "a")) == "a", "it serves on"
        models.run(210)
        assert models.held == 1
        assert calls(models.at(1000)) == "", "the joint of b's window"
        assert models.wakeup == 1100
        assert calls(models.at(1100)) == "-a"
        assert calls(models.gone(1200, "a")) == "+b"


class TestRealTime:
    def camera(self, models, name, model, t=0, **spec):
        return models.stream(name, model, deadline=200, t=t, service_class=ServiceClass.REAL_TIME, **spec)

    def test_its_model_is_pinned_and_comes_by_itself(self):
        models = Models(max_models=2)
        admitted = self.camera(models, "cam", "a")
        assert (calls(admitted), reasons(admitted)) == ("+a", ["pin"])
        models.loaded(1, "a")
        models.frames(2, "b")
        models.loaded(3, "b")
        models.run(20)
        assert calls(models.frames(30, "c")) == "-b"
        models.gone(31, "b")
        assert models.view("a").pins == ("stream",)
        models.at(32, CloseStream("cam"))
        assert models.view("a").pins == ()

    def test_it_comes_before_what_others_were_loaded_for(self):
        models = Models(max_models=1)
        models.frames(1, "b")
        self.camera(models, "cam", "a", t=2)
        assert calls(models.loaded(50, "b")) == "-b"
        (drop,) = every(models.at(51), DropFrames) or every(models.gone(60, "b"), DropFrames)
        assert drop.reason.startswith("no_room: it needs 1 models, and of 1 at most 0 can be free")

    def test_no_other_promise_waits_for_a_model_that_is_lost(self):
        """cam's model is gone for a while; the frames of the other camera are on time though they come after it."""
        drive = Models(make_profile(a=[10], b=[10]), streams="", max_models=2, early_dispatch=False)
        drive.at(0, WorkerLost(LOCAL_WORKER), ModelLoaded("a", warm=True), ModelLoaded("b", warm=True))
        drive.at(0, WorkerBack(LOCAL_WORKER))
        self.camera(drive, "cam", "a", frames=3, on_late=OnLate.SERVE)
        self.camera(drive, "other", "b", frames=3)
        assert drive.engine._waiting.guard is not None, "there is a plan"
        drive.at(1, ModelLost("a", "somebody"))
        drive.frames(2, "cam")
        drive.frames(3, "other")
        assert calls(drive.at(100)) == "b"
        drive.run(110)
        # What cam's frame has been waiting for does not end: it is late by now, and others are served still.
        drive.frames(250, "other")
        assert calls(drive.at(350)) == "b"
        assert only(drive.run(360), DeliverFrames).outcomes == ("met",)
        drive.loaded(400, "a")
        assert only(drive.run(410), DeliverFrames).outcomes == ("missed",), "as its stream wants it: late, but served"

    def test_nor_does_best_effort(self):
        drive = Models(make_profile(a=[10], b=[10]), streams="b", max_models=2)
        drive.at(0, WorkerLost(LOCAL_WORKER), ModelLoaded("a", warm=True), ModelLoaded("b", warm=True))
        drive.at(0, WorkerBack(LOCAL_WORKER))
        self.camera(drive, "cam", "a", frames=3, on_late=OnLate.SERVE)
        assert drive.engine._waiting.guard is not None, "there is a plan"
        drive.at(1, ModelLost("a", "somebody"))
        drive.frames(2, "cam")
        assert calls(drive.frames(250, "b")) == "b", "cam's frame is late, and holds up nobody"


class TestFailure:
    def test_its_frames_fail_with_the_words_and_its_memory_is_free(self):
        models = Models(max_models=1)
        models.frames(1, "a", "b")
        failed = models.failed(50, "a", "out of memory")
        (drop,) = every(failed, DropFrames)
        assert (drop.outcome, drop.reason) == ("failed", "model_load_failed: out of memory")
        assert calls(failed) == "+b"
        assert changes(failed) == [("a", "failed"), ("b", "loading")]
        assert models.held == 1

    def test_it_is_given_back_once(self):
        models = Models(max_models=2)
        models.frames(1, "a", "b")
        models.failed(50, "a")
        models.failed(51, "a")
        models.gone(52, "a")
        assert models.held == 1

    def test_further_frames_fail_at_once_until_the_pause_is_over(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        models.failed(50, "a", "broken")
        came = models.frames(60, "a")
        assert only(came, DropFrames).frames == only(came, AcceptFrames).frames
        assert calls(came) == ""
        assert models.view("a").retry_ns == 1_050_000_000
        again = models.frames(1050, "a")
        assert (calls(again), reasons(again)) == ("+a", ["retry"])

    def test_what_was_given_up_holds_its_memory_until_it_has_ended(self):
        models = Models(max_models=1, backoff_ns=1_000_000)
        models.frames(1, "a", "b")
        assert calls(models.failed(50, "a", "timed out", lingers=True)) == ""
        assert (models.states(), models.held) == ({"failed": "a"}, 1)
        came = models.frames(100, "a")  # the pause is over, the load is not
        assert only(came, DropFrames).reason == "model_load_failed: timed out"
        assert calls(came) == ""
        assert calls(models.at(200, LateLoadEnded("a"))) == "+b"
        assert models.held == 1
        models.at(201, LateLoadEnded("a"), LateLoadEnded("b"), LateLoadEnded("nobody"))
        assert models.held == 1

    def test_what_was_given_up_is_tried_again_when_it_has_ended(self):
        models = Models(max_models=1, streams="", backoff_ns=1_000_000)
        models.stream("cam", "a", deadline=200, service_class=ServiceClass.REAL_TIME)
        models.failed(50, "a", lingers=True)
        assert calls(models.at(100)) == ""
        assert models.wakeup != 51
        again = models.at(150, LateLoadEnded("a"))
        assert (calls(again), reasons(again)) == ("+a", ["retry"])

    def test_what_was_given_up_is_forgotten_with_the_worker(self):
        models = Models(max_models=1, backoff_ns=1_000_000)
        models.frames(1, "a")
        models.failed(50, "a", lingers=True)
        models.at(60, WorkerLost(LOCAL_WORKER))
        assert models.held == 0
        assert calls(models.at(70, WorkerBack(LOCAL_WORKER)) + models.frames(71, "a")) == "+a"

    def test_pauses_grow_to_a_limit_and_a_success_ends_them(self):
        models = Models(max_models=1, backoff_ns=1_000_000, longest_backoff_ns=5_000_000)
        pauses = []
        t = 0
        for _ in range(4):
            models.frames(t, "a")
            models.failed(t + 1, "a")
            pauses.append(models.view("a").retry_ns // 1_000_000 - t - 1)
            t += 100
        assert pauses == [1, 2, 4, 5]
        models.frames(t, "a")
        models.loaded(t + 1, "a")
        models.run(t + 20)
        models.at(t + 30, ModelLost("a", "gone"))
        models.frames(t + 40, "a")
        models.failed(t + 41, "a")
        assert models.view("a").retry_ns == (t + 42) * 1_000_000

    def test_a_pinned_model_is_tried_again_by_itself(self):
        models = Models(max_models=1, streams="")
        models.stream("cam", "a", deadline=200, service_class=ServiceClass.REAL_TIME)
        models.failed(50, "a")
        assert models.wakeup == 1050
        assert calls(models.at(1050)) == "+a"
        assert models.wakeup is None

    def test_a_model_that_can_never_fit_takes_nothing_away(self):
        profile = sized(make_profile(a=[10], b=[10]), a=5, b=50)
        models = Models(profile, streams="ab", budget_bytes=20)
        models.frames(1, "a")
        models.loaded(2, "a")
        models.run(12)
        (drop,) = every(models.frames(20, "b"), DropFrames)
        assert drop.reason == "no_room: it needs 50 bytes, and of 20 at most 20 can be free"
        assert models.states() == {"resident": "a"}

    def test_a_model_of_unknown_size_is_not_loaded_for_a_budget_in_bytes(self):
        models = Models(sized(make_profile(a=[10], b=[10]), a=5), streams="ab", budget_bytes=20)
        assert only(models.frames(1, "b"), DropFrames).reason.startswith("not_sized")
        assert calls(models.frames(2, "a")) == "+a"


class TestRaces:
    @pytest.mark.parametrize("event", [ModelLoaded("a"), ModelUnloaded("a"), ModelUnloadFailed("a", "x")])
    def test_words_about_what_is_not_under_way_are_ignored(self, event):
        models = Models(max_models=1)
        before = models.engine.snapshot().residency
        assert models.at(0, event) == []
        assert models.engine.snapshot().residency == before

    def test_a_load_ends_once(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        models.loaded(2, "a", warm=False)
        assert models.loaded(3, "a") == [], "its first executions are not over"
        assert models.failed(3, "a") == []
        assert models.states() == {"loading": "a"}

    def test_a_lost_worker_takes_everything_along(self):
        models = Models(max_models=2)
        models.frames(1, "a", "b", "c")
        models.loaded(2, "a")
        lost = models.at(3, WorkerLost(LOCAL_WORKER))
        assert changes(lost) == [("a", "absent"), ("b", "absent")]
        assert models.held == 0
        assert models.loaded(4, "b", warm=False) == [], "from before the loss"
        assert calls(models.frames(5, "d")) == ""
        assert calls(models.at(10, WorkerBack(LOCAL_WORKER))) == "+b +c", "the frame of a has failed with the worker"
        assert models.held == 2

    def test_what_the_driver_loads_while_the_worker_is_lost(self):
        models = Models(max_models=2)
        models.at(0, WorkerLost(LOCAL_WORKER))
        models.frames(1, "a", "b")
        models.loaded(2, "a")
        models.failed(3, "b", "corrupt")
        back = models.at(4, WorkerBack(LOCAL_WORKER))
        assert calls(back) == "a"
        assert models.states() == {"resident": "a", "failed": "b"}

    def test_a_model_that_somebody_else_unloaded_is_loaded_again_when_it_is_needed(self):
        models = Models(max_models=1)
        models.frames(1, "a")
        models.loaded(2, "a")
        assert calls(models.at(3, ModelLost("a", "by hand"))) == ""
        assert models.held == 0
        models.broken(4)
        assert calls(models.frames(5, "a")) == "+a"
        assert models.at(6, ModelLost("a", "by hand")) == [], "it is on its way"


class TestSynchronous:
    def test_nothing_runs_beside_a_load(self):
        models = Models(max_models=2, synchronous=True)
        models.frames(0, "a")
        models.loaded(1, "a")
        models.frames(2, "b")
        assert calls(models.frames(3, "a")) == "", "b's load waits until a's job has ended"
        assert calls(models.run(11)) == "+b"
        assert calls(models.frames(12, "a")) == ""
        assert calls(models.loaded(50, "b")) == "b"
        assert calls(models.run(60)) == "a"


class TestSetUp:
    def test_without_a_budget_all_that_is_wanted(self):
        engine = Models().engine
        assert engine.models_to_load(["x"], ["b", "a", "b"]) == ("b", "a")

    def test_with_one_as_much_as_fits_and_the_most_important_first(self):
        models = Models(max_models=3)
        models.frames(1, "a")
        models.loaded(2, "a")
        models.run(12)
        models.stream("cam", "b", deadline=200, service_class=ServiceClass.REAL_TIME, t=20)
        models.at(30, WorkerLost(LOCAL_WORKER))
        assert models.engine.models_to_load([], "cdef") == ("b", "a", "c")
        assert models.engine.models_to_load(["f"], "cdef") == ("b", "f", "a")
        models.hold(40, "e")
        assert models.engine.models_to_load(["f"], "cdef") == ("b", "e", "f")

    def test_sizes_count(self):
        models = Models(sized(make_profile(a=[1], b=[1], c=[1]), a=5, b=6), streams="", budget_bytes=10)
        assert models.engine.models_to_load([], "abc") == ("a",)
        assert models.engine.models_to_load([], "cba") == ("b",)


def test_frames_that_expire_while_the_worker_is_lost_do_not_blame_their_model():
    models = Models(max_models=1, streams="")
    models.stream("a", "a", deadline=100)
    models.frames(1, "a")
    models.at(2, WorkerLost(LOCAL_WORKER))
    assert [drop.reason for drop in every(models.at(101), DropFrames)] == ["expired"]
    models.at(102, WorkerBack(LOCAL_WORKER))
    models.frames(103, "a")
    reasons = [drop.reason for drop in every(models.at(203), DropFrames)]
    assert reasons == ["model_not_resident: it was not in memory in time"]


def test_an_eviction_says_so():
    models = Models(max_models=1)
    models.frames(1, "a")
    models.loaded(2, "a")
    models.run(12)
    assert reasons(models.frames(20, "b"), UnloadModel) == ["eviction"]


def test_next_use_is_shown():
    models = Models(max_models=1)
    models.frames(1, "a", "b")
    assert models.view("b").next_use_ns == 1_000_000, "now: a frame waits"
    models.loaded(2, "a")
    assert models.view("a").next_use_ns == 101_000_000
