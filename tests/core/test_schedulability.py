"""Phase 1, its bounds, and the examples of theory, section 3 (times in ms)."""

import itertools
import random
from dataclasses import replace

import pytest

from gateway.core.admission import evaluate, with_candidate
from gateway.core.config import UtilizationTest
from gateway.core.profile import split
from gateway.core.schedulability import envelope, interval_demand, utilization
from gateway.core.types import NS_PER_S
from gateway.core.verdict import Reason
from tests.core.factories import MS, Drive, make_profile, make_spec


def planned(profile, *specs, **config):
    """The state after these streams at time 0, whatever the test says."""
    gate = Drive(profile, admit_all=True, **config)
    *admitted, last = specs
    gate.register(0, **{f"s{n}": spec for n, spec in enumerate(admitted)})
    return with_candidate(gate.engine.admission_state(0), last, "last")


class TestEnvelope:
    def test_a_concave_time_is_bounded_by_its_best_rate(self):
        assert envelope((0, 6, 8), 1) == pytest.approx(4)
        assert envelope((0, 6, 8), 5) == pytest.approx(20)

    def test_a_convex_time_is_followed(self):
        assert envelope((0, 1, 3, 7), 1.5) == pytest.approx(2)

    def test_beyond_the_lowest_point_it_is_the_line_of_full_batches(self):
        assert envelope((0, 1, 3, 7), 2) == pytest.approx(3)
        assert envelope((0, 1, 3, 7), 7) == pytest.approx(3 + 5 * 7 / 3)

    def test_it_is_the_largest_convex_function_below_the_split_time(self):
        rng = random.Random(3)
        for _ in range(200):
            table = tuple(itertools.accumulate([0] + [rng.randint(1, 9) for _ in range(rng.randint(1, 6))]))
            span = 20 * (len(table) - 1)
            points = [(n, split(table, n)) for n in range(span + 1)]
            for n in range(2 * len(table)):
                # A chord over the split function lies above its envelope; the lowest chord is the envelope.
                chords = [
                    (a[1] * (b[0] - n) + b[1] * (n - a[0])) / (b[0] - a[0])
                    for a in points[: n + 1]
                    for b in points[n:]
                    if b[0] > a[0]
                ]
                assert envelope(table, n) <= min(chords) + 1e-9
                assert envelope(table, n) >= min(chords) - table[-1] / 20, "and not lower than the horizon explains"


class TestUtilization:
    def test_it_counts_unbounded_streams_only(self):
        profile = make_profile(m=[10])
        state = planned(profile, make_spec(100, 100), make_spec(50, 100, frames=7), make_spec(200, 100))
        assert utilization(state) == pytest.approx(0.15)

    def test_the_papers_formula_refuses_a_feasible_set(self):
        # Frames of two categories come in alternate windows, two at a time: W = 10, E(1) = 0.6 W, E(2) = 0.65 W.
        profile = make_profile(a=[6, 6.5], b=[6, 6.5])
        specs = [make_spec(20, 20, model=model, start_in=start) for model, start in (("a", 1), ("b", 11)) for _ in "12"]
        answers = {}
        for test in UtilizationTest:
            gate = Drive(profile, early_dispatch=False, utilization_test=test, admission_test="exact")
            answers[test] = gate.register(0, **{f"s{n}": spec for n, spec in enumerate(specs)})[-1]
        refused = answers[UtilizationTest.DEEPRT]
        assert (refused.admitted, refused.phase, refused.reason) == (False, 1, Reason.UTILIZATION)
        assert refused.utilization == pytest.approx(1.2)
        assert answers[UtilizationTest.ENVELOPE].admitted
        assert answers[UtilizationTest.ENVELOPE].utilization == pytest.approx(0.65)

    def test_exactly_one_is_not_refused(self):
        profile = make_profile(m=[10])
        assert Drive(profile).register(0, a=make_spec(30, 60), b=make_spec(30, 60), c=make_spec(30, 60))[-1].phase == 2


class TestFiniteStreams:
    profile = make_profile(a=[20], b=[9, 18])

    def specs(self, frames):
        """W = 30 and U = 1.21 if they went on for ever."""
        a = make_spec(22, 60, model="a", frames=frames, start_in=10)
        return a, make_spec(30, 60, model="b", frames=frames, start_in=5)

    def verdict(self, frames):
        a, b = self.specs(frames)
        gate = Drive(self.profile, admit_all=True)
        gate.register(0, a=a)
        return evaluate(gate.engine.admission_state(0), b)

    def test_the_envelope_would_refuse_a_feasible_finite_set(self):
        assert utilization(planned(self.profile, *self.specs(None))) == pytest.approx(1.21, abs=0.01)
        assert self.verdict(2).admitted

    def test_unbounded_it_is_refused_by_phase_1(self):
        verdict = self.verdict(None)
        assert (verdict.phase, verdict.reason) == (1, Reason.UTILIZATION)

    def test_the_interval_condition_finds_an_overfull_end(self):
        demand = interval_demand(planned(self.profile, *self.specs(200)))
        assert demand > 1
        verdict = self.verdict(200)
        assert (verdict.phase, verdict.utilization) == (1, pytest.approx(demand))

    def test_it_counts_frames_between_arrival_and_deadline(self):
        # Three frames at 0, 10, 20 due by 40: 3 x 8 of 40; from 10 on, two of 30.
        state = planned(make_profile(m=[8]), make_spec(10, 20, frames=3))
        assert interval_demand(state) == pytest.approx(24 / 40)
        late = planned(make_profile(m=[8]), make_spec(10, 20, frames=3, start_in=35))
        assert interval_demand(late) == pytest.approx(24 / 40)

    def test_a_batch_is_charged_at_its_best_rate(self):
        state = planned(make_profile(m=[8, 10]), make_spec(10, 20, frames=3))
        assert interval_demand(state) == pytest.approx(15 / 40)

    def test_unbounded_streams_count_up_to_the_end_of_finite_ones(self):
        state = planned(make_profile(m=[8]), make_spec(10, 20), make_spec(1000, 40, frames=1))
        assert interval_demand(state) == pytest.approx((3 * 8 + 8) / 40)

    def test_groups_count_as_so_many_frames(self):
        # Groups of 3 at 0 and 10, the third broken off: 7 frames in [0, 40].
        state = planned(make_profile(m=[4]), make_spec(10, 20, frames=7, burst=3))
        assert interval_demand(state) == pytest.approx(28 / 40)
        assert utilization(planned(make_profile(m=[4]), make_spec(10, 20, burst=3))) == pytest.approx(1.2)

    def test_frames_that_should_have_come_come_now(self):
        state = planned(make_profile(m=[4]), make_spec(10, 20, frames=5, burst=3))
        phase = replace(state.streams[0], overdue=2, group_left=1, next_ns=10 * MS)
        # 2 at 0, 1 at 10, 2 at 20: 20 of 40; without them 12 of 30 from 10 on.
        assert interval_demand(replace(state, streams=(phase,))) == pytest.approx(20 / 40)

    def test_jitter_is_ignored(self):
        state = planned(make_profile(m=[8]), make_spec(10, 20, frames=3, jitter_ns=35 * MS))
        assert interval_demand(state) == pytest.approx(24 / 40)

    def test_enormous_counts_do_not_overflow(self):
        state = planned(make_profile(m=[1]), make_spec(10, 20, frames=10**30), make_spec(10, 20, frames=2))
        assert 0 < interval_demand(state) <= 1


def test_no_streams_ask_for_nothing():
    gate = Drive(make_profile(m=[1]))
    assert gate.engine.snapshot().utilization == 0
    assert interval_demand(gate.engine.admission_state(NS_PER_S)) == 0
