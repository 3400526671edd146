"""Verdicts, their evidence, and counter-offers (times in ms)."""

import pickle
from dataclasses import replace

import pytest

from gateway.core.admission import counter_offers, evaluate
from gateway.core.events import FramesArrived, JobFinished, StartJob
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import NS_PER_S, JobDeadline, OnLate
from gateway.core.verdict import Reason
from tests.core.factories import MS, SHAPE, Drive, make_category, make_profile, make_spec, only


def drive(**config):
    return Drive(make_profile(m=[10, 14], slow=[60], quick=[1]), **config)


class TestPhase0:
    def test_not_profiled(self):
        (verdict,) = drive().register(0, a=make_spec(model="unknown"))
        assert (verdict.admitted, verdict.phase, verdict.reason) == (False, 0, Reason.NOT_PROFILED)

    @pytest.mark.parametrize("field", [{"version": "2"}, {"shape": (9, 8, 3)}, {"dtype": "FP32"}])
    def test_every_field_of_the_category_counts(self, field):
        (verdict,) = drive().register(0, a=make_spec(**field))
        assert verdict.reason is Reason.NOT_PROFILED

    def test_deadline_below_one_frame(self):
        just, short = drive().register(0, a=make_spec(deadline=20), b=make_spec(deadline=9.999999))
        assert just.admitted
        assert (short.phase, short.reason) == (0, Reason.DEADLINE_INFEASIBLE)


class TestPhase2:
    def test_an_admitted_stream_knows_its_worst_latency(self):
        (verdict,) = drive().register(0, a=make_spec(100, 60, frames=3))
        assert (verdict.admitted, verdict.test, verdict.phase) == (True, "exact", 2)
        # Frames at 0, 100, 200 wait for the joints 30, 120, 210.
        assert verdict.worst_latency_ns == 40 * MS
        assert verdict.frames_checked == 3

    def test_the_first_miss_is_evidence(self):
        gate = drive()
        gate.register(0, slow=make_spec(1000, 180, model="slow", start_in=5))
        (verdict,) = gate.register(20, a=make_spec(1000, 90, start_in=24, model="m"))
        # slow: arrives 5, joint 90, runs to 150. a: arrives 44, joint 65: fits before.
        assert verdict.admitted
        (verdict,) = gate.register(21, b=make_spec(1000, 50, start_in=60, model="quick"))
        # b: arrives 81, joint 46 + 2 x 25 = 96, while slow runs; done at 151, due 131.
        assert (verdict.admitted, verdict.phase, verdict.reason) == (False, 2, Reason.DEADLINE_MISS)
        miss = verdict.first_miss
        assert miss.category == make_category("quick")
        assert (miss.streams, miss.frames) == (("b",), 1)
        assert (miss.release_ns, miss.deadline_ns, miss.finish_ns) == (75 * MS, 110 * MS, 130 * MS)
        assert miss.late_ns == 20 * MS
        assert verdict.worst_latency_ns is None

    def test_the_miss_may_be_anothers(self):
        gate = drive()
        gate.register(0, b=make_spec(1000, 50, start_in=80, model="quick"))
        (verdict,) = gate.register(0, slow=make_spec(1000, 180, model="slow", start_in=5))
        assert verdict.first_miss.streams == ("b",)

    def test_all_streams_of_a_missed_batch_are_named_once(self):
        profile = make_profile(m=[1, 1, 1, 12])
        gate = Drive(profile)
        gate.register(0, a=make_spec(5, 20), b=make_spec(50, 20))
        (verdict,) = gate.register(0, c=make_spec(50, 20))
        assert set(verdict.first_miss.streams) == {"a", "b", "c"}
        assert verdict.first_miss.frames == 4

    def test_rejection_changes_nothing(self):
        gate = drive()
        gate.register(0, a=make_spec(100, 60))
        gate.frames(3, "a")
        before = gate.engine.snapshot()
        assert not gate.register(3, b=make_spec(1, 60, model="quick"), c=make_spec(100, 15))[-1].admitted
        assert gate.engine.snapshot() == before

    def test_the_check_is_the_verdict_of_a_registration(self):
        gate = drive()
        gate.register(0, a=make_spec(100, 60))
        for spec in (make_spec(50, 60), make_spec(12, 24), make_spec(model="slow", deadline=70)):
            before = gate.engine.snapshot()
            checked = gate.engine.check(spec, 5 * MS, "b")
            assert gate.engine.snapshot() == before
            (registered,) = Drive.register(copy_of(gate), 5, b=spec)
            assert checked == registered

    def test_the_state_travels_to_another_process(self):
        gate = drive()
        gate.register(0, a=make_spec(100, 60))
        state = pickle.loads(pickle.dumps(gate.engine.admission_state(7 * MS)))
        assert evaluate(state, make_spec(12, 24), "b") == gate.engine.check(make_spec(12, 24), 7 * MS, "b")


def copy_of(gate):
    clone = Drive(gate.engine.profile)
    clone.engine = pickle.loads(pickle.dumps(gate.engine))
    return clone


class TestRecordedState:
    def test_the_running_job_holds_the_device_for_its_remaining_time(self):
        gate = drive()
        gate.register(0, slow=make_spec(1000, 200, model="slow"))
        gate.frames(1, "slow")
        assert gate.engine.admission_state(11 * MS).free_ns == 61 * MS

    def test_an_overrun_is_taken_to_end_in_a_nanosecond(self):
        gate = drive()
        gate.register(0, slow=make_spec(1000, 200, model="slow"))
        gate.frames(1, "slow")
        assert gate.engine.admission_state(70 * MS).free_ns == 70 * MS + 1

    def test_windows_due_count_as_closed(self):
        gate = drive(early_dispatch=False, admit_all=True)
        gate.register(0, slow=make_spec(1000, 200, model="slow"), a=make_spec(100, 60))
        gate.at(100, FramesArrived("slow"))
        assert only(gate.at(200), StartJob)
        gate.at(203, FramesArrived("a"), FramesArrived("a"), FramesArrived("a"))
        state = gate.engine.admission_state(215 * MS)
        assert [(job.release_ns, job.deadline_ns, len(job.frames)) for job in state.ready] == [
            (210 * MS, 263 * MS, 2),
            (210 * MS, 263 * MS, 1),
        ]
        assert [(w.joint_ns, w.waiting) for w in state.windows] == [(300 * MS, ()), (240 * MS, ())]

    def test_frames_about_to_expire_are_left_out(self):
        gate = drive(admit_all=True)
        gate.register(0, slow=make_spec(1000, 200, model="slow"), a=make_spec(100, 40))
        gate.register(0, late=make_spec(100, 40, on_late=OnLate.SERVE))
        gate.frames(0, "slow", "a", "late")
        (job,) = gate.engine.admission_state(40 * MS).ready
        assert [frame.stream_id for frame in job.frames] == ["late"]

    def test_frames_are_expected_on_the_contract(self):
        gate = drive()
        gate.register(0, a=make_spec(100, 60, start_in=20, frames=4))
        phase = lambda t: gate.engine.admission_state(round(t * MS)).streams[0]  # noqa: E731
        assert (phase(5).next_ns, phase(25).next_ns) == (20 * MS, 25 * MS)
        gate.frames(26, "a")
        assert (phase(30).next_ns, phase(30).remaining) == (126 * MS, 3)
        assert phase(130).next_ns == 130 * MS

    def test_streams_that_take_no_more_are_left_out(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(100, 60, frames=1))
        gate.frames(1, "a")
        state = gate.engine.admission_state(2 * MS)
        assert state.streams == ()
        assert [len(batch) for batch in state.windows[0].waiting] == [1]

    def test_waiting_frames_share_their_batch_with_those_to_come(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(50, 100, frames=1))
        gate.frames(10, "a")
        (verdict,) = gate.register(20, b=make_spec(1000, 100, frames=1, start_in=5))
        # Joint 50, one job of two frames: 50 + 14.
        assert verdict.worst_latency_ns == (64 - 25) * MS

    def test_the_candidates_window_is_in_force(self):
        gate = drive(early_dispatch=False)
        gate.register(0, a=make_spec(1000, 100, frames=1, start_in=5))
        (verdict,) = gate.register(3, b=make_spec(1000, 40, frames=1, start_in=4))
        # The joint moves from 50 to 23; a comes at 5, b at 7: 23 + 14 - 7.
        assert verdict.worst_latency_ns == 30 * MS


class TestHorizon:
    def test_unbounded_streams_are_tested_over_the_stated_horizon(self):
        (verdict,) = drive(horizon_ns=2 * NS_PER_S).register(0, a=make_spec(100, 60))
        assert verdict.horizon_ns == 2 * NS_PER_S
        assert 19 <= verdict.frames_checked <= 20

    def test_finite_streams_are_followed_to_their_end(self):
        (verdict,) = drive(horizon_ns=NS_PER_S).register(0, a=make_spec(100, 60, frames=500))
        assert verdict.frames_checked == 500
        assert verdict.horizon_ns > 49 * NS_PER_S

    @pytest.mark.parametrize("frames", [None, 10**9])
    def test_a_limit_of_frames_cuts_it_and_is_stated(self, frames):
        gate = drive(max_horizon_frames=50)
        gate.register(0, a=make_spec(100, 60, frames=frames))
        (verdict,) = gate.register(0, b=make_spec(100, 60, frames=frames))
        assert 40 <= verdict.frames_checked <= 50
        assert 2 * NS_PER_S <= verdict.horizon_ns <= 2.6 * NS_PER_S

    def test_a_slow_stream_is_looked_at_beyond_the_usual_horizon(self):
        # Its first frame is due after a minute; the horizon of 10 s would see nothing of it.
        gate = drive()
        gate.register(0, a=make_spec(10_000, 200, model="slow", start_in=90_000))
        (verdict,) = gate.register(0, b=make_spec(100_000, 2.2, model="quick", start_in=90_100))
        assert verdict.first_miss.streams == ("b",)

    def test_a_window_cut_by_the_horizon_is_not_judged(self):
        # A batch of one may take longer than a full one is allowed for each frame: only whole windows say anything.
        (verdict,) = drive(horizon_ns=125 * MS).register(0, a=make_spec(10, 100))
        assert verdict.admitted
        assert verdict.frames_checked == 10

    def test_a_stream_whose_first_window_is_out_of_sight_is_refused(self):
        # A day's deadline makes a window of half a day; the frames that are looked at do not reach its end.
        (verdict,) = drive(max_horizon_frames=1_000).register(0, a=make_spec(11, 86_400_000))
        assert (verdict.admitted, verdict.phase, verdict.reason) == (False, 2, Reason.BEYOND_HORIZON)
        assert verdict.frames_checked < 1_000

    def test_frames_of_others_do_not_hide_a_conflict_behind_the_limit(self):
        # Four equal streams that start together, long after the last frame that is looked at.
        gate = drive(max_horizon_frames=200)
        gate.register(0, filler=make_spec(100, 400, frames=10_000))
        late = {name: make_spec(1_000, 9, frames=10, start_in=100_000, model="quick") for name in "abcd"}
        assert {verdict.reason for verdict in gate.register(0, **late)} == {Reason.BEYOND_HORIZON}


def test_job_deadlines_of_the_paper_are_planned_too():
    def answer(mode, start_in):
        gate = Drive(make_profile(m=[20]), job_deadline=mode, early_dispatch=False)
        return gate.register(0, a=make_spec(100, 30, frames=1, start_in=start_in))[0]

    # Arrives 0, joint 15, done 35: late for both.
    assert {answer(mode, 0).first_miss.deadline_ns for mode in JobDeadline} == {30 * MS}
    # Arrives 7, joint 15, done 35, due 37: the paper's job is still due at 30.
    assert answer(JobDeadline.FRAME, 7).admitted
    assert answer(JobDeadline.WINDOW, 7).first_miss.deadline_ns == 30 * MS


class TestCounterOffers:
    profile = Profile(
        tuple(
            ProfileEntry("m", "1", shape, "UINT8", batch, 1000, ms * batch, ms * batch, ms * batch)
            for shape, ms in ((SHAPE, 10), ((4, 4, 3), 4), ((2, 2, 3), 1))
            for batch in (1, 2)
        )
    )

    def offers(self, spec, *others):
        gate = Drive(self.profile)
        gate.register(0, **{f"s{n}": other for n, other in enumerate(others)})
        state = gate.engine.admission_state(0)
        found = {offer.field: offer.value for offer in counter_offers(state, spec)}
        for field, value in found.items():
            assert evaluate(state, replace(spec, **{field: value})).admitted, f"the offer of {field} must hold"
        return found

    def test_none_for_a_stream_that_fits(self):
        assert self.offers(make_spec(100, 100)) == {}

    def test_too_fast(self):
        found = self.offers(make_spec(8, 100))
        assert 10 * MS <= found["period_ns"] <= 11 * MS
        assert found["shape"] == (4, 4, 3), "the largest smaller shape, not the smallest"
        assert "deadline_ns" not in found, "no deadline helps against too much work"

    def test_too_tight(self):
        found = self.offers(make_spec(200, 12))
        assert 19 * MS <= found["deadline_ns"] <= 20.5 * MS
        assert "period_ns" not in found

    def test_below_one_frame(self):
        found = self.offers(make_spec(200, 5))
        assert found.keys() == {"deadline_ns", "shape"}
        assert found["shape"] == (2, 2, 3)

    def test_a_full_device_has_nothing_to_offer(self):
        full = make_spec(4, 40, shape=(4, 4, 3))
        assert self.offers(make_spec(20, 20), full) == {}

    def test_not_profiled_names_a_smaller_shape(self):
        assert self.offers(make_spec(100, 100, shape=(16, 16, 3))) == {"shape": SHAPE}


def test_jobs_finish_events_still_apply_after_a_check():
    gate = drive()
    gate.register(0, a=make_spec(100, 60))
    job = only(gate.frames(1, "a"), StartJob).job
    gate.engine.check(make_spec(), 5 * MS)
    assert gate.at(4, JobFinished(job.id))
