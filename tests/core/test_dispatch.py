"""What the device is given, and when (times in ms)."""

import pytest

from gateway.core.actions import AcceptFrames, DeliverFrames, DropFrames, StartJob
from gateway.core.batch import Batch
from gateway.core.edf import ReadyQueue
from gateway.core.engine import Engine
from gateway.core.events import FramesArrived, JobFailed, JobFinished, Tick, WorkerBack, WorkerLost
from gateway.core.types import LOCAL_WORKER, JobDeadline, OnLate, Outcome
from tests.core.factories import MS, Drive, every, make_category, make_profile, make_spec, names, only


def drive(**config):
    return Drive(make_profile(m=[4, 5, 6, 7], n=[4, 5, 6, 7], o=[3]), **config)


def drained(queue):
    """Ids in the order in which they are taken."""
    ids = []
    while queue:
        batch = queue.first()
        queue.withdraw(batch)
        ids.append(batch.id)
    return ids


class TestEarlyDispatch:
    def test_an_idle_device_takes_a_frame_on_arrival(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40))
        job = only(gate.frames(3, "a"), StartJob).job
        assert (job.early, job.release_ns, job.deadline_ns) == (True, 3 * MS, 43 * MS)

    def test_frames_that_come_while_it_works_are_batched_and_sent_when_it_is_free(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40), b=make_spec(deadline=40))
        first = only(gate.frames(3, "a"), StartJob).job
        gate.frames(4, "a", "b")
        assert names(only(gate.finish(7, first), StartJob).job) == ["a", "b"]

    def test_the_window_with_the_earliest_deadline_goes_first(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=80), b=make_spec(deadline=60, model="n"), c=make_spec(70, model="o"))
        first = only(gate.frames(1, "c"), StartJob).job
        gate.frames(2, "a", "b")
        assert names(only(gate.finish(4, first), StartJob).job) == ["b"]

    def test_equal_deadlines_go_by_the_first_arrival(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=80), b=make_spec(deadline=80, model="n"), c=make_spec(70, model="o"))
        first = only(gate.frames(1, "c"), StartJob).job
        gate.frames(2, "b", "a")
        assert names(only(gate.finish(4, first), StartJob).job) == ["b"]

    def test_only_the_first_batch_of_a_window_is_sent(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=80))
        job = only(gate.at(1, FramesArrived("a", 6)), StartJob).job
        assert len(job.frames) == 4
        rest = only(gate.finish(9, job), StartJob).job
        assert (len(rest.frames), rest.early) == (2, True)

    def test_ready_jobs_go_before_waiting_frames(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40), b=make_spec(deadline=200, model="n"))
        first = only(gate.frames(18, "a"), StartJob).job
        gate.frames(19, "a")
        gate.frames(20, "b")
        second = only(gate.finish(22, first), StartJob).job
        assert (names(second), second.early, second.release_ns) == (["a"], False, 20 * MS)
        assert names(only(gate.finish(26, second), StartJob).job) == ["b"]

    def test_the_papers_deadline_is_compared_by_window(self):
        gate = drive(job_deadline=JobDeadline.WINDOW)
        gate.register(0, a=make_spec(deadline=80), b=make_spec(deadline=60, model="n"), c=make_spec(70, model="o"))
        first = only(gate.frames(1, "c"), StartJob).job
        gate.frames(2, "a", "b")
        assert only(gate.finish(4, first), StartJob).job.deadline_ns == 60 * MS

    def test_off_means_that_frames_wait_for_their_joint(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=40))
        assert not every(gate.frames(3, "a"), StartJob)
        assert gate.wakeup == 20
        assert not only(gate.at(20), StartJob).job.early


class TestEdf:
    def test_the_earliest_deadline_first(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=80), b=make_spec(deadline=60, model="n"), c=make_spec(100, 40, model="o"))
        gate.frames(1, "a", "b", "c")
        first = only(gate.at(20), StartJob).job
        gate.at(39)
        assert names(first) == ["c"]
        gate.at(40, Tick())
        second = only(gate.finish(41, first), StartJob).job
        assert names(second) == ["b"], "due 61, though a's window closed as well"
        assert names(only(gate.finish(45, second), StartJob).job) == ["a"]

    def test_a_running_job_is_not_preempted(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=80), b=make_spec(deadline=90, model="n"))
        gate.frames(1, "a", "b")
        first = only(gate.at(40), StartJob).job
        assert not every(gate.at(45), StartJob)
        assert [names(job) for job in gate.engine.snapshot().ready] == [["b"]]
        assert gate.engine.snapshot().running == first

    def test_a_thousand_equal_keys_are_taken_first_come_first_served(self):
        """Field report 27: payloads are never compared."""
        queue = ReadyQueue()
        for job_id in range(1000):
            batch = Batch(job_id, make_category(), (0, MS))
            batch.release_ns, batch.deadline_ns = 5, 10
            queue.push(batch)
        assert drained(queue) == list(range(1000))

    def test_a_thousand_frames_of_fifty_streams_with_one_deadline(self):
        gate = Drive(make_profile(m=[0.1]), early_dispatch=False, admit_all=True)
        streams = {f"s{n}": make_spec(deadline=400) for n in range(50)}
        gate.register(0, **streams)
        order = [name for _ in range(20) for name in streams]
        gate.frames(1, *order)
        actions, served, now = gate.at(200), [], 200.0
        while jobs := every(actions, StartJob):
            served += names(jobs[0].job)
            now += 0.1
            actions = gate.finish(now, jobs[0].job)
        assert served == order

    def test_ties_break_by_deadline_then_release_then_job(self):
        queue = ReadyQueue()
        keys = [(10, 5, 3), (10, 5, 1), (10, 4, 7), (9, 8, 9)]
        for deadline, release, job_id in keys:
            batch = Batch(job_id, make_category(), (0, MS))
            batch.release_ns, batch.deadline_ns = release, deadline
            queue.push(batch)
        assert [batch.id for batch in queue] == [9, 7, 1, 3]
        assert drained(queue) == [9, 7, 1, 3]


class TestCompletions:
    def test_a_frame_is_met_at_its_deadline_and_missed_after(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40))
        job = only(gate.at(1, FramesArrived("a")), StartJob).job
        assert only(gate.finish(41, job), DeliverFrames).outcomes == (Outcome.MET,)
        job = only(gate.frames(50, "a"), StartJob).job
        assert only(gate.finish(90.000001, job), DeliverFrames).outcomes == (Outcome.MISSED,)

    def test_outcomes_are_of_each_frame(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=40), b=make_spec(deadline=60))
        gate.frames(1, "a", "b")
        job = only(gate.at(20), StartJob).job
        delivered = only(gate.finish(50, job), DeliverFrames)
        assert delivered.outcomes == (Outcome.MISSED, Outcome.MET)
        assert (delivered.started_ns, delivered.finished_ns) == (20 * MS, 50 * MS)

    def test_a_failed_job_fails_its_frames_and_the_next_one_starts(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40))
        job = only(gate.frames(1, "a"), StartJob).job
        gate.frames(2, "a")
        actions = gate.at(5, JobFailed(job.id, "out of memory"))
        dropped = only(actions, DropFrames)
        assert (dropped.frames, dropped.outcome, dropped.reason) == (job.frames, Outcome.FAILED, "out of memory")
        assert only(actions, StartJob).job.id != job.id

    @pytest.mark.parametrize("event", [JobFinished(77), JobFailed(77, "late")])
    def test_completions_of_unknown_jobs_are_ignored(self, event):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40))
        gate.frames(1, "a")
        before = gate.engine.snapshot()
        assert gate.at(1, event) == []
        assert gate.engine.snapshot() == before


class TestLostWorker:
    def test_the_running_job_fails_and_nothing_starts_until_it_is_back(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40), b=make_spec(deadline=200, model="n"))
        job = only(gate.frames(1, "a"), StartJob).job
        gate.frames(2, "b")
        actions = gate.at(3, WorkerLost(LOCAL_WORKER))
        assert only(actions, DropFrames).reason == "worker_lost"
        assert len(actions) == 1
        assert gate.at(4, WorkerLost(LOCAL_WORKER), JobFinished(job.id), FramesArrived("b"))[1:] == []
        assert names(only(gate.at(50, WorkerBack(LOCAL_WORKER)), StartJob).job) == ["b", "b"]

    def test_waiting_frames_expire_meanwhile(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40), b=make_spec(deadline=40, on_late=OnLate.SERVE))
        gate.at(1, WorkerLost(LOCAL_WORKER))
        gate.frames(2, "a", "b")
        assert gate.wakeup == 42
        assert [frame.stream_id for frame in only(gate.at(42), DropFrames).frames] == ["a"]
        assert names(only(gate.at(100, WorkerBack(LOCAL_WORKER)), StartJob).job) == ["b"]

    def test_back_without_having_been_lost_changes_nothing(self):
        gate = drive()
        assert gate.at(1, WorkerBack(LOCAL_WORKER)) == []

    def test_an_unknown_worker_is_a_broken_invariant(self):
        with pytest.raises(AssertionError, match="'other' is not this engine's"):
            drive().at(0, WorkerLost("other"))


def test_time_never_goes_back():
    gate = drive()
    gate.at(5)
    with pytest.raises(AssertionError, match="time went back: 4999999 after 5000000"):
        gate.at(4.999999)
    with pytest.raises(AssertionError, match="time went back"):
        gate.engine.check(make_spec(), 0)


def test_one_worker_is_configured():
    with pytest.raises(ValueError, match="exactly one worker is supported, not 2"):
        Engine(make_profile(m=[1]), workers=("a", "b"))


def test_ticks_are_idempotent():
    gate = drive(early_dispatch=False)
    gate.register(0, a=make_spec(deadline=40))
    gate.frames(3, "a")
    assert every(gate.at(20), StartJob)
    view, wakeup = gate.engine.snapshot(), gate.wakeup
    assert gate.at(20) == []
    assert (gate.engine.snapshot(), gate.wakeup) == (view, wakeup)


def test_a_job_carries_the_profiled_time_with_the_overhead():
    gate = drive(dispatch_overhead_ns=MS)
    gate.register(0, a=make_spec(deadline=40))
    assert only(gate.at(0, FramesArrived("a", 2)), StartJob).job.execution_ns == 6 * MS


def test_job_ids_are_given_when_a_batch_is_opened():
    gate = drive()
    gate.register(0, a=make_spec(deadline=400), b=make_spec(deadline=40, model="n"))
    only(gate.frames(0, "a"), StartJob)
    assert only(gate.frames(1, "a"), AcceptFrames).frames[0].job == 1
    assert only(gate.frames(1, "b"), AcceptFrames).frames[0].job == 2
    assert only(gate.frames(1, "a"), AcceptFrames).frames[0].job == 1
