"""Frames without a promise: batches that have become too long to block, and which of a stream gives way (in ms)."""

import pytest

from gateway.core.actions import AcceptFrames, DeliverFrames, DropFrames, RetryFrames, StartJob
from gateway.core.events import FramesArrived
from gateway.core.types import OnExcess, OnLate, Outcome, ServiceClass
from tests.core.factories import MS, Drive, every, make_profile, make_spec, names, only

PROFILE = make_profile(m=[4, 8, 12, 16, 20, 24, 28, 32], r=[5])


def idle(**fields):
    return make_spec(1000, **({"deadline": 60_000, "service_class": ServiceClass.BEST_EFFORT} | fields))


def results(actions):
    return [frame.stream_id for done in every(actions, DeliverFrames) for frame in done.job.frames]


class TestBatchesThatHaveBecomeTooLong:
    """Eight frames wait as one batch of 32 when a camera is admitted that allows for blocking by 5."""

    def gate(self, spec, **config):
        gate = Drive(PROFILE, **config)
        gate.register(0, be=idle(**spec))
        job = only(gate.frames(0, "be"), StartJob).job
        for _ in range(8):
            gate.frames(1, "be")
        return gate, job

    @pytest.mark.parametrize("config", [{"admission_test": "sporadic"}, {"admission_test": "exact"}])
    @pytest.mark.parametrize("early", [True, False])
    @pytest.mark.parametrize("on_late", [OnLate.DROP, OnLate.SERVE])
    def test_they_are_split_and_run(self, config, early, on_late):
        gate, job = self.gate({"on_late": on_late}, **config) if early else self.late(on_late, config)
        actions = gate.at(2, *self.camera(gate))
        again = only(actions, RetryFrames)
        assert (len(again.frames), again.indices) == (8, tuple(range(8)))
        assert len({frame.job for frame in again.frames} | {again.job.id}) == 9
        served, t = results(actions), 4
        actions = gate.finish(t, job)
        while started := every(actions, StartJob):
            t += 4
            assert started[0].job.execution_ns == 4 * MS
            actions = gate.finish(t, started[0].job)
            served += results(actions)
        assert len(served) == 8
        assert gate.engine._waiting.best_effort_frames == 0

    def late(self, on_late, config):
        """Past their joint."""
        gate = Drive(PROFILE, early_dispatch=False, best_effort_window_ns=MS, **config)
        gate.register(0, be=idle(on_late=on_late))
        gate.frames(0, "be")
        job = only(gate.at(1), StartJob).job
        for _ in range(8):
            gate.frames(1, "be")
        gate.at(2)
        return gate, job

    def camera(self, gate):
        from gateway.core.events import RegisterStream

        return (RegisterStream("rt", make_spec(40, 40, model="r", start_in=35)),)

    def test_what_comes_later_stands_in_a_batch_of_its_own(self):
        gate, _ = self.gate({})
        parts = {frame.job for frame in only(gate.at(2, *self.camera(gate)), RetryFrames).frames}
        frames = only(gate.at(3, FramesArrived("be", 2)), AcceptFrames).frames
        assert len({frame.job for frame in frames} | parts) == 10

    def test_others_stay_as_they_are(self):
        gate = Drive(PROFILE, best_effort_blocking_ns=12 * MS)
        gate.register(0, be=idle())
        gate.frames(0, "be")
        gate.at(1, FramesArrived("be", 3))
        assert not every(gate.at(2, *self.camera(gate)), RetryFrames)

    def test_who_is_never_reached_has_just_expired(self):
        gate, job = self.gate({"deadline": 50})
        gate.at(2, *self.camera(gate))
        drop = only(gate.at(51), DropFrames)
        assert (len(drop.frames), drop.reason) == (8, "expired")
        assert job.id not in {frame.job for frame in drop.frames}

    def test_one_frame_that_is_too_long_says_so(self):
        gate = Drive(make_profile(m=[9, 18], r=[5]))
        gate.register(0, be=idle(deadline=50, internal=True))
        gate.frames(0, "be")
        gate.at(1, FramesArrived("be", 2))
        gate.at(2, *self.camera(gate))
        assert only(gate.at(51), DropFrames).reason.startswith("too_long: it takes 9.0 ms")


class TestNewest:
    """Frames give way to newer ones of their own standing."""

    def gate(self):
        gate = Drive(make_profile(m=[5, 9], r=[50]), policing=True, early_dispatch=False, admission_test="sporadic")
        spec = make_spec(100, 100, on_late=OnLate.NEWEST, on_excess=OnExcess.BEST_EFFORT)
        assert all(v.admitted for v in gate.register(0, a=spec))
        return gate

    def test_a_surplus_frame_leaves_the_promised_one_where_it_is(self):
        gate = self.gate()
        (promised,) = only(gate.frames(1, "a"), AcceptFrames).frames
        actions = gate.frames(2, "a")
        assert only(actions, AcceptFrames).frames[0].demoted
        assert not every(actions, DropFrames)
        assert only(gate.at(50), StartJob).job.frames == (promised,)

    def test_it_takes_the_place_of_another_one(self):
        gate = self.gate()
        gate.frames(1, "a")
        (older,) = only(gate.frames(2, "a"), AcceptFrames).frames
        drop = only(gate.frames(3, "a"), DropFrames)
        assert (drop.frames, drop.outcome, drop.reason) == ((older,), Outcome.CANCELLED, "superseded")

    def test_a_promised_frame_takes_the_place_of_a_promised_one(self):
        gate = self.gate()
        gate.frames(1, "a")
        blocked = only(gate.at(50), StartJob).job
        gate.frames(101, "a")
        assert names(blocked) == ["a"]
        (drop,) = every(gate.frames(201, "a"), DropFrames)
        assert [frame.seq for frame in drop.frames] == [1]

    def test_both_at_once(self):
        gate = self.gate()
        gate.at(1, FramesArrived("a", 2))
        assert [frame.seq for frame in only(gate.at(50), StartJob).job.frames] == [0]
        assert [frame.seq for frame in only(gate.at(101, FramesArrived("a", 2)), DropFrames).frames] == [1]
