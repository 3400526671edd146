"""A refused batch: its frames are tried again alone, the guilty stream goes alone, the others are not disturbed."""

import pytest

from gateway.core.actions import AcceptFrames, BatchLimited, DeliverFrames, DropFrames, RetryFrames, StartJob
from gateway.core.events import FrameCancelled, JobFailed, JobFinished, LimitBatches, WorkerLost
from gateway.core.types import LOCAL_WORKER, Category, OnLate, Outcome, ServiceClass
from tests.core.factories import MS, SHAPE, Drive, every, make_category, make_profile, make_spec, names, only

#: One frame takes 5 ms, eight take 12.
PROFILE = make_profile(m=[5, 6, 7, 8, 9, 10, 11, 12])
REFUSED = "NaN in layer 3"


def cameras(*who, deadline=100, period=20, drive=None, **fields):
    """A drive of cameras that have all sent a frame, and their job, started at the joint."""
    drive = drive or Drive(PROFILE, early_dispatch=False, admission_test="sporadic")
    verdicts = drive.register(0, **{name: make_spec(period, deadline, **fields) for name in who})
    assert all(verdict.admitted for verdict in verdicts)
    return drive, batch(drive, 1, *who)


def batch(drive, t, *who):
    """The job of frames that all come at `t`."""
    drive.frames(t, *who)
    return only(drive.at(drive.wakeup), StartJob).job


def refuse(drive, t, job, retry=True):
    return drive.at(t, JobFailed(job.id, REFUSED, retry=retry))


def ends(actions):
    """How frames ended: (stream, outcome, reason)."""
    found = [(f.stream_id, a.outcome, a.reason) for a in every(actions, DropFrames) for f in a.frames]
    for done in every(actions, DeliverFrames):
        found += [(f.stream_id, outcome, "") for f, outcome in zip(done.job.frames, done.outcomes, strict=True)]
    return found


def play(drive, actions, t, poison=(), took=5):
    """Answer the jobs that follow, one after another, those with a frame of `poison` with a refusal; all actions."""
    found = list(actions)
    while starts := every(actions, StartJob):
        t += took
        job = starts[0].job
        actions = refuse(drive, t, job) if set(names(job)) & set(poison) else drive.finish(t, job)
        found += actions
    return found


class TestRetry:
    def test_each_frame_goes_again_alone_and_only_the_guilty_one_fails(self):
        drive, job = cameras("a", "b", "c", "d")
        assert names(job) == ["a", "b", "c", "d"]
        actions = refuse(drive, 52, job)
        again = only(actions, RetryFrames)
        assert again.job == job
        assert again.indices == (0, 1, 2, 3)
        assert len({frame.job for frame in again.frames} | {job.id}) == 5
        assert not every(actions, DropFrames)
        found = play(drive, actions, 52, poison={"b"})
        assert [len(start.job.frames) for start in every(found, StartJob)] == [1] * 4
        assert sorted(ends(found)) == [
            ("a", Outcome.MET, ""),
            ("b", Outcome.FAILED, REFUSED),
            ("c", Outcome.MET, ""),
            ("d", Outcome.MET, ""),
        ]

    def test_no_frame_is_tried_again_that_could_not_be_answered_in_time(self):
        """E(1) is 5 ms, the frames are due at 101: at 96 there is just time, at 97 there is not."""
        for t, tried in ((96, 2), (97, 0)):
            drive, job = cameras("a", "b")
            actions = refuse(drive, t, job)
            assert len(every(actions, RetryFrames)) == (tried > 0)
            assert len(ends(actions)) == 2 - tried
            assert {reason for _, _, reason in ends(actions)} <= {f"batch_failed: {REFUSED}"}

    def test_those_that_are_served_late_are_tried_again_whenever(self):
        drive = Drive(PROFILE, early_dispatch=False, admission_test="sporadic")
        drive.register(0, a=make_spec(100, 100, on_late=OnLate.SERVE), b=make_spec(100, 100))
        job = batch(drive, 1, "a", "b")
        actions = refuse(drive, 200, job)
        assert [frame.stream_id for frame in only(actions, RetryFrames).frames] == ["a"]
        assert only(actions, RetryFrames).indices == (0,)
        assert ends(actions) == [("b", Outcome.FAILED, f"batch_failed: {REFUSED}")]
        assert ends(play(drive, actions, 200))[1:] == [("a", Outcome.MISSED, "")]

    def test_the_answer_is_delivered_under_the_frames_own_name(self):
        drive, job = cameras("a", "b")
        actions = play(drive, refuse(drive, 52, job), 52)
        for done in every(actions, DeliverFrames):
            assert [(f.seq, f.arrival_ns, f.deadline_ns) for f in done.job.frames] == [(0, 1 * MS, 101 * MS)]
            assert done.job.frames[0].job == done.job.id

    @pytest.mark.parametrize("retry", [True, False])
    def test_a_single_frame_is_not_tried_again(self, retry):
        drive, job = cameras("a")
        actions = refuse(drive, 52, job, retry=retry)
        assert ends(actions) == [("a", Outcome.FAILED, REFUSED)]
        assert not every(actions, RetryFrames)

    def test_a_loss_or_a_time_out_fails_all_at_once(self):
        drive, job = cameras("a", "b")
        assert ends(refuse(drive, 52, job, retry=False)) == [(n, Outcome.FAILED, REFUSED) for n in "ab"]
        drive, job = cameras("a", "b")
        drive.at(52, JobFailed(job.id, REFUSED, retry=True))
        actions = drive.at(53, WorkerLost(LOCAL_WORKER))
        assert ends(actions) == [("a", Outcome.FAILED, "worker_lost")]
        assert ends(drive.at(101)) == [("b", Outcome.EXPIRED, "expired")]

    def test_a_retry_that_waits_can_be_cancelled_and_expires(self):
        drive, job = cameras("a", "b", "c")
        refuse(drive, 52, job)
        assert ends(drive.at(53, FrameCancelled("c", 0))) == [("c", Outcome.CANCELLED, "cancelled")]
        assert drive.wakeup == 101
        assert ends(drive.at(101)) == [("b", Outcome.EXPIRED, "expired")]

    def test_promised_work_goes_first(self):
        drive, job = cameras("a", "b")
        drive.register(51, other=make_spec(40, 40, model="m"))
        drive.frames(51, "other")
        actions = refuse(drive, 75, job)
        assert names(only(actions, StartJob).job) == ["other"]


class TestSuspects:
    def test_a_stream_that_was_refused_alone_meets_nobody_any_more(self):
        drive, job = cameras("a", "b")
        play(drive, refuse(drive, 52, job), 52, poison={"b"})
        assert suspects(drive) == ["b"]
        accepted = drive.frames(101, "b")
        assert names(only(accepted, StartJob).job) == ["b"], "alone, and at once: it waits for nobody"
        play(drive, accepted, 101, poison={"b"})
        job = batch(drive, 110, "a")
        assert names(job) == ["a"]
        assert suspects(drive) == ["b"]

    def test_an_answer_acquits_it(self):
        drive, job = cameras("a", "b")
        play(drive, refuse(drive, 52, job), 52, poison={"b"})
        play(drive, drive.frames(101, "b"), 101)
        assert suspects(drive) == []
        assert names(batch(drive, 130, "a", "b")) == ["a", "b"]

    def test_three_in_a_row_without_a_second_try_are_enough(self):
        """Deadlines too tight for any: each batch would fail for good, and nobody would know whose fault it is."""
        drive, job = cameras("a", "b")
        for t in (99, 199, 299):
            assert suspects(drive) == []
            refuse(drive, t, job)
            job = batch(drive, t + 2, "a", "b") if t < 299 else None
        assert suspects(drive) == ["a", "b"]
        found = play(drive, drive.frames(301, "a", "b"), 301, poison={"b"})
        assert sorted(ends(found)) == [("a", Outcome.MET, ""), ("b", Outcome.FAILED, REFUSED)]
        assert suspects(drive) == ["b"]

    def test_a_model_that_is_dead_makes_nobody_suspect(self):
        drive, job = cameras("a", "b")
        for t in (101, 201, 301):
            refuse(drive, t - 3, job, retry=False)
            job = batch(drive, t, "a", "b")
        assert suspects(drive) == []

    def test_of_best_effort_it_keeps_its_turn(self):
        drive = Drive(PROFILE)
        spec = make_spec(100, 1000, service_class=ServiceClass.BEST_EFFORT)
        drive.register(0, a=spec, b=spec)
        job = only(drive.frames(0, "a"), StartJob).job
        drive.at(5, JobFailed(job.id, REFUSED, retry=True))
        job = only(drive.frames(6, "b"), StartJob).job
        drive.frames(7, "a", "b", "a")
        order = []
        for t in (11, 16, 21):
            start = every(drive.finish(t, job), StartJob)
            job = start[0].job
            order.append(names(job))
        assert order == [["a"], ["b"], ["a"]]


def suspects(drive):
    return [stream.stream_id for stream in drive.engine.snapshot().streams if stream.suspect]


class TestBatchLimit:
    def test_twice_in_a_row_and_batches_are_given_up(self):
        drive, job = cameras("a", "b")
        found = play(drive, refuse(drive, 52, job), 52)
        assert not every(found, BatchLimited)
        found = play(drive, refuse(drive, 152, batch(drive, 101, "a", "b")), 152)
        limited = only(found, BatchLimited)
        assert (limited.category, limited.most) == (make_category(), 1)
        assert limited.verdict.admitted
        view = drive.engine.snapshot()
        assert (view.limited, view.broken) == ((make_category(),), None)
        assert drive.engine.profile.table(make_category()) == (0, 5 * MS)
        accepted = drive.frames(201, "a", "b")
        assert len({f.job for a in every(accepted, AcceptFrames) for f in a.frames}) == 2

    def test_a_batch_that_succeeds_in_between_acquits_the_model(self):
        drive, job = cameras("a", "b")
        play(drive, refuse(drive, 52, job), 52)
        drive.finish(152, batch(drive, 101, "a", "b"))
        found = play(drive, refuse(drive, 252, batch(drive, 201, "a", "b")), 252)
        assert not every(found, BatchLimited)

    def test_a_poison_frame_is_not_the_models_fault(self):
        drive, job = cameras("a", "b")
        play(drive, refuse(drive, 52, job), 52)
        play(drive, refuse(drive, 152, batch(drive, 101, "a", "b")), 152, poison={"a"})
        play(drive, drive.frames(201, "a"), 201)
        found = play(drive, refuse(drive, 302, batch(drive, 251, "a", "b")), 302)
        assert not every(found, BatchLimited)

    def test_batches_of_which_only_some_frames_could_be_tried_count_half(self):
        """Refused 5 ms before they are due: one of two frames is answered, the other expires."""
        drive, job = cameras("a", "b")
        for n in range(4):
            t = 200 * n
            assert not drive.engine.snapshot().limited
            found = play(drive, refuse(drive, t + 96, job), t + 96)
            assert [outcome for _, outcome, _ in ends(found)] == [Outcome.EXPIRED, Outcome.MET]
            if suspects(drive) == ["b"]:
                play(drive, drive.frames(t + 131, "b"), t + 131)
            job = batch(drive, t + 201, "a", "b")
        assert drive.engine.snapshot().limited == (make_category(),)

    def test_waiting_batches_are_split_where_they_stand(self):
        drive = Drive(PROFILE, early_dispatch=False, admission_test="sporadic")
        drive.register(0, a=make_spec(100, 100), b=make_spec(100, 100), c=make_spec(300, 300, model="m"))
        accepted = drive.frames(1, "a", "b")
        was = only(accepted[:1], AcceptFrames).frames[0].job
        actions = drive.at(2, LimitBatches(make_category(), "told so"))
        limited, again = only(actions, BatchLimited), only(actions, RetryFrames)
        assert limited.reason == "told so"
        assert again.job.id == was
        assert again.indices == (0, 1)
        found = play(drive, drive.at(50), 50)
        jobs = [start.job for start in every(found, StartJob)]
        assert [names(job) for job in jobs] == [["a"], ["b"]]
        assert {(job.release_ns, job.deadline_ns) for job in jobs} == {(50 * MS, 101 * MS)}
        assert ends(found) == [("a", Outcome.MET, ""), ("b", Outcome.MET, "")]
        assert drive.at(61, LimitBatches(make_category(), "told again")) == []

    def test_what_is_ready_is_split_too_and_the_plan_follows(self):
        """Under an exact plan: the device is busy when the limit comes, and all of it fits one by one."""
        profile = make_profile(m=[5, 6, 7], n=[20])
        drive = Drive(profile, early_dispatch=False)
        specs = {name: make_spec(100, 100, frames=3) for name in "abc"}
        drive.register(0, **specs, other=make_spec(300, 300, model="n", frames=2, start_in=1))
        drive.frames(1, *"abc")
        job = only(drive.at(drive.wakeup), StartJob).job
        assert drive.engine._waiting.guard is not None
        drive.finish(57, job)
        drive.frames(101, *"abc")
        actions = drive.at(150, LimitBatches(make_category(), "told so"))
        verdict = only(actions, BatchLimited).verdict
        assert verdict.admitted
        assert verdict.test == "exact"
        assert drive.engine._waiting.guard is not None
        found = play(drive, actions, 150)
        assert [outcome for _, outcome, _ in ends(found)] == [Outcome.MET] * 3

    def test_a_promise_that_cannot_be_kept_is_shown_as_broken_until_it_can(self):
        """Four cameras of 40 ms: together they take 8 ms, one by one 60."""
        profile = make_profile(m=[15, 15, 15, 15])
        drive = Drive(profile, early_dispatch=False)
        drive.register(0, **{name: make_spec(40, 40, frames=50) for name in "abcd"})
        drive.frames(1, *"abcd")
        actions = drive.at(2, LimitBatches(make_category(), "told so"))
        verdict = only(actions, BatchLimited).verdict
        assert not verdict.admitted
        assert verdict.reason is not None
        assert drive.engine.snapshot().broken == verdict
        assert drive.engine._waiting.guard is None
        assert not drive.engine.check(make_spec(40, 40, frames=5), 2 * MS).admitted
        play(drive, drive.at(20), 20, took=1)
        from gateway.core.events import CloseStream, WidenWindows

        for name in "abc":
            drive.at(60, CloseStream(name))
        assert drive.engine.can_widen()
        drive.at(61, WidenWindows())
        assert drive.engine.snapshot().broken is None
        assert drive.engine._waiting.guard is not None

    def test_both_service_classes_share_the_limit(self):
        drive = Drive(make_profile(m=[5, 5]), early_dispatch=False)
        other = Category("m", "1", SHAPE, service_class=ServiceClass.BEST_EFFORT)
        drive.register(0, a=make_spec(), b=make_spec(service_class=ServiceClass.BEST_EFFORT))
        drive.frames(1, "b", "b")
        actions = drive.at(2, LimitBatches(other, "told so"))
        assert only(actions, BatchLimited).category == make_category()
        assert len(only(actions, RetryFrames).frames) == 2

    def test_the_limit_outlives_the_streams(self):
        drive = Drive(PROFILE)
        drive.at(0, LimitBatches(make_category(), "told so"))
        drive.register(1, a=make_spec(50, 100), b=make_spec(50, 100))
        job = only(drive.frames(2, "a", "b"), StartJob).job
        assert len(job.frames) == 1
        assert drive.at(2, LimitBatches(make_category("unknown"), "told so")) == []
        assert drive.at(7, JobFinished(job.id))
