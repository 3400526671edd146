"""Windows, joints and job deadlines: Theorem 1 and its edges (times in ms)."""

import pytest

from gateway.core.actions import AcceptFrames, DeliverFrames, RefuseFrames, StartJob
from gateway.core.events import CloseStream, FramesArrived
from gateway.core.types import JobDeadline, Outcome
from tests.core.factories import MS, Drive, every, make_profile, make_spec, names, only


def drive(batch=4, **config):
    return Drive(make_profile(m=[2] * batch), **({"early_dispatch": False} | config))


def joint_of(gate):
    return gate.engine.snapshot().categories[0].next_joint_ns / MS


def test_the_first_window_opens_at_admission_and_is_half_the_deadline():
    gate = drive()
    gate.register(7, a=make_spec(deadline=50))
    assert gate.engine.snapshot().categories[0].window_ns == 25 * MS
    assert joint_of(gate) == 32


def test_frames_of_a_window_are_one_job_released_at_its_joint():
    gate = drive()
    gate.register(0, a=make_spec(deadline=20), b=make_spec(deadline=40))
    gate.frames(3, "a", "b")
    gate.frames(3.5, "b")
    job = only(gate.at(10), StartJob).job
    assert names(job) == ["a", "b", "b"]
    assert (job.release_ns, job.early) == (10 * MS, False)
    assert job.execution_ns == 2 * MS


def test_windows_are_half_open():
    gate = drive()
    gate.register(0, a=make_spec(deadline=20), b=make_spec(deadline=20))
    gate.frames(9.999999, "a")
    started = only(gate.frames(10, "b"), StartJob).job
    assert names(started) == ["a"], "a frame at the joint belongs to the next window"
    gate.finish(12, started)
    assert names(only(gate.at(20), StartJob).job) == ["b"]


def test_joints_stay_on_the_grid_when_the_wake_up_is_late():
    gate = drive()
    gate.register(0, a=make_spec(deadline=20))
    gate.frames(3, "a")
    late = only(gate.at(14), StartJob).job
    assert late.release_ns == 10 * MS
    assert joint_of(gate) == 20


def test_a_frame_that_wakes_the_engine_late_misses_the_closed_window():
    gate = drive()
    gate.register(0, a=make_spec(deadline=20), b=make_spec(deadline=20))
    gate.frames(3, "a")
    actions = gate.frames(13, "b")
    assert names(only(actions, StartJob).job) == ["a"]
    gate.finish(14, only(actions, StartJob).job)
    assert only(gate.at(20), StartJob).job.release_ns == 20 * MS


def test_empty_windows_make_no_job_and_need_no_wake_up():
    gate = drive()
    gate.register(0, a=make_spec(deadline=20))
    assert gate.wakeup is None
    gate.frames(1003, "a")
    assert gate.wakeup == 1010
    assert only(gate.at(1010), StartJob).job.release_ns == 1010 * MS


def test_an_overfull_window_is_split_in_arrival_order_under_one_deadline():
    gate = drive(batch=2)
    gate.register(0, a=make_spec(deadline=40), b=make_spec(deadline=20))
    gate.frames(2, "a", "a", "a")
    gate.frames(5, "a", "b")
    first = only(gate.at(10), StartJob).job
    rest = gate.engine.snapshot().ready
    jobs = [first, *rest]
    assert [names(job) for job in jobs] == [["a", "a"], ["a", "a"], ["b"]]
    assert {job.deadline_ns for job in jobs} == {25 * MS}, "the earliest of the whole window: b's"
    assert [job.id for job in jobs] == [0, 1, 2]


def test_the_papers_deadline_is_joint_plus_window():
    gate = drive(job_deadline=JobDeadline.WINDOW)
    gate.register(0, a=make_spec(deadline=20), b=make_spec(deadline=40))
    gate.frames(5, "b")
    assert only(gate.at(10), StartJob).job.deadline_ns == 20 * MS


def test_frame_deadlines_are_never_earlier_than_the_papers():
    jobs = {}
    for mode in JobDeadline:
        gate = drive(job_deadline=mode)
        gate.register(0, a=make_spec(deadline=20), b=make_spec(deadline=40))
        gate.frames(3, "a", "b")
        jobs[mode] = only(gate.at(10), StartJob).job.deadline_ns
    assert jobs[JobDeadline.FRAME] == 23 * MS >= jobs[JobDeadline.WINDOW] == 20 * MS


class TestShrinking:
    def test_a_tighter_stream_shrinks_the_open_window_at_once(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=100))
        gate.frames(5, "a")
        gate.register(10, b=make_spec(deadline=30))
        assert joint_of(gate) == 25
        assert gate.wakeup == 25
        assert only(gate.at(25), StartJob).job.release_ns == 25 * MS
        assert joint_of(gate) == 40

    def test_the_joint_never_moves_away(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=100))
        gate.register(40, b=make_spec(deadline=30))
        assert joint_of(gate) == 50

    def test_a_wider_stream_changes_nothing(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=30))
        gate.register(4, b=make_spec(deadline=100))
        assert joint_of(gate) == 15

    def test_after_idle_windows_the_grid_is_brought_up_to_date_first(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=20))
        gate.register(37, b=make_spec(deadline=10))
        assert joint_of(gate) == 40, "the window [30, 40) was open; its joint is nearer than 37 + 5"
        gate.frames(38, "b")
        assert gate.wakeup == 40
        gate.at(40)
        assert joint_of(gate) == 45

    def test_the_papers_deadline_uses_the_narrowest_window_since_it_opened(self):
        gate = drive(job_deadline=JobDeadline.WINDOW)
        gate.register(0, a=make_spec(deadline=100))
        gate.frames(5, "a")
        gate.register(10, b=make_spec(deadline=30))
        assert only(gate.at(25), StartJob).job.deadline_ns == 40 * MS


class TestGrowth:
    """Theory, section 1: a job's deadline later than a frame's own, when W grows as the tight stream leaves."""

    def leave(self, mode):
        gate = drive(job_deadline=mode)
        gate.register(17, tight=make_spec(deadline=40), wide=make_spec(deadline=60))
        gate.frames(119, "tight")
        gate.at(120, CloseStream("tight"))
        return gate

    @pytest.mark.parametrize("mode", JobDeadline)
    def test_the_deadline_of_the_last_frame_holds(self, mode):
        gate = self.leave(mode)
        job = only(gate.at(137), StartJob).job
        assert job.release_ns == 137 * MS
        assert job.deadline_ns <= 159 * MS, "joint 137 + the grown W 30 would be 167"

    def test_the_window_keeps_its_width(self):
        gate = self.leave(JobDeadline.FRAME)
        gate.finish(139, only(gate.at(137), StartJob).job)
        assert [stream.stream_id for stream in gate.engine.snapshot().streams] == ["wide"]
        assert gate.engine.snapshot().categories[0].window_ns == 20 * MS
        assert joint_of(gate) == 157

    def test_a_late_last_frame_is_not_taken(self):
        gate = self.leave(JobDeadline.FRAME)
        assert only(gate.frames(125, "tight"), RefuseFrames).reason == "closed"

    def test_a_category_without_streams_starts_anew(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=20))
        gate.at(5, CloseStream("a"))
        assert gate.engine.snapshot().categories == ()
        gate.register(13, b=make_spec(deadline=60))
        assert joint_of(gate) == 43


def test_arrival_is_when_the_engine_sees_the_frame():
    """Theory, section 1: stamped 69, window closed at 70, D=20 would give 89 < 90."""
    gate = drive()
    gate.register(0, a=make_spec(deadline=20))
    (frame,) = only(gate.frames(70, "a"), AcceptFrames).frames
    assert (frame.arrival_ns, frame.deadline_ns) == (70 * MS, 90 * MS)
    job = only(gate.at(80), StartJob).job
    assert job.deadline_ns == 90 * MS


def test_a_frame_at_the_joint_waits_a_whole_window_and_is_met_at_two():
    gate = drive()
    gate.register(0, a=make_spec(deadline=20))
    gate.frames(10, "a")
    job = only(gate.at(20), StartJob).job
    assert only(gate.finish(30, job), DeliverFrames).outcomes == (Outcome.MET,)


def test_a_silent_stream_delays_nobody():
    """Field report 18."""
    gate = drive()
    gate.register(0, a=make_spec(33, 66), b=make_spec(33, 66))
    for k in range(5):
        gate.frames(33 * k + 4, "a")
        wakeup = gate.wakeup
        assert wakeup <= 33 * k + 4 + 33
        job = only(gate.at(wakeup), StartJob).job
        gate.finish(wakeup + 2, job)
    gate.frames(170, "b")
    gate.at(171, CloseStream("b"))
    job = only(gate.at(198), StartJob).job
    assert every(gate.finish(200, job), DeliverFrames), "the last frame of a stream that has left is answered"


def test_several_frames_of_one_event_may_fall_into_several_batches():
    gate = drive(batch=2)
    gate.register(0, a=make_spec(deadline=20))
    frames = only(gate.at(1, FramesArrived("a", 5)), AcceptFrames).frames
    assert [(frame.seq, frame.job) for frame in frames] == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)]


def test_a_joint_is_not_forgotten_when_its_window_was_empty_for_a_while():
    """The first frame is sent early, so the window is empty when the wake-up is asked for; then it fills again."""
    gate = drive(early_dispatch=True)
    gate.register(0, a=make_spec(deadline=100))
    gate.finish(11, only(gate.frames(1, "a"), StartJob).job)
    assert gate.wakeup is None
    gate.frames(45, "a")
    gate.frames(46, "a")
    gate.at(60)
    assert [job.release_ns for job in gate.engine.snapshot().ready] == [50 * MS]
