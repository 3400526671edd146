"""Verdicts, their evidence, and counter-offers (times in ms)."""

import pickle
from dataclasses import replace

import pytest

from gateway.core.actions import StartJob
from gateway.core.admission import counter_offers, evaluate
from gateway.core.config import EngineConfig
from gateway.core.events import FramesArrived, JobFinished
from gateway.core.offers import search
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import JobDeadline, OnLate
from gateway.core.verdict import Reason
from tests.core.factories import MS, SHAPE, Drive, make_category, make_profile, make_spec, only
from tests.core.states import make_state

PROFILE = make_profile(m=[10, 14], slow=[60], quick=[1])


def drive(**config):
    config.setdefault("admission_test", "exact")
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
        profile = make_profile(m=[4, 4, 4, 6])
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
        assert (phase(5).next_ns, phase(5).overdue) == (20 * MS, 0)
        assert (phase(25).next_ns, phase(25).overdue) == (120 * MS, 1)
        gate.frames(26, "a")
        assert (phase(30).next_ns, phase(30).remaining) == (126 * MS, 3)
        assert (phase(130).next_ns, phase(130).overdue) == (226 * MS, 1)

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


class TestWhichTest:
    finite = make_spec(100, 60, frames=3)
    unbounded = make_spec(100, 60)

    @pytest.mark.parametrize(
        ("setting", "streams", "test"),
        [
            ("auto", [finite], "exact"),
            ("auto", [unbounded], "sporadic"),
            ("auto", [unbounded, finite], "sporadic"),
            ("exact", [finite], "exact"),
            ("exact", [finite, unbounded], "hyperperiod"),
            ("sporadic", [finite], "sporadic"),
        ],
    )
    def test_settings_and_streams_decide(self, setting, streams, test):
        verdicts = drive(admission_test=setting).register(0, **{f"s{n}": spec for n, spec in enumerate(streams)})
        assert (verdicts[-1].admitted, verdicts[-1].test) == (True, test)

    def test_exact_follows_every_frame_to_the_end(self):
        (verdict,) = drive().register(0, a=make_spec(100, 60, frames=500))
        assert verdict.frames_checked == 500
        assert verdict.horizon_ns == 49_920 * MS  # the joint after the last arrival, at 49.9 s

    @pytest.mark.parametrize(("setting", "reason"), [("exact", Reason.BEYOND_HORIZON), ("auto", None)])
    def test_more_frames_than_can_be_followed(self, setting, reason):
        gate = drive(max_horizon_frames=50, admission_test=setting)
        (verdict,) = gate.register(0, a=make_spec(100, 60, frames=10**9))
        assert verdict.reason is reason
        assert verdict.test == ("exact" if reason else "sporadic")

    def test_reservations_count_as_frames(self):
        # W = 30; a jitter of 90 touches three or four windows.
        state = make_state(PROFILE, config=EngineConfig(max_horizon_frames=100))
        spec = make_spec(200, 60, frames=30, jitter_ns=90 * MS)
        assert evaluate(state, replace(spec, frames=20)).test == "exact"
        assert evaluate(state, spec).test == "sporadic"

    def test_a_hyperperiod_that_is_too_long_is_refused(self):
        gate = drive(max_horizon_frames=1_000)
        (verdict,) = gate.register(0, a=make_spec(33.333, 100.002))
        assert (verdict.admitted, verdict.test, verdict.phase) == (False, "hyperperiod", 2)
        assert verdict.reason is Reason.BEYOND_HORIZON


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
        state = make_state(self.profile, *others)
        found = {offer.field: offer.value for offer in counter_offers(state, spec)}
        for field, value in found.items():
            assert evaluate(state, replace(spec, **{field: value})).admitted, f"the offer of {field} must hold"
        return found

    def test_none_for_a_stream_that_fits(self):
        assert self.offers(make_spec(100, 100)) == {}

    def test_too_fast(self):
        found = self.offers(make_spec(8, 100, frames=2_000))
        assert 10 * MS <= found["period_ns"] <= 11 * MS
        assert found["shape"] == (4, 4, 3), "the largest smaller shape, not the smallest"
        assert "deadline_ns" not in found, "no deadline helps against too much work"

    def test_too_tight(self):
        found = self.offers(make_spec(200, 12, frames=50))
        assert 19 * MS <= found["deadline_ns"] <= 20.5 * MS
        assert "period_ns" not in found

    def test_a_deadline_far_below_one_frame_is_searched_from_there(self):
        assert 40 * MS <= self.offers(make_spec(200, 1))["deadline_ns"] <= 40.4 * MS

    def test_under_the_sporadic_test(self):
        # One frame of 10 in each window, and one of 10 before: W must be 20.
        found = self.offers(make_spec(200, 12))
        assert 40 * MS <= found["deadline_ns"] <= 40.4 * MS
        # In W = 50 three frames fit after a job of 20; four do not.
        assert 16 * MS <= self.offers(make_spec(8, 100))["period_ns"] <= 17 * MS

    def test_below_one_frame(self):
        found = self.offers(make_spec(200, 5, frames=50))
        assert found.keys() == {"deadline_ns", "shape"}
        assert found["shape"] == (2, 2, 3)

    def test_a_full_device_has_nothing_to_offer(self):
        full = make_spec(4, 40, shape=(4, 4, 3), frames=2_000)
        assert self.offers(make_spec(20, 20, frames=300), full) == {}

    @pytest.mark.parametrize("period", [100, 999, 7])
    @pytest.mark.parametrize("most", [1.01, 1.3, 7, 15.9, 17])
    def test_the_search_is_bounded(self, period, most):
        """Whatever fits: here all that is at least `most` times what was asked for."""
        asked = []
        spec = make_spec(period, 100)

        def fits(other):
            asked.append(other)
            return max(other.period_ns / spec.period_ns, other.deadline_ns / spec.deadline_ns) >= most

        search(make_state(self.profile, *(make_spec(90 + n, 100) for n in range(9))), spec, fits)
        assert len(asked) <= 45

    def test_a_deadline_between_those_that_make_larger_batches_is_found(self):
        """From 168 ms on the work fits; above 180 a window can hold two groups of each stream, and no longer."""
        profile = make_profile(m=[17.4 * (1 + 0.35 * n) for n in range(8)])
        state = make_state(profile, make_spec(100, 200, jitter_ns=10 * MS))
        candidate = make_spec(100, 160, burst=4, jitter_ns=10 * MS)

        def fits(deadline):
            return evaluate(state, replace(candidate, deadline_ns=deadline * MS)).admitted

        fitting = [deadline for deadline in range(160, 1000) if fits(deadline)]
        assert (fitting[0], fitting[-1]) == (168, 180)
        found = [offer for offer in counter_offers(state, candidate) if offer.field == "deadline_ns"]
        assert [offer.value for offer in found] == [168 * MS]

    def test_not_profiled_names_a_smaller_shape(self):
        assert self.offers(make_spec(100, 100, shape=(16, 16, 3))) == {"shape": SHAPE}


def test_jobs_finish_events_still_apply_after_a_check():
    gate = drive()
    gate.register(0, a=make_spec(100, 60))
    job = only(gate.frames(1, "a"), StartJob).job
    gate.engine.check(make_spec(), 5 * MS)
    assert gate.at(4, JobFinished(job.id))

    def test_a_wider_deadline_that_fails_hides_no_narrower_one_that_fits(self):
        # 16 times the deadline moves the joint behind the other stream's frames; a little more than asked does not.
        profile = make_profile(m=[10], n=[30])
        state = make_state(profile, make_spec(100, 62, model="n", frames=9))
        candidate = make_spec(100, 62, frames=9)
        assert not evaluate(state, candidate).admitted
        widest = replace(candidate, deadline_ns=16 * candidate.deadline_ns)
        assert not evaluate(state, widest).admitted
        (offer,) = [o for o in counter_offers(state, candidate) if o.field == "deadline_ns"]
        assert evaluate(state, replace(candidate, deadline_ns=offer.value)).admitted
