"""What is sent ahead of the end of the running job, what is not, and what would go wrong (times in ms)."""

from dataclasses import replace

import pytest

from gateway.core.actions import Admitted, DeliverFrames, DropFrames, PlanStale, RetryFrames, StartJob
from gateway.core.ahead import Ahead
from gateway.core.batch import Batch
from gateway.core.course import Course
from gateway.core.device import Device
from gateway.core.events import (
    FrameCancelled,
    FramesArrived,
    JobFailed,
    JobFinished,
    ModelUnloaded,
    RegisterStream,
    RequestUnload,
    SerialModels,
    Tick,
    WorkerBack,
    WorkerLost,
)
from gateway.core.log import entry
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import LOCAL_WORKER, Job, JobDeadline, OnLate, ServiceClass
from tests.core.factories import MS, Drive, every, make_category, make_profile, make_spec, names, only


def drive(**config):
    """A device with a usual time of 4 ms; by plain EDF and without early dispatch, unless told otherwise."""
    options = {"admit_all": True, "early_dispatch": False, "send_ahead_ns": MS} | config
    profile = options.pop("profile", None) or make_profile(m=[4, 5], n=[4, 5], o=[3])
    return Drive(profile, **options)


def two(gate, *more, **streams):
    """At 40, "a" starts, and "b" is ready behind it, then `more`; the deadline of "b" is 82."""
    gate.register(0, a=make_spec(deadline=80), b=make_spec(deadline=80, model="n"), **streams)
    gate.frames(1, "a")
    gate.frames(2, "b", *more)
    return only(gate.at(40), StartJob).job


def ahead(actions):
    return [names(action.job) for action in every(actions, StartJob) if action.job.ahead]


class TestJustInTime:
    def test_the_next_job_is_sent_shortly_before_the_usual_end_of_the_running_one(self):
        gate = drive()
        first = two(gate)
        assert gate.wakeup == 43
        assert not gate.at(42.9)
        (action,) = gate.at(43)
        assert ahead([action]) == [["b"]]
        view = gate.engine.snapshot()
        assert (view.running, view.sent_ahead, view.ready) == (first, action.job, ())
        assert entry(0, action)["ahead"] is True
        assert "ahead" not in entry(0, StartJob(first))

    def test_it_starts_when_the_other_one_ends(self):
        gate = drive()
        first = two(gate)
        job = only(gate.at(43), StartJob).job
        (delivered,) = gate.finish(43.7, first)
        assert (delivered.job, delivered.started_ns) == (first, 40 * MS)
        view = gate.engine.snapshot()
        assert (view.running, view.running_since_ns, view.sent_ahead) == (job, round(43.7 * MS), None)
        delivered = only(gate.finish(47, job), DeliverFrames)
        assert (delivered.started_ns, delivered.finished_ns) == (round(43.7 * MS), 47 * MS)
        assert delivered.cause == ""

    def test_one_that_takes_too_long_is_held_to_its_own_time(self):
        gate = drive()
        first = two(gate)
        job = only(gate.at(43), StartJob).job
        assert only(gate.finish(44, first), DeliverFrames).cause == ""
        assert only(gate.finish(48, job), DeliverFrames).cause == ""
        late = two(other := drive())
        job = only(other.at(43), StartJob).job
        other.finish(44, late)
        assert only(other.finish(48.1, job), DeliverFrames).cause == "overrun"

    def test_at_most_one_is(self):
        gate = drive(send_ahead_ns=3 * MS)
        two(gate, "c", c=make_spec(deadline=80, model="o"))
        assert ahead(gate.at(42)) == [["b"]]
        assert gate.wakeup > 44
        assert not every(gate.at(43, Tick(), FramesArrived("a")), StartJob)

    def test_it_comes_no_sooner_than_half_of_the_usual_time(self):
        """Else, of two that were sent in quick succession, the second might be the first at the other end."""
        gate = drive(send_ahead_ns=100 * MS)
        two(gate)
        assert gate.wakeup == 42

    def test_behind_a_short_job_it_is_sent_when_something_else_happens(self):
        """Timers are no finer than half of its usual time."""
        gate = drive(profile=make_profile(m=[1.5], n=[4]))
        two(gate)
        assert gate.wakeup > 50
        assert ahead(gate.frames(41, "a")) == [["b"]]

    def test_what_becomes_ready_later_is_sent_then(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=80), b=make_spec(deadline=87, model="n"))
        gate.frames(1, "a", "b")
        only(gate.at(40), StartJob)
        assert not gate.at(43)
        assert gate.wakeup == 43.5
        assert ahead(gate.at(43.5)) == [["b"]]

    def test_off_by_default(self):
        gate = drive(send_ahead_ns=0)
        two(gate)
        assert gate.wakeup > 44
        assert not gate.at(43)

    def test_a_job_of_which_the_usual_time_is_not_known_is_followed_when_it_has_ended(self):
        gate = drive(admit_all=False, admission_test="sporadic", early_dispatch=True, best_effort_blocking_ns=9 * MS)
        call = make_spec(100, 1000, model="x", service_class=ServiceClass.BEST_EFFORT, internal=True, assumed_ns=9 * MS)
        gate.register(0, x=call, b=make_spec(deadline=80))
        job = only(gate.frames(35, "x"), StartJob).job
        gate.frames(36, "b")
        assert not [a for t in (40, 42, 43, 44) for a in gate.at(t)]
        assert names(only(gate.finish(45, job), StartJob).job) == ["b"]

    def test_a_frame_that_was_sent_cannot_be_cancelled(self):
        gate = drive()
        two(gate)
        gate.at(43)
        assert gate.at(43.5, FrameCancelled("b", 0)) == []


class TestOnlyWhatIsCertain:
    def test_not_while_a_frame_that_comes_now_could_get_ahead_of_it(self):
        """The windows of "c" end every 4 ms."""
        gate = drive()
        first = two(gate, c=make_spec(8, 8, model="o"))
        assert not gate.at(43)
        gate.frames(43.1, "c")
        assert names(only(gate.finish(44, first), StartJob).job) == ["c"]

    def test_without_that_rule_it_would_run_later(self, monkeypatch):
        monkeypatch.setattr(Ahead, "_first_ready", lambda self, now_ns: self._waiting.ready.first())
        gate = drive()
        first = two(gate, c=make_spec(8, 8, model="o"))
        second = only(gate.at(43), StartJob).job
        gate.frames(43.1, "c")
        gate.finish(44, first)
        late = only(gate.finish(48, second), StartJob).job
        assert (names(late), late.deadline_ns) == (["c"], round(51.1 * MS))
        assert only(gate.finish(51.5, late), DeliverFrames).outcomes == ("missed",)

    def test_a_window_that_ends_later_than_the_running_job_is_no_matter(self):
        gate = drive()
        two(gate, c=make_spec(9, 9, model="o"))
        assert ahead(gate.at(43)) == [["b"]], "the windows of c end every 4.5 ms, at 40.5 and 45"

    def test_not_while_a_batch_that_waits_could_get_ahead_of_it(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=80), b=make_spec(deadline=80, model="n"), c=make_spec(75, 88, model="o"))
        gate.frames(0, "c")
        gate.frames(30, "b")
        gate.frames(31, "a")
        running = only(gate.at(40), StartJob).job
        assert names(running) == ["b"]
        # "a" is due 111, and "c", whose window ends at 44 with the job, due 88.
        assert not gate.at(43)
        assert names(only(gate.at(44, Tick(), JobFinished(running.id)), StartJob).job) == ["c"]

    def test_not_under_the_deadlines_of_windows(self):
        gate = drive(job_deadline=JobDeadline.WINDOW)
        two(gate)
        assert not gate.at(43)

    def test_no_frame_that_may_have_to_be_given_up(self):
        """The running job usually takes 9 of its 18 ms. If it took all of them, the next would be late."""
        entries = make_profile(m=[18], n=[4]).entries
        gate = drive(profile=Profile(tuple(replace(e, p50_ms=e.p50_ms / 2) for e in entries)))
        gate.register(0, a=make_spec(deadline=40), b=make_spec(deadline=40, model="n"), s=make_spec(deadline=41))
        gate.frames(0.2, "a")
        gate.frames(0.5, "b")
        first = only(gate.at(20), StartJob).job
        assert names(first) == ["a"]
        assert not gate.at(28)
        assert not gate.at(28.9)
        assert names(only(gate.finish(29, first), StartJob).job) == ["b"]

    def test_not_behind_a_job_that_has_overrun(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=80), b=make_spec(deadline=90, model="n"))
        gate.frames(1, "a", "b")
        first = only(gate.at(40), StartJob).job
        assert ahead(gate.at(45)) == [], "it should have ended at 44"
        assert names(only(gate.finish(46, first), StartJob).job) == ["b"]

    def test_nothing_without_a_promise(self):
        gate = drive(early_dispatch=True)
        spec = make_spec(100, 500, model="n", service_class=ServiceClass.BEST_EFFORT)
        gate.register(0, a=make_spec(deadline=80), e=spec)
        gate.frames(1, "a")
        gate.frames(2, "e")
        assert not gate.at(4)
        assert gate.engine.snapshot().sent_ahead is None

    def test_only_models_that_never_execute_at_once(self):
        for models, sent in ((frozenset("mn"), True), (frozenset("n"), False), (frozenset("m"), False), (None, True)):
            gate = drive()
            gate.at(0, SerialModels(models))
            two(gate)
            assert bool(ahead(gate.at(43))) is sent

    def test_no_second_try(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=800), b=make_spec(deadline=800))
        gate.frames(1, "a", "b")
        batch = only(gate.at(400), StartJob).job
        again = gate.at(401, JobFailed(batch.id, "poison", retry=True))
        assert only(again, RetryFrames)
        assert only(again, StartJob)
        assert not gate.at(404)


class TestFullWindows:
    """With early dispatch, and nothing ready, what waits is sent before its joint."""

    def drive(self, **config):
        return drive(early_dispatch=True, profile=make_profile(m=[4, 5], o=[3]), **config)

    def test_a_full_batch_of_an_open_window_is_sent_ahead(self):
        gate = self.drive()
        gate.register(0, a=make_spec(deadline=800), c=make_spec(deadline=800, model="o"))
        first = only(gate.frames(1, "c"), StartJob).job
        gate.frames(1.5, "a", "a")
        job = only(gate.at(3), StartJob).job
        assert (job.ahead, job.early, len(job.frames)) == (True, True, 2)
        gate.finish(4, first)
        assert only(gate.finish(9, job), DeliverFrames).started_ns == 4 * MS

    def test_one_that_can_get_another_frame_is_not(self):
        gate = self.drive()
        gate.register(0, a=make_spec(deadline=800), c=make_spec(deadline=800, model="o"))
        first = only(gate.frames(1, "c"), StartJob).job
        gate.frames(1.5, "a")
        assert not gate.at(3)
        job = only(gate.frames(3.5, "a"), StartJob).job
        assert (job.ahead, len(job.frames)) == (True, 2)
        assert gate.engine.snapshot().running == first

    def test_not_while_a_window_may_end(self):
        """What is ready goes before what is not, whatever is due first."""
        gate = self.drive()
        gate.register(0, a=make_spec(deadline=800), c=make_spec(deadline=8, model="o"))
        gate.frames(1, "c")
        gate.frames(1.5, "a", "a")
        assert not gate.at(3)

    def test_not_if_a_frame_that_comes_could_be_more_urgent(self):
        gate = self.drive()
        gate.register(0, a=make_spec(deadline=800), c=make_spec(deadline=100, model="o"))
        first = only(gate.frames(1, "c"), StartJob).job
        gate.frames(1.5, "a", "a")
        assert not gate.at(3)
        gate.frames(3.5, "c")
        assert names(only(gate.finish(4, first), StartJob).job) == ["c"]

    def test_its_answer_may_come_first_and_it_was_out_of_turn_all_the_same(self):
        """A plan of before that allows for less must not be taken."""
        gate = self.drive()
        gate.register(0, a=make_spec(deadline=800), c=make_spec(deadline=800, model="o"))
        first = only(gate.frames(1, "c"), StartJob).job
        gate.frames(1.5, "a", "a")
        course, device = gate.engine._promises.course, gate.engine._device
        record, waits = course.started, Batch(9, make_category(), (0, 10 * MS))
        job = only(gate.at(3), StartJob).job
        only(gate.finish(3.8, job), DeliverFrames)
        assert device.running == first
        assert not course.follows_edf(record, 4 * MS, device, waits, 4 * MS)
        assert course.follows_edf(record, 5 * MS, device, waits, 4 * MS)


class TestEnds:
    def test_a_failure_of_the_running_job_leaves_it_next(self):
        gate = drive()
        first = two(gate)
        job = only(gate.at(43), StartJob).job
        actions = gate.at(43.5, JobFailed(first.id, "broken"))
        assert (only(actions, DropFrames).frames, every(actions, StartJob)) == (first.frames, [])
        assert gate.engine.snapshot().running == job

    def test_frames_that_are_tried_again_come_behind_it(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=800), b=make_spec(deadline=800), c=make_spec(deadline=800, model="n"))
        gate.frames(1, "a", "b", "c")
        first = only(gate.at(400), StartJob).job
        job = only(gate.at(404), StartJob).job
        actions = gate.at(404.5, JobFailed(first.id, "poison", retry=True))
        assert len(only(actions, RetryFrames).frames) == 2
        assert not every(actions, StartJob)
        assert only(gate.finish(408, job), StartJob).job.frames[0] in only(actions, RetryFrames).frames

    def test_it_may_be_refused_while_the_other_one_runs(self):
        gate = drive()
        first = two(gate)
        job = only(gate.at(43), StartJob).job
        assert only(gate.at(43.5, JobFailed(job.id, "broken")), DropFrames).frames == job.frames
        view = gate.engine.snapshot()
        assert (view.running, view.sent_ahead) == (first, None)

    def test_its_answer_may_come_first(self):
        """Of two connections that are read in one turn of a loop, either may be the first."""
        gate = drive()
        first = two(gate, "c", c=make_spec(deadline=80, model="o"))
        job = only(gate.at(43), StartJob).job
        delivered = only(gate.finish(43.8, job), DeliverFrames)
        assert (delivered.job, delivered.started_ns, delivered.cause) == (job, 43 * MS, "")
        assert not gate.at(43.9), "nothing else is sent ahead of an answer that is missing"
        actions = gate.finish(44, first)
        assert only(actions, DeliverFrames).job == first
        assert names(only(actions, StartJob).job) == ["c"]

    def test_an_answer_that_comes_first_is_never_an_overrun(self):
        gate = drive()
        first = two(gate)
        job = only(gate.at(43), StartJob).job
        delivered = only(gate.finish(60, job), DeliverFrames)
        assert (delivered.started_ns, delivered.cause) == (56 * MS, "")
        assert only(gate.finish(60, first), DeliverFrames).cause == "cold"

    def test_with_the_worker_both_are_lost(self):
        gate = drive()
        first = two(gate)
        job = only(gate.at(43), StartJob).job
        drops = every(gate.at(43.5, WorkerLost(LOCAL_WORKER)), DropFrames)
        assert [(d.frames, d.reason) for d in drops] == [(first.frames, "worker_lost"), (job.frames, "worker_lost")]
        assert gate.at(43.6, JobFailed(job.id, "late"), JobFinished(first.id)) == []
        gate.at(50, WorkerBack(LOCAL_WORKER))
        view = gate.engine.snapshot()
        assert (view.running, view.sent_ahead) == (None, None)

    def test_small_jobs_pay_back_what_they_saved_themselves(self):
        """The one that runs and the one behind it are of different sizes."""
        large, small = (8, 8, 3), (4, 4, 3)
        times = {large: [10, 20], small: [2, 4]}
        profile = Profile(
            tuple(
                ProfileEntry("m", "1", shape, "UINT8", batch, 1000, ms, ms, ms)
                for shape, table in times.items()
                for batch, ms in enumerate(table, 1)
            )
        )
        gate = drive(profile=profile, send_ahead_ns=MS)
        gate.register(0, a=make_spec(deadline=400, on_late=OnLate.SERVE))
        gate.frames(1, "a")
        gate.finish(210, only(gate.at(200), StartJob).job)
        gate.frames(211, "a")
        gate.finish(600, only(gate.at(400), StartJob).job)  # 190 to pay back
        gate.at(601, FramesArrived("a", 3))
        first = only(gate.at(800), StartJob).job
        assert (len(first.frames), first.small is not None) == (2, True)
        second = only(gate.at(803), StartJob).job
        assert (second.ahead, len(second.frames), second.small is not None) == (True, 1, True)
        gate.finish(804, first)
        assert gate.engine.snapshot().categories[0].penalty_ns == (190 - 16) * MS
        gate.finish(806, second)
        assert gate.engine.snapshot().categories[0].penalty_ns == (190 - 16 - 8) * MS


class TestModels:
    def test_a_committed_job_is_a_use_of_its_model(self):
        gate = drive()
        first = two(gate)
        gate.at(43)
        residency = gate.engine._residency
        model = residency.know("n")
        assert not residency.idle(model)
        gate.finish(44, first)
        assert not residency.idle(model)

    @pytest.mark.parametrize(("model", "sent"), [("x", False), ("", True)])
    def test_nothing_is_sent_while_models_come_or_go(self, model, sent):
        gate = drive()
        two(gate)
        gate.at(41, RequestUnload(model) if model else Tick())
        assert bool(ahead(gate.at(43))) is sent

    def test_nothing_while_a_batch_waits_for_a_model_that_is_not_there(self):
        gate = drive()
        gate.at(0, RequestUnload("o"))
        gate.at(0, ModelUnloaded("o"))
        two(gate, c=make_spec(deadline=200, model="o"))
        assert ahead(gate.at(43)) == [["b"]]


class TestByAPlan:
    def drive(self):
        """The exact test, and its guard."""
        return Drive(make_profile(m=[4], n=[6]), early_dispatch=False, send_ahead_ns=MS)

    def test_the_first_slot_is_sent_ahead(self):
        gate = self.drive()
        gate.register(0, a=make_spec(deadline=80, frames=1), b=make_spec(deadline=80, model="n", frames=1))
        gate.frames(0, "a", "b")
        first = only(gate.at(40), StartJob).job
        assert names(first) == ["a"]
        assert ahead(gate.at(43)) == [["b"]]
        assert gate.engine.admission_state(43 * MS).free_ns == 50 * MS
        gate.finish(44, first)
        assert gate.engine.admission_state(44 * MS).free_ns == 50 * MS


class TestAdmission:
    """Of streams whose frames have all come the test knows only the jobs: J runs until 60, L takes 20."""

    @pytest.fixture
    def gate(self):
        """J has begun at 0, and L is ready behind it, due at 501."""
        tables = {"j": [60], "l": [20], "c": [1]}
        gate = Drive(make_profile(**tables), early_dispatch=False, admission_test="sporadic", send_ahead_ns=30 * MS)
        long = {"j": make_spec(deadline=600, model="j", frames=1), "l": make_spec(deadline=1000, model="l", frames=1)}
        assert all(verdict.admitted for verdict in gate.register(-1500, **long))
        gate.frames(-499, "l")
        gate.frames(-299, "j")
        assert names(only(gate.at(0), StartJob).job) == ["j"]
        return gate

    #: Its first window ends while J runs.
    soon = make_spec(100, 42, model="c")

    def plan(self, gate, t, spec):
        plan = gate.engine.plan(spec, t * MS, "c")
        assert plan.verdict.admitted
        return RegisterStream("c", spec, plan)

    def test_the_record_has_it(self, gate):
        assert gate.engine.admission_state(29 * MS).free_ns == 60 * MS
        assert ahead(gate.at(30)) == [["l"]]
        state = gate.engine.admission_state(30 * MS)
        assert (state.free_ns, state.ready) == (80 * MS, ())
        gate.finish(50, gate.engine.snapshot().running)
        assert gate.engine.admission_state(51 * MS).free_ns == 70 * MS

    def test_a_plan_from_before_is_void_if_a_frame_of_its_stream_could_have_come_first(self, gate):
        register = self.plan(gate, 29, self.soon)
        gate.at(30)
        assert gate.at(31, register) == [PlanStale("c", 60 * MS)]
        gate.finish(60, gate.engine.snapshot().running)
        assert only(gate.at(60, RegisterStream("c", self.soon)), Admitted)

    def test_taken_all_the_same_it_would_break_its_promise(self, gate, monkeypatch):
        monkeypatch.setattr(Course, "comes_first", lambda *_: True)
        register = self.plan(gate, 29, self.soon)
        gate.at(30)
        only(gate.at(31, register), Admitted)
        gate.frames(31, "c")
        gate.at(50)
        gate.finish(60, gate.engine.snapshot().running)
        assert only(gate.at(73), DropFrames).reason == "expired"

    def test_a_plan_from_after_it_knows_it(self, gate):
        gate.at(30)
        assert not gate.engine.check(self.soon, 30 * MS).admitted, "its first frame may be due at 72, and L ends at 80"
        assert only(gate.at(32, self.plan(gate, 31, make_spec(200, 120, model="c"))), Admitted)

    def test_a_plan_from_before_holds_if_nothing_of_its_stream_could_have_come_first(self, gate):
        register = self.plan(gate, 29, make_spec(2000, 1500, model="c"))
        gate.at(30)
        assert only(gate.at(32, register), Admitted)

    def test_after_a_void_plan_nothing_is_sent_ahead_until_another_one_can_be_there(self, gate):
        register = self.plan(gate, 29, self.soon)
        gate.at(30)
        gate.at(31, register)
        assert gate.engine._promises.course.calm_ns == 64 * MS


def test_a_stray_counts_from_when_it_begins():
    """Until then the one before it is in the way of plans, which may be longer."""
    course, device = Course(), Device("w")
    course.start(0, 100, None)
    course.started += 1  # sent ahead
    device.start(Job(0, make_category(), (), 0, 0, 100), 0)
    assert not course.follows_edf(0, 10, device, None, 1)
    device.stop(0, 50)
    course.begin(5, None)
    assert course.follows_edf(0, 10, device, None, 51)
