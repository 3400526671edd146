"""The sporadic test by hand (times in ms): demand, blocking, carry-in, bounds on its own cost."""

import time
from dataclasses import replace

import pytest

from gateway.core.admission import evaluate, plan
from gateway.core.arrival_curve import curves_of
from gateway.core.config import EngineConfig
from gateway.core.expected import ints
from gateway.core.sporadic import sporadic
from gateway.core.types import Frame, Job
from gateway.core.verdict import Reason
from tests.core.factories import MS, make_category, make_profile, make_spec
from tests.core.states import make_state


def curve(*specs, profile=None):
    (found,) = curves_of(make_state(profile or make_profile(m=[1]), *specs))
    return found


class TestArrivals:
    def test_of_any_interval(self):
        found = curve(make_spec(10, 40, start_in=7), make_spec(30, 40, burst=2))
        # ceil(L / 10) and 2 ceil(L / 30).
        lengths = [0, 1, 10 * MS, 10 * MS + 1, 20 * MS, 60 * MS]
        assert found.within(ints(lengths)).tolist() == [0, 3, 3, 4, 4, 10]

    def test_jitter_lets_more_come_at_once(self):
        found = curve(make_spec(10, 40, jitter_ns=25 * MS))
        assert found.within(ints([1, 5 * MS, 5 * MS + 1])).tolist() == [3, 3, 4]

    def test_a_finite_stream_has_no_more_than_it_has(self):
        assert curve(make_spec(10, 40, frames=3)).within(ints([100 * MS])).tolist() == [3]

    def test_from_now_on_the_phase_is_known(self):
        state = make_state(make_profile(m=[1]), make_spec(10, 40, burst=2, jitter_ns=3 * MS))
        (found,) = curves_of(replace(state, streams=(replace(state.streams[0], earliest_ns=7 * MS),)))
        assert found.from_now(ints([7 * MS, 7 * MS + 1, 17 * MS, 17 * MS + 1])).tolist() == [0, 2, 2, 4]

    def test_what_should_have_come_may_come_now(self):
        state = make_state(make_profile(m=[1]), make_spec(10, 40))
        phase = replace(state.streams[0], jitter_ns=3 * MS, earliest_ns=-50 * MS)
        (found,) = curves_of(replace(state, streams=(phase,)))
        # Once, and the next group no earlier than 10 after the earliest instant at which this one was legal: -3.
        assert found.from_now(ints([0, 1, 7 * MS, 8 * MS])).tolist() == [1, 1, 1, 2]

    def test_without_a_known_phase_only_the_contract_bounds_a_stream(self):
        # Whatever it says of its start: where its grid lies is only known once frames come.
        state = make_state(make_profile(m=[1]), make_spec(10, 40, burst=3, start_in=7))
        (found,) = curves_of(state)
        assert found.from_now(ints([0, 5 * MS, 10 * MS, 16 * MS])).tolist() == [0, 3, 3, 6]


class TestSteady:
    def test_one_category(self):
        # W = 20: one frame of 10, and before it another: 20 - 1 ns.
        state, spec = make_state(make_profile(m=[10])), make_spec(100, 40)
        found = plan(state, spec)
        assert (found.verdict.admitted, found.blocking_ns) == (True, 10 * MS)
        assert found.verdict.worst_latency_ns == 40 * MS - 1
        verdict = evaluate(state, replace(spec, deadline_ns=38 * MS), "c")
        assert (verdict.test, verdict.phase, verdict.reason) == ("sporadic", 2, Reason.DEADLINE_MISS)
        miss = verdict.first_miss
        assert (miss.category, miss.streams, miss.frames) == (make_category(), ("c",), 1)
        assert (miss.release_ns, miss.deadline_ns, miss.finish_ns) == (0, 19 * MS, 20 * MS - 1)

    def test_another_category_blocks_once_and_demands_what_is_due(self):
        profile = make_profile(m=[4], other=[7])
        # W = 15 and 40. At 15: 4 + 7 - 1 ns. At 40: two windows of 4, and 7, and blocking.
        state, spec = make_state(profile, make_spec(200, 80, model="other")), make_spec(15, 30)
        found = evaluate(state, spec)
        assert found.admitted
        assert found.worst_latency_ns == 30 * MS - (15 - 4 - 7) * MS - 1
        assert evaluate(state, replace(spec, deadline_ns=20 * MS)).first_miss.finish_ns == 11 * MS - 1

    def test_more_frames_than_one_batch_make_more_jobs(self):
        # Three frames in W = 20: 8 and 6; blocked by 8.
        state = make_state(make_profile(m=[6, 8]))
        assert evaluate(state, make_spec(100, 44, burst=3)).admitted
        assert evaluate(state, make_spec(100, 43, burst=3)).first_miss.finish_ns == 22 * MS - 1
        assert evaluate(state, make_spec(100, 43, burst=3)).first_miss.frames == 2

    def test_jitter_brings_frames_together(self):
        state = make_state(make_profile(m=[6]))
        # W = 20: ceil((20 + 30) / 30) = 2 frames in one window; with a jitter of 45 it is 3.
        assert evaluate(state, make_spec(30, 40, jitter_ns=30 * MS)).admitted
        refused = evaluate(state, make_spec(30, 40, jitter_ns=45 * MS))
        assert (refused.first_miss.deadline_ns, refused.first_miss.finish_ns) == (20 * MS, 24 * MS - 1)

    def test_a_best_effort_frame_blocks_too(self):
        profile = make_profile(m=[10], slow=[11])
        state = replace(make_state(profile), best_effort=(make_category("slow"),))
        assert evaluate(state, make_spec(100, 40)).first_miss.finish_ns == 21 * MS - 1
        assert plan(state, make_spec(100, 42)).blocking_ns == 11 * MS

    def test_without_the_blocking_a_set_is_admitted_that_misses(self):
        # A starts at 0, 1 ns before B's window ends: B is due at 10 and ends at 8 + 3 = 11.
        state, spec = (
            make_state(make_profile(a=[8], b=[3]), make_spec(500, 100, model="a")),
            make_spec(100, 20, model="b"),
        )
        assert evaluate(state, spec).first_miss.finish_ns == 11 * MS - 1
        assert evaluate(make_state(make_profile(a=[7], b=[3]), make_spec(500, 100, model="a")), spec).admitted

    def test_too_much_work_in_the_long_run(self):
        # Phase 1's bound takes batches of two; windows may come with one frame in each as well.
        profile = make_profile(m=[10, 11])
        verdict = evaluate(make_state(profile), make_spec(9, 18))
        assert (verdict.phase, verdict.reason) == (2, Reason.UTILIZATION)
        assert verdict.utilization == pytest.approx(10 / 9)
        assert verdict.first_miss is None

    def test_finite_streams_end(self):
        # 3 frames of 10 every 9 for a while: the whole of it fits into the busy period, and the deadline is long.
        state = make_state(make_profile(m=[10]), config=EngineConfig(admission_test="sporadic"))
        assert evaluate(state, make_spec(9, 120, frames=3)).admitted
        refused = evaluate(state, make_spec(9, 120, frames=300))
        assert (refused.phase, refused.reason) == (1, Reason.UTILIZATION)

    def test_a_million_frames_in_one_window_are_not_followed(self):
        verdict = evaluate(make_state(make_profile(m=[0.001])), make_spec(0.5, 86_400_000))
        assert (verdict.phase, verdict.reason) == (2, Reason.BEYOND_HORIZON)

    def test_no_streams_at_all(self):
        demand = sporadic(make_state(make_profile(m=[1])), candidate=False)
        assert (demand.reason, demand.blocking_ns, demand.worst_latency_ns) == (None, 0, None)


class TestCarryIn:
    profile = make_profile(m=[2], slow=[10, 11, 12, 13])
    spec = make_spec(100, 40)  # W = 20

    def state(self, **changes):
        return replace(make_state(self.profile, make_spec(200, 200, model="slow", start_in=150)), **changes)

    def job(self, due, execution=10):
        return Job(0, make_category("slow"), (Frame("r", 0, 0, due * MS, 0),), 0, due * MS, execution * MS)

    @pytest.mark.parametrize(("free", "admitted"), [(38, True), (39, False)])
    def test_the_rest_of_the_running_job(self, free, admitted):
        # The first joint is at 20, due at 40: 2 and whatever runs on.
        verdict = evaluate(self.state(free_ns=free * MS), self.spec)
        assert verdict.admitted is admitted
        if not admitted:
            assert verdict.first_miss.category == make_category()
            assert (verdict.first_miss.release_ns, verdict.first_miss.deadline_ns) == (20 * MS, 40 * MS)
            assert verdict.first_miss.finish_ns == 41 * MS

    def test_ready_jobs_that_are_due_before(self):
        # The device is free at 20, then 10 and 10 that are due before 40, and 2.
        jobs = (self.job(30), self.job(39))
        assert evaluate(self.state(ready=jobs, free_ns=18 * MS), self.spec).admitted
        assert not evaluate(self.state(ready=jobs, free_ns=19 * MS), self.spec).admitted
        later = (self.job(30), self.job(41))
        assert evaluate(self.state(ready=later, free_ns=19 * MS), self.spec).admitted

    def test_a_ready_job_that_will_be_late(self):
        verdict = evaluate(self.state(ready=(self.job(30), self.job(31)), free_ns=12 * MS), self.spec)
        assert verdict.first_miss.category == make_category("slow")
        assert (verdict.first_miss.streams, verdict.first_miss.deadline_ns) == (("r",), 31 * MS)
        assert verdict.first_miss.finish_ns == 32 * MS

    def test_a_long_ready_job_may_block_later_ones(self):
        assert plan(self.state(ready=(self.job(300, 17),)), self.spec).blocking_ns == 17 * MS
        assert evaluate(self.state(ready=(self.job(300, 19),)), self.spec).first_miss.finish_ns == 21 * MS - 1

    def waiting(self, frames):
        state = make_state(make_profile(m=[2, 4, 6, 8, 10, 12]), make_spec(50, 100, frames=1, start_in=40))
        members = tuple(Frame("w", n, 0, 100 * MS, 3) for n in range(frames))
        known = replace(state.streams[0], earliest_ns=40 * MS)
        return replace(state, streams=(known,), windows=(replace(state.windows[0], waiting=(members,)),))

    @pytest.mark.parametrize(("frames", "admitted"), [(2, True), (3, False)])
    def test_a_window_that_shrinks_holds_more_than_it_ever_will_again(self, frames, admitted):
        # W = 15 with the candidate: two frames in any window, one of its own and the finite one. In this one its own
        # and those that wait; the finite one comes after its joint. Three are 6 long, four 8, and so is the job before
        # them: 16 - 1 ns > 15.
        spec = make_spec(100, 30)
        verdict = evaluate(self.waiting(frames), spec, "c")
        assert verdict.admitted is admitted
        if not admitted:
            assert verdict.first_miss.deadline_ns == 15 * MS
            assert verdict.first_miss.frames == frames + 1

    def test_frames_known_to_be_due_early_count(self):
        state = self.waiting(2)
        early = tuple(replace(frame, deadline_ns=52 * MS) for frame in state.windows[0].waiting[0])
        state = replace(state, windows=(replace(state.windows[0], waiting=(early,)),))
        (found,) = curves_of(state)
        assert found.first_due_ns == 52 * MS


class TestCost:
    def test_a_busy_period_without_end_is_refused_in_bounded_time(self):
        """One window of 200 s beside one of 1 ms: nothing fails in all the steps that are looked at."""
        config = EngineConfig(max_horizon_frames=10**6)
        state = make_state(make_profile(m=[0.4], wide=[0.4]), make_spec(1, 2), config=config)
        begin = time.process_time()
        verdict = evaluate(state, make_spec(0.7, 400_000, model="wide"))
        assert time.process_time() - begin < 0.5  # 20 ms; the limit is for slow machines
        assert (verdict.admitted, verdict.reason) == (False, Reason.BEYOND_HORIZON)

    def test_use_close_to_one_fails_some_step(self):
        state = make_state(make_profile(m=[0.4], wide=[0.4]), make_spec(1, 2))
        verdict = evaluate(state, make_spec(0.6667, 4_000, model="wide"))
        assert verdict.utilization == pytest.approx(1, abs=1e-4)
        assert verdict.first_miss.deadline_ns == 2_000 * MS

    def test_many_categories(self):
        names = [f"m{n}" for n in range(40)]
        profile = make_profile(**{name: [0.2, 0.3, 0.4, 0.5] for name in names})
        specs = [make_spec(20 + n, 60 + 5 * n, model=name, jitter_ns=n * MS) for n, name in enumerate(names)]
        state = make_state(profile, *specs[:-1])
        begin = time.process_time()
        assert evaluate(state, specs[-1]).admitted
        assert time.process_time() - begin < 0.2  # a few ms; the limit is for slow machines
