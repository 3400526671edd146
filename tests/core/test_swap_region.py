"""Turns at run time, by hand (times in ms): room for one model, and streams whose models share it."""

import pytest

from gateway.core.actions import (
    DeliverFrames,
    DropFrames,
    LoadModel,
    ModelRefused,
    PlanStale,
    StartJob,
    UnloadModel,
)
from gateway.core.config import EngineConfig, ResidencyConfig
from gateway.core.engine import Engine
from gateway.core.events import (
    CloseStream,
    FrameCancelled,
    FramesArrived,
    HoldModel,
    JobFailed,
    JobFinished,
    LateLoadEnded,
    ModelLoaded,
    ModelLoadFailed,
    ModelLost,
    ModelUnloaded,
    ModelUnloadFailed,
    RegisterStream,
    RequestLoad,
    RequestUnload,
    Tick,
    WorkerBack,
    WorkerLost,
)
from gateway.core.types import LOCAL_WORKER, OnLate, Outcome, ServiceClass
from tests.core.factories import MS, make_spec, only
from tests.properties.swap_rig import swap_profile


class Bench:
    """An engine by hand: tells what it has the worker do."""

    def __init__(self, *specs, max_models=1, profile=None, **residency):
        tables, loads = {"a": [4], "b": [4], "c": [4], "p": [5]}, {"a": 10, "b": 20, "c": 20, "p": 30}
        residency = ResidencyConfig(**({"max_models": max_models, "warm_up_factor": 2, "prefetch": False} | residency))
        profile = swap_profile(tables, loads, unload=10) if profile is None else profile
        self.engine = Engine(profile, EngineConfig(residency=residency, policing=False))
        for spec in specs:
            self._settle(RegisterStream(spec.model, spec))
        for view in self.engine.snapshot().residency:
            if view.region:
                self._settle(ModelLost(view.model, "so that none is there at first"))

    def _settle(self, event):
        """Handle an event at 0, with all calls that it brings."""
        for action in self.engine.handle(event, 0):
            if isinstance(action, LoadModel):
                self._settle(ModelLoaded(action.model, warm=True))
            elif isinstance(action, UnloadModel):
                self._settle(ModelUnloaded(action.model))

    def at(self, t, *events):
        actions = [a for event in events or (Tick(),) for a in self.engine.handle(event, round(t * MS))]
        return [said for action in actions if (said := say(action))]

    def frame(self, t, *streams):
        return self.at(t, *(FramesArrived(name) for name in streams))

    def loaded(self, t, model):
        """Loaded, and its first execution done 8 ms later."""
        said = self.at(t, ModelLoaded(model))
        return said + self.finish(t + 8)

    def finish(self, t):
        job = self.engine.snapshot().running
        assert job is not None
        return self.at(t, JobFinished(job.id))

    def state(self, model):
        return next(str(view.state) for view in self.engine.snapshot().residency if view.model == model)

    @property
    def wakeup(self):
        return self.engine.next_wakeup_ns() / MS


def say(action):
    match action:
        case LoadModel(model, reason):
            return f"load {model} ({reason})"
        case UnloadModel(model, reason):
            return f"unload {model} ({reason})"
        case StartJob(job):
            return f"{'warm' if job.warm_up else 'run'} {job.category.model} by {job.deadline_ns / MS:g}"
        case DropFrames(frames, outcome, reason):
            return f"{outcome} {','.join(frame.stream_id for frame in frames)}: {reason}"
        case DeliverFrames(job, outcomes):
            return f"{outcomes[0]} {job.category.model}"
        case ModelRefused(model, reason):
            return f"no {model}: {reason}"
    return None


def camera(model, deadline=800, **overrides):
    return make_spec(overrides.pop("period", 1000), deadline, model=model, **({"swapping": True} | overrides))


def pair(**residency):
    """a has W = 400, b 500; both windows open at 0, and neither model is there."""
    return Bench(camera("a", 800), camera("b", 1000), **residency)


def local(bench, model):
    """d, in ms."""
    return next(ns for category, ns in bench.engine._promises.region.swap.local_ns if category.model == model) / MS


class TestTurns:
    def test_a_window_gets_its_turn_at_its_joint(self):
        bench = pair()
        assert bench.frame(10, "a") == []
        assert bench.wakeup == 400
        assert bench.at(400) == ["load a (swap)"]
        due = 410 + local(bench, "a")
        assert bench.at(410, ModelLoaded("a")) == [f"warm a by {due:g}"]
        assert bench.finish(418) == [f"run a by {due:g}"]
        assert bench.finish(422) == ["met a"]

    def test_the_next_one_waits_for_the_last_batch(self):
        bench = pair()
        bench.frame(10, "a", "b")
        bench.at(400)
        bench.loaded(410, "a")
        assert bench.at(500) == []
        assert bench.finish(502) == ["met a", "unload a (swap)"]
        assert bench.at(505, ModelUnloaded("a")) == ["load b (swap)"]
        assert bench.state("b") == "loading"

    def test_turns_are_taken_in_order_of_deadline(self):
        # Both end at 500 and later; c has the earlier deadline by then.
        bench = Bench(camera("a", 1000), camera("b", 1600), camera("c", 1400))
        bench.frame(10, "a", "b", "c")
        assert bench.at(500) == ["load a (swap)"]
        bench.loaded(510, "a")
        bench.at(800)  # b and c wait; b is due at 1600, c at 1400
        assert bench.finish(801) == ["met a", "unload a (swap)"]
        assert bench.at(811, ModelUnloaded("a")) == ["load c (swap)"]

    def test_a_model_that_is_there_is_not_loaded_again(self):
        bench = pair()
        bench.frame(10, "a")
        bench.at(400)
        bench.loaded(410, "a")
        bench.finish(420)
        bench.at(500, CloseStream("b"))
        # Nothing else waits: an early batch.
        due = 450 + 800
        assert bench.frame(550, "a") == [f"run a by {due + 100:g}"]

    def test_a_batch_of_another_model_does_not_go_early(self):
        bench = pair()
        bench.frame(10, "a")
        bench.at(400)
        bench.loaded(410, "a")
        bench.finish(420)
        assert bench.frame(430, "b") == []

    def test_nothing_of_the_present_model_starts_once_another_ones_turn_waits(self):
        bench = pair()
        bench.at(1, HoldModel("p", "x"))
        bench.frame(10, "a", "b")
        bench.at(400)
        bench.loaded(410, "a")
        bench.finish(420)
        bench.at(450, FramesArrived("a"))  # starts early
        bench.at(500)  # the turn of b waits for it
        bench.at(501, FramesArrived("a"))
        assert bench.finish(502) == ["met a", "unload a (swap)"]

    def test_its_first_executions_are_promised_only_for_a_turn(self):
        bench = pair(prefetch=True)
        assert bench.frame(10, "a") == ["load a (prefetch)"]
        assert bench.at(20, ModelLoaded("a")) == ["warm a by 9.22337e+12"]
        assert bench.finish(28) == ["run a by 810"]  # early

    def test_a_prefetch_is_overtaken_by_a_turn(self):
        bench = pair(prefetch=True)
        bench.frame(10, "a")
        bench.at(20, ModelLoaded("a"))
        bench.finish(28)
        bench.finish(32)
        assert bench.frame(390, "b") == ["unload a (swap)"]
        bench.frame(395, "a")
        assert bench.at(400, ModelUnloaded("a")) == ["load a (swap)"]

    def test_a_turn_takes_up_what_was_loaded_ahead(self):
        bench = pair(prefetch=True)
        bench.at(0, FramesArrived("a"))
        assert bench.at(399, ModelLoaded("a")) == ["warm a by 9.22337e+12"]
        # Its first execution runs when the window ends: the batch follows, due d after the joint.
        bench.at(400)
        assert bench.finish(407) == [f"run a by {400 + local(bench, 'a'):g}"]


class TestFramesThatGo:
    def test_expired(self):
        bench = pair()
        bench.frame(10, "a", "b")
        bench.at(400)
        assert bench.at(810) == ["expired a: model_not_resident: it was not in memory in time"]
        assert bench.at(811, ModelLoaded("a")) == ["unload a (swap)"]  # b's turn is next
        assert bench.engine.snapshot().ready[0].category.model == "b"

    def test_cancelled_while_it_loads(self):
        bench = pair()
        bench.frame(10, "a")
        bench.at(400)
        assert bench.at(405, FrameCancelled("a", 0)) == ["cancelled a: cancelled"]
        assert bench.at(410, ModelLoaded("a")) == ["warm a by 9.22337e+12"]
        assert bench.finish(418) == []
        assert bench.state("a") == "resident"

    def test_cancelled_while_it_warms(self):
        bench = pair()
        bench.frame(10, "a", "b")
        bench.at(400)
        bench.at(410, ModelLoaded("a"))
        bench.at(411, FrameCancelled("a", 0))
        bench.at(500)
        # b's turn: a goes as soon as its first execution has ended.
        assert bench.finish(510) == ["unload a (swap)"]

    def test_given_up_when_their_turn_comes_so_that_the_next_begins_at_once(self):
        bench = pair()
        bench.frame(10, "a", "b")
        bench.at(400)
        bench.at(800, ModelLoaded("a"))
        assert bench.finish(808) == ["expired a: too_late", "unload a (swap)"]

    def test_a_stream_that_closes_leaves_its_turn_to_its_frames(self):
        bench = pair()
        bench.frame(10, "a")
        bench.at(20, CloseStream("a"), CloseStream("b"))
        assert bench.at(400) == ["load a (swap)"]
        bench.loaded(410, "a")
        assert bench.finish(430) == ["met a"]
        assert not any(view.region for view in bench.engine.snapshot().residency)
        assert bench.engine.snapshot().memory.region == 0


class TestFailures:
    def test_a_load_that_fails(self):
        bench = pair()
        bench.frame(10, "a", "b")
        bench.at(400)
        assert bench.at(410, ModelLoadFailed("a", "broken")) == ["failed a: model_load_failed: broken"]
        assert bench.at(500) == ["load b (swap)"]
        assert bench.frame(505, "a") == ["failed a: model_load_failed: broken"]
        bench.loaded(520, "b")
        bench.finish(530)
        assert bench.frame(1410, "a") == []  # the pause of 1 s is over
        assert bench.at(1600) == ["unload b (swap)"]
        assert bench.engine.snapshot().memory.held == 1

    def test_a_load_that_was_given_up_and_has_not_ended(self):
        bench = pair()
        bench.frame(10, "a", "b")
        bench.at(400)
        bench.at(410, ModelLoadFailed("a", "timed out", lingers=True))
        assert bench.at(500) == []
        assert bench.engine.snapshot().memory.held == 1
        assert bench.at(600, LateLoadEnded("a")) == ["load b (swap)"]

    def test_a_first_execution_that_fails(self):
        bench = pair()
        bench.frame(10, "a")
        bench.at(400)
        bench.at(410, ModelLoaded("a"))
        job = bench.engine.snapshot().running
        said = bench.at(411, JobFailed(job.id, "no kernel"))
        assert "unload a (warm_up_failed)" in said
        said += bench.at(421, ModelUnloaded("a"))
        assert "failed a: model_load_failed: warm-up: no kernel" in said

    def test_an_unload_that_does_not_come(self):
        bench = pair()
        bench.frame(10, "a", "b")
        bench.at(400)
        bench.loaded(410, "a")
        bench.at(500)
        bench.finish(501)
        assert bench.at(511, ModelUnloadFailed("a", "still listed")) == []
        assert bench.wakeup == pytest.approx(1010, abs=1)  # b's frame, before the pause of 1 s is over
        bench.at(1010)
        bench.frame(1011, "b")
        assert bench.at(1511) == ["unload a (swap)"]

    def test_a_lost_worker(self):
        bench = pair()
        bench.frame(10, "a", "b")
        bench.at(400)
        bench.at(410, ModelLoaded("a"))
        assert bench.at(412, WorkerLost(LOCAL_WORKER)) == []
        assert bench.at(415, ModelLoaded("a", warm=True)) == []
        assert bench.at(416, WorkerBack(LOCAL_WORKER)) == [f"run a by {416 + local(bench, 'a'):g}"]

    def test_a_lost_worker_while_the_jobs_of_a_turn_are_ready(self):
        bench = pair()
        bench.frame(10, "a")
        bench.at(400)
        bench.loaded(410, "a")
        assert bench.at(419, WorkerLost(LOCAL_WORKER)) == ["failed a: worker_lost"]
        bench.frame(420, "b")
        bench.at(430, WorkerBack(LOCAL_WORKER))
        assert bench.at(500) == ["load b (swap)"]

    def test_a_model_that_somebody_else_unloads(self):
        bench = Bench(camera("a", burst=2), camera("b", 1000))
        bench.frame(10, "a", "a")
        bench.at(400)
        bench.loaded(410, "a")  # the first of two jobs runs
        assert bench.at(419, ModelLost("a", "gone")) == ["load a (swap)"]
        assert bench.finish(422) == ["met a"]
        assert "run a by" in bench.loaded(430, "a")[-1]


class TestBesideOthers:
    def elsewhere(self, **kwargs):
        """a and b take turns in one of two places, p is best effort in the other."""
        bench = Bench(camera("a"), camera("b", 1000), camera("c", 400, swapping=False), max_models=2, **kwargs)
        assert bench.at(0, CloseStream("c")) == []
        bench.at(0, RegisterStream("p", make_spec(1000, 5000, model="p", service_class=ServiceClass.BEST_EFFORT)))
        return bench

    def test_a_load_elsewhere_waits_for_the_turns(self):
        bench = self.elsewhere(prefetch=True)
        assert bench.frame(395, "a") == ["load a (prefetch)"]
        assert bench.frame(396, "p") == []
        bench.at(400)
        due = f"a by {405 + local(bench, 'a'):g}"
        assert bench.loaded(405, "a") == [f"warm {due}", f"run {due}"]
        # c is in its place, and need not stay any more.
        assert bench.finish(417) == ["met a", "unload c (eviction)"]
        assert bench.at(427, ModelUnloaded("c")) == ["load p (prefetch)"]

    def test_a_turn_waits_for_one_call_elsewhere(self):
        bench = self.elsewhere(prefetch=True)
        assert bench.frame(390, "p") == ["unload c (eviction)"]
        bench.frame(391, "a")
        bench.at(400)
        assert bench.at(401, ModelUnloaded("c")) == ["load a (swap)"]
        bench.loaded(411, "a")
        assert bench.finish(423) == ["met a", "load p (prefetch)"]

    def test_a_model_that_takes_turns_is_neither_held_nor_unloaded(self):
        bench = pair()
        assert bench.at(1, HoldModel("a", "x")) == ["no a: takes_turns"]
        assert bench.at(2, RequestUnload("a")) == ["no a: pinned"]

    def test_a_command_to_load_it_is_refused_and_changes_nothing(self):
        bench = pair()
        assert bench.at(1, RequestLoad("a")) == ["no a: takes_turns"]
        assert bench.at(2) == []

    def test_after_an_unload_by_force_the_command_lets_it_have_its_turns_again(self):
        bench = pair()
        bench.at(1, RequestUnload("a", force=True))
        assert bench.at(2, RequestLoad("a")) == []
        view = next(view for view in bench.engine.snapshot().residency if view.model == "a")
        assert (view.barred, view.reason) == (False, "takes_turns")
        bench.frame(10, "a")
        assert bench.at(500) == ["load a (swap)"]

    def test_by_force_it_is(self):
        bench = pair()
        bench.frame(10, "a", "b")
        assert bench.at(20, RequestUnload("a", force=True)) == ["failed a: model_unloaded"]
        assert bench.frame(30, "a") == ["failed a: model_unloaded"]
        assert bench.at(500) == ["load b (swap)"]

    def test_its_best_effort_is_served_while_no_turn_waits(self):
        bench = pair()
        spec = make_spec(1000, 3000, model="b", service_class=ServiceClass.BEST_EFFORT)
        bench.at(1, RegisterStream("be", spec))
        bench.frame(10, "a")
        assert bench.frame(11, "be") == ["load b (demand)"]
        assert bench.at(31, ModelLoaded("b")) == ["warm b by 9.22337e+12"]
        assert bench.finish(39) == ["run b by 3011"]
        assert bench.at(400) == []
        assert bench.finish(401) == ["met b", "unload b (swap)"]

    def test_a_model_whose_load_turns_cannot_wait_for_is_not_loaded(self):
        tables, loads = {"a": [4], "b": [4], "c": [4], "p": [5]}, {"a": 10, "b": 20, "c": 20, "p": 3000}
        three = camera("a"), camera("b"), camera("c", 400, swapping=False)
        bench = Bench(*three, max_models=2, profile=swap_profile(tables, loads))
        bench.at(0, CloseStream("c"))
        call = make_spec(1000, 3000, model="p", service_class=ServiceClass.BEST_EFFORT, internal=True)
        bench.at(0, RegisterStream("p", call))
        (said,) = bench.frame(10, "p")
        assert said.startswith("failed p: load_too_long: models that take turns cannot wait")
        assert bench.at(11, HoldModel("p", "x")) == ["no p: load_too_long"]


class TestPlans:
    def test_a_plan_that_was_overtaken_by_a_turn_is_stale(self):
        bench = pair()
        plan = bench.engine.plan(camera("c", 1200), 5 * MS, "c")
        assert plan.swap.models == ("a", "b", "c")
        bench.frame(10, "a")
        bench.at(400)
        action = only(bench.engine.handle(RegisterStream("c", camera("c", 1200), plan), 401 * MS), PlanStale)
        assert action.stream_id == "c"

    def test_one_that_changes_nothing_in_the_region_holds(self):
        bench = pair()
        again = camera("a", 800, frames=None)
        plan = bench.engine.plan(again, 5 * MS, "a2")
        bench.at(100)
        bench.engine.handle(RegisterStream("a2", again, plan), 100 * MS)
        assert len(bench.engine.snapshot().streams) == 3

    def test_ready_jobs_come_before_their_model_takes_turns(self):
        bench = Bench(camera("a"))
        bench.at(20, FramesArrived("a"), FramesArrived("a"))  # one runs early, one waits
        said = bench.at(21, RegisterStream("b", camera("b", 1000)))
        assert said == []
        assert len(bench.engine.snapshot().streams) == 2
        assert bench.finish(24) == ["met a", "run a by 820"]
        assert bench.finish(28) == ["met a"]

    def test_a_last_turn_that_waits_counts_in_a_test(self):
        bench = Bench(camera("a", frames=1), camera("b", 1000))
        bench.frame(10, "a", "b")
        bench.at(400)
        before = bench.engine.admission_state(405 * MS).memory
        assert [turn.sizes for turn in (before.turn, *before.waiting)] == [(1,)]
        assert bench.engine.check(camera("b", 1000), 405 * MS).admitted
        assert bench.engine.check(camera("c", 1200), 405 * MS).admitted

    def test_frames_of_a_model_that_was_never_loaded_wait_for_its_turn(self):
        bench = Bench(camera("a", on_late=OnLate.SERVE))
        bench.at(0, ModelLost("a", "somebody unloaded it"))  # and it is being loaded again
        bench.frame(10, "a")
        bench.at(400)
        bench.at(450, RegisterStream("b", camera("b", 1000)))
        bench.loaded(460, "a")
        assert bench.finish(470) == ["met a"]

    def test_outcomes_balance(self):
        bench = pair()
        bench.frame(10, "a", "b")
        bench.at(400)
        bench.loaded(410, "a")
        bench.finish(422)
        view = bench.engine.snapshot()
        assert view.models["a"].outcomes[Outcome.MET] == 1
        assert view.models["b"].in_flight == 1
