"""The plan in force: places, what has none, and putting another plan in force (times in ms)."""

from dataclasses import replace

import pytest

from gateway.core.actions import AcceptFrames, Admitted, DropFrames, PlanStale, Rejected, StartJob, WindowWidened
from gateway.core.admission import widen
from gateway.core.events import (
    CloseStream,
    FrameCancelled,
    FramesArrived,
    JobFinished,
    RegisterStream,
    Tick,
    WidenWindows,
    WorkerBack,
    WorkerLost,
)
from gateway.core.types import LOCAL_WORKER, OnLate, Outcome, ServiceClass
from tests.core.factories import MS, Drive, every, make_category, make_profile, make_spec, names, only
from tests.properties.rig import check_slots


def drive(**config):
    return Drive(make_profile(m=[4, 5, 6, 7], n=[10, 12], o=[3], tiny=[1]), **({"early_dispatch": False} | config))


def slots_of(gate):
    guard = gate.engine._waiting.guard
    return None if guard is None else [(s.release_ns / MS, s.size, s.deadline_ns / MS) for s in guard.slots]


def spare_of(gate):
    return [batch.id for batch in gate.engine._waiting.batches.values() if batch.slot is None]


def spec(period=100, deadline=40, frames=3, **fields):
    return make_spec(period, deadline, frames=frames, **fields)


class TestPlaces:
    def test_an_exact_admission_puts_its_plan_in_force(self):
        gate = drive()
        gate.register(0, a=spec(start_in=5))
        assert slots_of(gate) == [(20, 1, 45), (120, 1, 145), (220, 1, 245)]

    def test_it_goes_with_the_last_stream(self):
        gate = drive()
        gate.register(0, a=spec())
        gate.at(1, CloseStream("a"))
        assert slots_of(gate) is None

    def test_a_sporadic_admission_takes_it_away(self):
        gate = drive()
        gate.register(0, a=spec())
        (verdict,) = gate.register(1, b=spec(frames=None, model="o"))
        assert verdict.test == "sporadic"
        assert slots_of(gate) is None

    @pytest.mark.parametrize("config", [{"guard": False}, {"admission_test": "sporadic"}])
    def test_without_the_guard_or_an_exact_test_there_is_none(self, config):
        gate = drive(**config)
        assert all(verdict.admitted for verdict in gate.register(0, a=spec()))
        assert slots_of(gate) is None

    def test_the_job_says_when_the_plan_lets_it_end(self):
        gate = drive(early_dispatch=True)
        gate.register(0, a=spec(start_in=5))
        job = only(gate.frames(5, "a"), StartJob).job
        assert (job.early, job.planned_end_ns) == (True, 24 * MS)
        gate.finish(9, job)
        assert slots_of(gate) == [(120, 1, 145), (220, 1, 245)]

    def test_a_slot_shrinks_to_what_has_come(self):
        gate = drive()
        gate.register(0, a=spec(start_in=5), b=spec(start_in=6, deadline=60), long=spec(model="n", start_in=1))
        assert slots_of(gate)[:2] == [(20, 1, 41), (20, 2, 45)]
        gate.frames(1, "long")
        gate.frames(6, "b")
        gate.at(20)
        assert slots_of(gate)[0] == (20, 1, 66), "no earlier than its frames are due"

    def test_a_slot_without_frames_goes_at_its_joint(self):
        gate = drive()
        gate.register(0, a=spec(start_in=5))
        gate.at(20)
        assert slots_of(gate)[0][0] == 120

    def test_early_dispatch_leaves_the_rest_of_the_slot(self):
        gate = drive(early_dispatch=True)
        gate.register(0, a=spec(start_in=5), b=spec(start_in=12))
        assert slots_of(gate)[0] == (20, 2, 45)
        job = only(gate.frames(5, "a"), StartJob).job
        assert slots_of(gate)[0] == (20, 1, 45)
        gate.finish(9, job)
        assert names(only(gate.frames(12, "b"), StartJob).job) == ["b"]
        assert slots_of(gate)[0][0] == 120

    def test_a_cancelled_frame_gives_its_place_up(self):
        gate = drive()
        gate.register(0, a=spec(start_in=5), b=spec(start_in=12))
        gate.frames(5, "a")
        gate.at(6, FrameCancelled("a", 0))
        assert slots_of(gate)[0] == (20, 1, 45)
        gate.frames(12, "b")
        gate.at(13, FrameCancelled("b", 0))
        assert slots_of(gate)[0][0] == 120

    def test_a_frame_late_within_its_window_has_its_place(self):
        gate = drive()
        gate.register(0, a=spec(start_in=5), b=spec(start_in=5))
        gate.frames(19, "a")
        gate.frames(19, "b")
        assert slots_of(gate)[0] == (20, 2, 45)
        assert spare_of(gate) == []

    def test_a_frame_early_within_its_window_moves_the_deadline(self):
        gate = drive()
        gate.register(0, a=spec(start_in=5))
        gate.frames(2, "a")
        assert slots_of(gate)[0] == (20, 1, 42)

    def test_a_category_whose_streams_have_all_come_expects_nothing(self):
        gate = drive()
        gate.register(0, a=spec(start_in=5), long=spec(model="n", start_in=1))
        gate.frames(1, "long")
        gate.frames(5, "a")
        gate.at(6, CloseStream("a"))
        assert [release for release, _, _ in slots_of(gate)] == [20, 20, 120, 220]


class TestBeyond:
    """Frames for which the plan has no place."""

    def test_the_last_slot_grows_if_everything_still_holds(self):
        gate = drive()
        gate.register(0, a=spec(start_in=5))
        gate.frames(5, "a", "a")
        assert slots_of(gate)[0] == (20, 2, 45)
        assert spare_of(gate) == []

    def test_or_another_slot_is_made(self):
        gate = drive()
        gate.register(0, a=spec(start_in=50))
        gate.frames(5, "a")
        assert slots_of(gate)[0] == (20, 1, 45)
        job = only(gate.at(20), StartJob).job
        assert job.planned_end_ns is None

    def test_else_it_has_no_promise(self):
        gate = Drive(make_profile(m=[10, 20, 29]), early_dispatch=False)
        gate.register(0, a=spec(100, 40, start_in=1), b=spec(100, 40, start_in=2))
        gate.frames(1, "a")
        gate.frames(2, "b")
        frame = only(gate.frames(3, "a"), AcceptFrames).frames[0]
        assert spare_of(gate) == [frame.job] == [1]
        assert len(gate.frames(4, "a")) == 1
        assert spare_of(gate) == [1], "spare frames of a window share a batch"

    def test_what_has_no_promise_runs_when_it_harms_nobody(self):
        gate = Drive(make_profile(m=[10, 20, 29]), early_dispatch=False)
        gate.register(0, a=spec(100, 40, start_in=1), b=spec(100, 40, start_in=2))
        gate.frames(1, "a")
        gate.frames(2, "b")
        gate.frames(3, "a")
        job = only(gate.at(20), StartJob).job
        assert [names(ready) for ready in gate.engine.snapshot().ready] == [["a"]]
        late = only(gate.finish(33, job), StartJob).job
        assert (names(late), late.planned_end_ns) == (["a"], None)

    def test_and_expires_when_it_cannot_be_in_time(self):
        gate = Drive(make_profile(m=[10, 20, 29]), early_dispatch=False)
        gate.register(0, a=spec(100, 40, start_in=1), b=spec(100, 40, start_in=2))
        gate.frames(1, "a")
        gate.frames(2, "b")
        gate.frames(3, "a")
        job = only(gate.at(20), StartJob).job
        assert not every(gate.finish(40, job), StartJob)
        assert gate.wakeup == 43
        assert only(gate.at(43), DropFrames).outcome is Outcome.EXPIRED

    def test_unless_it_is_to_be_served_late(self):
        gate = Drive(make_profile(m=[10, 20, 29]), early_dispatch=False)
        gate.register(0, a=spec(100, 40, start_in=1, on_late=OnLate.SERVE), b=spec(100, 40, start_in=2))
        gate.frames(1, "a")
        gate.frames(2, "b")
        gate.frames(3, "a")
        job = only(gate.at(20), StartJob).job
        assert names(only(gate.finish(40, job), StartJob).job) == ["a"]


class TestWaitingOnPurpose:
    """A long job is ready, but a short one with an early deadline comes first by the plan."""

    def test_the_next_wake_up_is_the_next_release(self):
        gate = drive(early_dispatch=True)
        gate.register(0, long=spec(200, 100, model="n", start_in=40), short=spec(200, 14, model="o", start_in=36))
        # The short frame, due at 50, is late: its joint is at 42. Until then the device must be free at 47.
        assert not every(gate.frames(40, "long"), StartJob)
        assert gate.wakeup == 42
        assert names(only(gate.at(42), StartJob).job) == ["long"]

    def test_the_first_slot_starts_even_if_it_is_not_the_edf_head(self):
        # Planned by EDF: k 15-20, l 20-30 due 32. Without x, k is due at 33, after l.
        gate = Drive(make_profile(k=[4, 5], l=[10]), early_dispatch=False)
        gate.register(0, x=spec(100, 30, model="k", start_in=1), y=spec(100, 30, model="k", start_in=3))
        gate.register(0, z=spec(100, 30, model="l", start_in=2))
        gate.frames(2, "z")
        gate.frames(3, "y")
        job = only(gate.at(15), StartJob).job
        assert (names(job), job.deadline_ns) == (["y"], 33 * MS)
        assert [ready.deadline_ns for ready in gate.engine.snapshot().ready] == [32 * MS]


class TestOverrun:
    def test_slots_go_on_in_their_order_and_nothing_else_starts(self):
        gate = drive(early_dispatch=True)
        gate.register(
            0,
            a=spec(40, 20, start_in=1, on_late=OnLate.SERVE),
            b=spec(40, 60, model="n", start_in=2, on_late=OnLate.SERVE),
        )
        job = only(gate.frames(1, "a"), StartJob).job
        gate.frames(2, "b")
        gate.frames(41, "a")
        actions = gate.finish(59, job)
        check_slots(gate.engine, 59 * MS, overrun=True)
        assert names(only(actions, StartJob).job) == ["b"], "planned first"
        assert names(only(gate.finish(69, only(actions, StartJob).job), StartJob).job) == ["a"]

    def test_a_lost_worker_leaves_the_plan_in_order(self):
        gate = drive()
        gate.register(0, a=spec(40, 20, start_in=1), b=spec(40, 60, model="n", start_in=2))
        gate.at(1, WorkerLost(LOCAL_WORKER), FramesArrived("a"))
        gate.frames(2, "b")
        gate.at(50)
        check_slots(gate.engine, 50 * MS, overrun=True)
        assert names(only(gate.at(50, WorkerBack(LOCAL_WORKER)), StartJob).job) == ["b"]


class TestInstallation:
    def planned(self, gate, t, name, wanted):
        return gate.engine.plan(wanted, round(t * MS), name)

    def test_a_plan_of_a_moment_ago_is_taken(self):
        gate = drive()
        gate.register(0, a=spec(40, 40, start_in=5))
        wanted = spec(100, 60, model="n", start_in=20)
        plan = self.planned(gate, 1, "b", wanted)
        gate.frames(5, "a")
        assert only(gate.at(6, RegisterStream("b", wanted, plan)), Admitted).verdict == plan.verdict
        assert slots_of(gate)[0] == (20, 1, 45)
        assert gate.engine.snapshot().streams[1].next_expected_ns == 21 * MS
        assert gate.engine.snapshot().categories[1].next_joint_ns == 31 * MS
        check_slots(gate.engine, 6 * MS)
        job = only(gate.at(20), StartJob).job
        assert (names(job), job.planned_end_ns) == (["a"], 24 * MS)

    def test_reservations_used_meanwhile_are_used(self):
        gate = Drive(make_profile(m=[10, 20, 29], o=[1]), early_dispatch=False)
        gate.register(0, a=spec(100, 40, start_in=2), b=spec(100, 40, start_in=4))
        wanted = spec(100, 60, model="o", start_in=70)
        plan = self.planned(gate, 1, "c", wanted)
        gate.frames(2, "a")
        only(gate.at(3, RegisterStream("c", wanted, plan)), Admitted)
        gate.frames(3.5, "a")
        gate.frames(4, "b")
        assert spare_of(gate) == [1], "the second frame of a has not taken the place of b's"
        assert names(only(gate.at(20), StartJob).job) == ["a", "b"]

    def test_jobs_that_have_run_meanwhile_are_dropped(self):
        gate = drive(early_dispatch=True)
        gate.register(0, a=spec(40, 40, start_in=5))
        wanted = spec(100, 60, model="n", start_in=40)
        plan = self.planned(gate, 1, "b", wanted)
        gate.finish(9, only(gate.frames(5, "a"), StartJob).job)
        only(gate.at(25, RegisterStream("b", wanted, plan)), Admitted)
        assert [release for release, _, _ in slots_of(gate)][:2] == [60, 61]

    def test_not_if_anything_was_committed(self):
        gate = drive()
        wanted = spec(100, 60, start_in=20)
        plan = self.planned(gate, 0, "b", wanted)
        gate.register(1, a=spec(model="o"))
        assert gate.at(2, RegisterStream("b", wanted, plan)) == [PlanStale("b")]
        gate.at(3, CloseStream("a"))
        plan = self.planned(gate, 3, "b", wanted)
        gate.register(4, c=spec(model="o"))
        gate.at(5, CloseStream("c"))
        assert gate.at(5, RegisterStream("b", wanted, plan)) == [PlanStale("b")], "a stream came and went"

    def test_not_after_the_first_joint_that_it_moves(self):
        gate = drive()
        gate.register(0, a=spec(100, 60, start_in=50))
        wanted = spec(100, 20, start_in=20)
        plan = self.planned(gate, 1, "b", wanted)
        assert [(w.joint_ns, w.changed) for w in plan.windows] == [(11 * MS, True)]
        assert gate.at(11, RegisterStream("b", wanted, plan)) == [PlanStale("b")]
        assert gate.engine.snapshot().categories[0].window_ns == 30 * MS
        plan = self.planned(gate, 11, "b", wanted)
        only(gate.at(12, RegisterStream("b", wanted, plan)), Admitted)
        assert gate.engine.snapshot().categories[0].window_ns == 10 * MS
        assert gate.engine.snapshot().categories[0].next_joint_ns == 21 * MS

    def test_not_if_the_device_is_not_free_in_time(self):
        gate = drive()
        gate.register(0, a=spec(100, 24, start_in=0))
        wanted = spec(100, 12, model="o", start_in=12)
        plan = self.planned(gate, 1, "b", wanted)
        assert plan.verdict.admitted
        stretched = replace(plan, slots=replace(plan.slots, latest=plan.slots.latest - 19 * MS))
        assert gate.at(2, RegisterStream("b", wanted, stretched)) == [PlanStale("b")]
        only(gate.at(2, RegisterStream("b", wanted, plan)), Admitted)

    def test_not_if_a_frame_came_that_has_no_place_in_it(self):
        gate = drive()
        gate.register(0, a=spec(100, 40, start_in=5))
        wanted = spec(100, 60, model="n", start_in=20)
        plan = self.planned(gate, 1, "b", wanted)
        gate.frames(5, "a", "a")
        assert gate.at(6, RegisterStream("b", wanted, plan)) == [PlanStale("b")]

    def test_not_if_it_cannot_be_told_which_frames_it_knows(self):
        gate = drive()
        gate.register(0, a=spec(100, 40, start_in=5))
        wanted = spec(100, 60, model="n", start_in=20)
        plan = self.planned(gate, 5, "b", wanted)
        gate.frames(5, "a")
        assert gate.at(6, RegisterStream("b", wanted, plan)) == [PlanStale("b")]

    def test_a_refusal_is_taken_only_while_it_is_current(self):
        gate = drive()
        wanted = make_spec(100, 3, frames=2)
        plan = self.planned(gate, 0, "b", wanted)
        assert only(gate.at(1, RegisterStream("b", wanted, plan)), Rejected).verdict == plan.verdict
        gate.register(2, a=spec())
        assert gate.at(3, RegisterStream("b", wanted, plan)) == [PlanStale("b")]


class TestWidening:
    def gate(self, **config):
        gate = drive(**config)
        gate.register(0, tight=spec(50, 20, frames=1, start_in=1), wide=spec(50, 60, frames=4, start_in=7))
        return gate

    def test_it_is_offered_when_the_tightest_stream_has_left(self):
        gate = self.gate()
        assert not gate.engine.can_widen()
        gate.at(2, CloseStream("tight"))
        assert gate.engine.can_widen()
        assert gate.at(3, WidenWindows()) == [WindowWidened(make_category(), 30 * MS)]
        assert not gate.engine.can_widen()

    @pytest.mark.parametrize("later", [False, True])
    def test_it_begins_with_the_next_window(self, later):
        gate = self.gate()
        gate.at(2, CloseStream("tight"))
        plan = widen(gate.engine.admission_state(3 * MS)) if later else None
        only(gate.at(4, WidenWindows(plan)), WindowWidened)
        assert gate.engine.snapshot().categories[0].next_joint_ns == 10 * MS
        gate.frames(7, "wide")
        job = only(gate.at(10), StartJob).job
        assert job.release_ns == 10 * MS
        assert gate.engine.snapshot().categories[0].next_joint_ns == 40 * MS
        gate.finish(14, job)
        gate.frames(57, "wide")
        assert only(gate.at(70), StartJob).job.release_ns == 70 * MS

    def test_a_stale_plan_changes_nothing(self):
        gate = self.gate()
        gate.at(2, CloseStream("tight"))
        plan = widen(gate.engine.admission_state(3 * MS))
        assert gate.at(10, WidenWindows(plan)) == [PlanStale("")], "the joint has passed"
        assert gate.engine.can_widen()
        plan = widen(gate.engine.admission_state(11 * MS))
        gate.register(12, other=spec(model="o"))
        assert gate.at(13, WidenWindows(plan)) == [PlanStale("")]
        assert gate.engine.snapshot().categories[0].window_ns == 10 * MS

    def test_a_refusal_is_remembered_until_something_changes(self):
        gate = Drive(make_profile(m=[7], o=[1]), early_dispatch=False)
        gate.register(0, leaves=make_spec(10, 10, frames=1, start_in=3))
        gate.register(0, stays=make_spec(13, 12, frames=4, start_in=11))
        gate.at(1, CloseStream("leaves"))
        assert gate.engine.can_widen()
        assert gate.at(2, WidenWindows()) == []
        assert not gate.engine.can_widen()
        gate.register(3, other=spec(model="o", deadline=400, start_in=300))
        assert gate.engine.can_widen()

    def test_it_works_under_plain_edf_too(self):
        gate = drive(admission_test="sporadic")
        gate.register(0, tight=spec(50, 20, frames=1, start_in=1), wide=spec(50, 60, frames=4, start_in=7))
        gate.at(2, CloseStream("tight"))
        only(gate.at(3, WidenWindows()), WindowWidened)
        assert gate.engine.snapshot().categories[0].window_ns == 30 * MS


class TestBestEffort:
    def idle(self, deadline=5000, **fields):
        return make_spec(100, deadline, **({"model": "n", "service_class": ServiceClass.BEST_EFFORT} | fields))

    def test_it_is_admitted_without_a_test_and_leaves_the_plan_alone(self):
        gate = drive()
        gate.register(0, a=spec(start_in=5))
        before = slots_of(gate)
        (verdict,) = gate.register(1, idle=self.idle())
        assert (verdict.admitted, verdict.test) == (True, "none")
        assert slots_of(gate) == before
        assert gate.engine.snapshot().categories[1].window_ns == 1000 * MS

    def test_it_has_the_device_to_itself(self):
        gate = drive(early_dispatch=True)
        gate.register(0, idle=self.idle())
        job = only(gate.at(1, FramesArrived("idle", 3)), StartJob).job
        assert (len(job.frames), job.early) == (2, True)

    def test_without_early_dispatch_it_waits_for_its_joint(self):
        gate = drive(best_effort_window_ns=30 * MS)
        gate.register(0, idle=self.idle())
        assert not every(gate.frames(1, "idle"), StartJob)
        assert names(only(gate.at(30), StartJob).job) == ["idle"]

    def test_promised_work_comes_first_the_oldest_frame_next(self):
        gate = drive(early_dispatch=True)
        gate.register(0, a=spec(100, 60, start_in=3), one=self.idle(), two=self.idle(model="o"))
        job = only(gate.frames(1, "two"), StartJob).job
        gate.frames(2, "one")
        gate.frames(3, "a", "two")
        job = only(gate.finish(4, job), StartJob).job
        assert names(job) == ["a"]
        job = only(gate.finish(8, job), StartJob).job
        assert names(job) == ["one"]
        assert names(only(gate.finish(18, job), StartJob).job) == ["two"]

    def test_it_starts_only_if_every_promise_holds(self):
        gate = drive(early_dispatch=True)
        gate.register(0, a=spec(100, 20, start_in=12), idle=self.idle())
        # a is due at 32 and takes 4, so the device must be free at 28; at its joint, 20, it is missing.
        job = only(gate.frames(17.5, "idle"), StartJob).job
        assert not every(gate.finish(18, job), StartJob)
        assert not every(gate.frames(18.5, "idle"), StartJob)
        assert gate.wakeup == 20
        assert only(gate.at(20), StartJob).job.category.service_class is ServiceClass.BEST_EFFORT

    def test_it_expires_like_any_other(self):
        gate = drive(best_effort_window_ns=100 * MS)
        gate.register(0, idle=self.idle(deadline=50))
        gate.frames(1, "idle")
        assert only(gate.at(51), DropFrames).outcome is Outcome.EXPIRED

    def test_under_the_sporadic_test_its_batches_are_bounded(self):
        gate = drive(early_dispatch=True)
        gate.register(0, a=make_spec(100, 80, model="o"))
        (verdict,) = gate.register(0, idle=self.idle(model="m"))
        assert verdict.test == "sporadic"
        job = only(gate.frames(1, "a"), StartJob).job
        frames = only(gate.at(2, FramesArrived("idle", 3)), AcceptFrames).frames
        assert len({frame.job for frame in frames}) == 3, "one frame of m takes 4, as long as the test allows"
        gate.frames(3, "a")
        job = only(gate.finish(4, job), StartJob).job
        assert names(job) == ["a"]
        assert names(only(gate.finish(7, job), StartJob).job) == ["idle"]

    def test_it_has_no_bound_when_nothing_is_promised_any_more(self):
        gate = drive(early_dispatch=True)
        gate.register(0, a=make_spec(100, 80, model="o"), idle=self.idle(model="m"))
        gate.at(1, CloseStream("a"))
        assert len(only(gate.at(2, FramesArrived("idle", 3)), StartJob).job.frames) == 3


def test_a_plan_that_has_slept_for_hours_wakes_up_at_once():
    gate = drive(admission_test="exact")
    gate.register(0, a=make_spec(40, 40, start_in=5), b=make_spec(20, 80, model="n", start_in=1))
    assert gate.engine._waiting.guard is not None
    later = 4 * 3600 * 1000
    gate.frames(later + 5, "a")
    check_slots(gate.engine, (later + 5) * MS)
    assert spare_of(gate) == []
    assert len(slots_of(gate)) < 200
    job = only(gate.at(later + 20, Tick()), StartJob).job
    assert (names(job), job.planned_end_ns) != ([], None)
    gate.at(later + 24, JobFinished(job.id))


class TestSpareFramesWithoutAPlan:
    """The plan may go while frames wait that it had no place for; the sporadic test knows nothing of them."""

    def gate(self, blocking):
        """The promised job of m ends early; a spare frame of m is there, takes 10 and is due at 43."""
        gate = Drive(make_profile(m=[10, 20, 29], o=[1]), early_dispatch=False)
        gate.register(0, a=spec(100, 40, start_in=1), b=spec(100, 40, start_in=2))
        gate.frames(1, "a")
        gate.frames(2, "b")
        gate.frames(3, "a")
        assert spare_of(gate) == [1]
        gate.engine._waiting.follow(None, (), blocking * MS)
        return gate, only(gate.at(20), StartJob).job

    def test_they_run_if_the_test_allows_for_them(self):
        gate, job = self.gate(blocking=10)
        assert names(job) == ["a", "b"]
        assert names(only(gate.finish(33, job), StartJob).job) == ["a"]

    def test_else_they_expire(self):
        gate, job = self.gate(blocking=9)
        assert not every(gate.finish(33, job), StartJob)
        assert only(gate.at(43), DropFrames).outcome is Outcome.EXPIRED

    def test_they_run_when_nothing_is_promised_any_more(self):
        gate, job = self.gate(blocking=9)
        gate.finish(30, job)
        assert names(only(gate.at(31, CloseStream("a"), CloseStream("b")), StartJob).job) == ["a"]
