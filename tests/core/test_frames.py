"""How frames end, how streams end, and the books (times in ms)."""

import pytest

from gateway.core.actions import AcceptFrames, DeliverFrames, DropFrames, RefuseFrames, StartJob, StreamEnded
from gateway.core.batch import Batch
from gateway.core.events import CloseStream, FrameCancelled, FramesArrived, RegisterStream
from gateway.core.expiry import Expiries, forget
from gateway.core.types import Frame, OnExcess, OnLate, Outcome, ServiceClass
from tests.core.factories import MS, Drive, counts, every, make_category, make_profile, make_spec, names, only


def drive(**config):
    return Drive(make_profile(m=[4, 5, 6, 7], long=[3000]), **config)


def busy(gate, t=0):
    """Occupy the device for three seconds."""
    gate.register(t, long=make_spec(10_000, 10_000, model="long"))
    return only(gate.frames(t, "long"), StartJob).job


class TestExpiry:
    def test_it_is_answered_on_time_while_the_device_is_busy(self):
        """Field report 26: limits 100, 200 and 500 ms behind a job of 3 s."""
        gate = drive(admit_all=True)
        busy(gate)
        gate.register(1, **{f"s{d}": make_spec(1000, d) for d in (500, 100, 200)})
        gate.frames(2, "s500", "s100", "s200")
        for limit in (100, 200, 500):
            assert gate.wakeup == 2 + limit
            assert gate.at(2 + limit - 0.000001) == []
            dropped = only(gate.at(2 + limit), DropFrames)
            assert [frame.stream_id for frame in dropped.frames] == [f"s{limit}"]
            assert (dropped.outcome, dropped.reason) == (Outcome.EXPIRED, "expired")
        assert gate.wakeup is None

    def test_a_frame_that_is_served_late_does_not_expire(self):
        gate = drive(admit_all=True)
        job = busy(gate)
        gate.register(1, a=make_spec(deadline=40, on_late=OnLate.SERVE))
        gate.frames(2, "a")
        assert gate.wakeup is None
        late = only(gate.finish(3000, job), StartJob).job
        assert only(gate.finish(3004, late), DeliverFrames).outcomes == (Outcome.MISSED,)

    def test_an_open_batch_closes_its_holes(self):
        gate = drive(admit_all=True)
        busy(gate)
        gate.register(1, a=make_spec(deadline=100), b=make_spec(deadline=300))
        gate.frames(2, "a", "a", "b")
        gate.frames(3, "b")
        dropped = only(gate.at(102), DropFrames)
        assert [(f.stream_id, f.seq) for f in dropped.frames] == [("a", 0), ("a", 1)]
        assert dropped.moved == ((1, 3, 0), (1, 2, 1))

    def test_it_comes_before_dispatch_at_the_same_instant(self):
        gate = drive(admit_all=True)
        job = busy(gate)
        gate.register(1, a=make_spec(deadline=100))
        gate.frames(2, "a")
        actions = gate.finish(102, job)
        assert every(actions, DropFrames)
        assert not every(actions, StartJob)

    def test_a_started_frame_does_not_expire(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40))
        gate.frames(0, "a")
        assert gate.at(50) == []

    def test_a_ready_job_keeps_its_place_when_a_frame_expires(self):
        gate = drive(admit_all=True)
        job = busy(gate)
        gate.register(1, a=make_spec(deadline=100), b=make_spec(deadline=5000))
        gate.frames(2, "a", "b")
        gate.at(102)
        (ready,) = gate.engine.snapshot().ready
        assert (names(ready), ready.deadline_ns) == (["b"], 102 * MS)
        assert names(only(gate.finish(3000, job), StartJob).job) == ["b"]

    def test_stale_entries_do_not_pile_up(self):
        expiries = Expiries()
        kept = Batch(0, make_category(), (0, MS))
        kept.add(Frame("a", 0, 0, 10**9, 0))
        expiries.watch(kept)
        for job_id in range(1, 5000):
            batch = Batch(job_id, make_category(), (0, MS))
            batch.add(Frame("a", job_id, 0, 10**10, job_id))
            expiries.watch(batch)
            forget(batch)
        assert len(expiries._heap) < 1100
        assert expiries.next_ns() == 10**9


class TestCancel:
    def test_the_last_frame_takes_the_place(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=40))
        gate.at(1, FramesArrived("a", 4))
        dropped = only(gate.at(2, FrameCancelled("a", 1)), DropFrames)
        assert (dropped.outcome, dropped.moved) == (Outcome.CANCELLED, ((0, 3, 1),))
        assert [frame.seq for frame in only(gate.at(20), StartJob).job.frames] == [0, 3, 2]

    def test_nothing_moves_for_the_last(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=40))
        gate.at(1, FramesArrived("a", 2))
        assert only(gate.at(2, FrameCancelled("a", 1)), DropFrames).moved == ()

    def test_the_place_is_used_again(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=40))
        gate.at(1, FramesArrived("a", 4))
        gate.at(2, FrameCancelled("a", 0))
        assert only(gate.frames(3, "a"), AcceptFrames).frames[0].job == 0

    def test_an_empty_batch_vanishes(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=40))
        gate.frames(1, "a")
        gate.at(2, FrameCancelled("a", 0))
        assert gate.wakeup is None
        assert gate.at(20) == []

    def test_an_empty_ready_job_vanishes(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=40), b=make_spec(model="long", deadline=10_000))
        gate.frames(1, "a", "b")
        job = only(gate.at(20), StartJob).job
        gate.frames(21, "a")
        gate.at(41)
        assert len(gate.engine.snapshot().ready) == 1
        gate.at(42, FrameCancelled("a", 1))
        assert gate.engine.snapshot().ready == ()
        assert not every(gate.finish(43, job), StartJob)

    def test_the_deadline_of_an_open_window_follows_its_frames(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=40), b=make_spec(deadline=60))
        gate.frames(1, "a", "b")
        gate.at(2, FrameCancelled("a", 0))
        assert only(gate.at(20), StartJob).job.deadline_ns == 61 * MS

    @pytest.mark.parametrize("event", [FrameCancelled("a", 0), FrameCancelled("a", 9), FrameCancelled("b", 0)])
    def test_it_has_no_effect_after_the_start_or_on_unknown_frames(self, event):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40))
        job = only(gate.frames(1, "a"), StartJob).job
        assert gate.at(2, event) == []
        assert only(gate.finish(5, job), DeliverFrames).outcomes == (Outcome.MET,)


class TestStreamsEnd:
    def test_a_finite_stream_ends_with_its_last_frame(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40, frames=2))
        first = only(gate.frames(1, "a"), StartJob).job
        gate.frames(2, "a")
        assert gate.engine.snapshot().streams[0].state == "closing"
        assert only(gate.frames(3, "a"), RefuseFrames).reason == "finished"
        second = only(gate.finish(5, first), StartJob).job
        actions = gate.finish(9, second)
        assert [type(action) for action in actions] == [DeliverFrames, StreamEnded]
        assert only(actions, StreamEnded).reason == "finished"
        assert only(gate.frames(10, "a"), RefuseFrames).reason == "unknown_stream"

    def test_a_group_is_taken_up_to_the_count(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40, frames=3))
        actions = gate.at(1, FramesArrived("a", 5))
        assert len(only(actions, AcceptFrames).frames) == 3
        assert only(actions, RefuseFrames) == RefuseFrames("a", 2, "finished")

    def test_a_closed_stream_ends_at_once_without_frames(self):
        gate = drive()
        gate.register(0, a=make_spec())
        assert gate.at(1, CloseStream("a")) == [StreamEnded("a", "closed")]
        assert gate.engine.snapshot().streams == ()

    def test_a_closed_stream_ends_with_its_last_frame(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40))
        job = only(gate.frames(1, "a"), StartJob).job
        assert gate.at(2, CloseStream("a")) == []
        assert gate.engine.snapshot().streams[0].state == "closing"
        assert only(gate.frames(3, "a"), RefuseFrames).reason == "closed"
        assert only(gate.finish(5, job), StreamEnded).reason == "closed"

    def test_all_frames_having_come_outranks_a_close(self):
        gate = drive()
        gate.register(0, a=make_spec(deadline=40, frames=1))
        job = only(gate.frames(1, "a"), StartJob).job
        gate.at(2, CloseStream("a"))
        assert only(gate.finish(5, job), StreamEnded).reason == "finished"

    @pytest.mark.parametrize("ending", [FrameCancelled("a", 0), None])
    def test_a_frame_that_is_cancelled_or_expires_ends_it_too(self, ending):
        gate = drive(admit_all=True)
        busy(gate)
        gate.register(1, a=make_spec(deadline=40, frames=1))
        gate.frames(1, "a")
        actions = gate.at(2, ending) if ending else gate.at(41)
        assert only(actions, StreamEnded).reason == "finished"

    def test_closing_a_stream_that_is_gone_is_ignored(self):
        assert drive().at(0, CloseStream("a")) == []

    def test_an_id_in_use_is_a_broken_invariant(self):
        gate = drive()
        gate.register(0, a=make_spec())
        with pytest.raises(AssertionError, match="'a' is in use"):
            gate.at(1, RegisterStream("a", make_spec()))

    def test_two_streams_of_one_job_may_end_together(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(deadline=40, frames=1), b=make_spec(deadline=40, frames=1))
        gate.frames(1, "a", "b")
        ended = every(gate.finish(24, only(gate.at(20), StartJob).job), StreamEnded)
        assert [action.stream_id for action in ended] == ["a", "b"]
        assert gate.engine.snapshot().categories == ()


def test_the_books_hold_what_happened():
    gate = drive()
    gate.register(0, a=make_spec(deadline=40), b=make_spec(deadline=40))
    job = only(gate.frames(1, "a"), StartJob).job
    gate.frames(2, "a", "b", "x")
    gate.at(3, FrameCancelled("b", 0))
    gate.finish(45, job)
    view = gate.engine.snapshot()
    a, b = view.streams
    assert (a.accepted, a.in_flight, counts(a.outcomes)) == (2, 0, {"missed": 1, "expired": 1})
    assert (b.accepted, b.in_flight, counts(b.outcomes)) == (1, 0, {"cancelled": 1})
    assert counts(view.models["m"].outcomes) == {"missed": 1, "expired": 1, "cancelled": 1}
    assert view.refused == {"unknown_stream": 1}


def test_the_books_know_what_was_promised():
    gate = drive(policing=True)
    demotes = make_spec(1_000, 500, on_excess=OnExcess.BEST_EFFORT)
    gate.register(0, a=demotes, b=make_spec(1_000, 500, service_class=ServiceClass.BEST_EFFORT))
    job = only(gate.frames(1, "a"), StartJob).job
    gate.frames(2, "a", "b")  # beyond the contract of one, and without any
    gate.at(3, FrameCancelled("b", 0))
    gate.finish(700, job)
    by_class = gate.engine.snapshot().by_class
    assert counts(by_class[ServiceClass.REAL_TIME]) == {"missed": 1}
    assert counts(by_class[ServiceClass.BEST_EFFORT]) == {"cancelled": 1, "expired": 1}


def test_totals_outlive_streams():
    gate = drive()
    gate.register(0, a=make_spec(deadline=40, frames=1))
    gate.finish(5, only(gate.frames(1, "a"), StartJob).job)
    view = gate.engine.snapshot()
    assert view.streams == ()
    assert (view.models["m"].accepted, view.models["m"].in_flight) == (1, 0)


def test_the_view_says_when_frames_are_expected():
    gate = drive()
    gate.register(0, a=make_spec(100, 40, start_in=30))
    assert gate.engine.snapshot().streams[0].next_expected_ns == 30 * MS
    gate.at(35)
    assert gate.engine.snapshot().streams[0].next_expected_ns == 35 * MS
    gate.frames(37, "a")
    assert gate.engine.snapshot().streams[0].next_expected_ns == 137 * MS


def test_frames_of_a_group_cannot_be_none():
    gate = drive()
    with pytest.raises(AssertionError, match="0 frames"):
        gate.at(0, FramesArrived("a", 0))
