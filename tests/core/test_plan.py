"""What an admission test leaves behind: slots, windows, blocking; best effort; windows that grow (times in ms)."""

from dataclasses import replace

import pytest

from gateway.core.admission import evaluate, plan, widen
from gateway.core.config import EngineConfig
from gateway.core.types import Frame, Job, ServiceClass
from gateway.core.verdict import Reason
from tests.core.factories import MS, make_category, make_profile, make_spec
from tests.core.states import make_state

PROFILE = make_profile(m=[10, 14], slow=[60], quick=[1])


class TestPlan:
    """What a plan holds beside its verdict."""

    def test_of_the_exact_test(self):
        state = replace(make_state(PROFILE, make_spec(100, 60, frames=3)), generation=7, started=4)
        found = plan(state, make_spec(100, 40, frames=2, start_in=5, model="quick"), "b")
        assert (found.at_ns, found.generation, found.started, found.blocking_ns) == (0, 7, 4, 0)
        assert [(w.category.model, w.window_ns, w.joint_ns, w.changed) for w in found.windows] == [
            ("m", 30 * MS, 30 * MS, False),
            ("quick", 20 * MS, 20 * MS, False),
        ]
        assert [stream.stream_id for stream in found.streams] == ["s0", "b"]
        slots = found.slots
        # b at 5 and 105 for the joints 20 and 120; m at 0, 100, 200 for 30, 120, 210.
        assert slots.window.tolist() == [1, 0, 1, 0, 0]
        assert (slots.start // MS).tolist() == [20, 30, 120, 121, 210]
        assert (slots.deadline // MS).tolist() == [45, 60, 145, 160, 260]
        assert (slots.latest // MS).tolist() == [44, 50, 144, 150, 250]
        assert (slots.job == -1).all()
        assert slots.repeat_ns == 0

    def test_a_smaller_window_is_marked(self):
        state = make_state(PROFILE, make_spec(100, 60, frames=3))
        (window,) = plan(state, make_spec(100, 40, frames=3)).windows
        assert (window.window_ns, window.joint_ns, window.changed) == (20 * MS, 20 * MS, True)
        (window,) = plan(state, make_spec(100, 80, frames=3)).windows
        assert (window.window_ns, window.changed) == (30 * MS, False)

    def test_batches_that_exist_keep_their_ids(self):
        state = make_state(PROFILE, make_spec(200, 200, frames=3, start_in=12))
        frames = [Frame("w", n, 0, 200 * MS, 5 + n // 2) for n in range(3)]
        window = replace(state.windows[0], waiting=(tuple(frames[:2]), tuple(frames[2:])))
        job = Job(4, window.category, (Frame("r", 0, -20 * MS, 40 * MS, 4),), -MS, 40 * MS, 10 * MS)
        state = replace(state, windows=(window,), ready=(job,))
        slots = plan(state, make_spec(200, 200, frames=1, start_in=13)).slots
        # 12 and 13 arrive after the three that wait: one fills the second batch up, one opens a third.
        assert slots.job.tolist() == [4, 5, 6, -1, -1, -1]
        assert slots.chunk.tolist() == [0, 0, 1, 2, 0, 0]
        assert slots.size.tolist() == [1, 2, 2, 1, 1, 1]
        assert slots.release[:3].tolist() == [-MS, 100 * MS, 100 * MS]

    def test_without_the_guard_there_are_no_slots(self):
        state = make_state(PROFILE, config=EngineConfig(guard=False))
        assert plan(state, make_spec(frames=3)).slots is None

    def test_the_sporadic_test_needs_none(self):
        found = plan(make_state(PROFILE), make_spec(100, 60))
        assert (found.verdict.test, found.slots, found.blocking_ns) == ("sporadic", None, 10 * MS)

    def test_a_job_that_is_held_back_on_purpose_is_left_where_it_is(self):
        # Theory, section 2: at 73 a long job is ready and the plan lets it wait; EDF that takes it now is late.
        profile = make_profile(long=[17], a=[10], b=[20], c=[1])
        state = make_state(
            profile,
            make_spec(1000, 24, model="a", frames=1, start_in=2),  # joint 12, due 26
            make_spec(1000, 60, model="b", frames=1, start_in=2),  # joint 30, due 62
        )
        job = Job(0, make_category("long"), (Frame("r", 0, -40 * MS, 126 * MS, 0),), -5 * MS, 126 * MS, 17 * MS)
        asked = make_spec(1000, 200, model="c", frames=1)
        waits = replace(state, ready=(job,), planned_ns=(50 * MS,))
        assert plan(waits, asked).verdict.admitted
        assert (plan(waits, asked).slots.start // MS).tolist() == [12, 30, 50, 100]
        verdict = plan(replace(waits, planned_ns=()), asked).verdict
        assert verdict.first_miss.category.model == "a"


class TestBestEffort:
    spec = make_spec(100, 100, model="slow", service_class=ServiceClass.BEST_EFFORT)

    @pytest.mark.parametrize("others", [[], [make_spec(100, 60, frames=3)]])
    def test_it_needs_no_test_beside_a_plan(self, others):
        found = plan(make_state(PROFILE, *others), self.spec)
        assert (found.verdict.admitted, found.verdict.test) == (True, "none")
        assert found.slots is None
        assert len(found.streams) == len(others)

    def test_under_the_sporadic_test_one_of_its_frames_must_not_hold_others_up(self):
        state = make_state(PROFILE, make_spec(100, 100))
        assert (verdict := evaluate(state, self.spec)).reason is Reason.DEADLINE_MISS
        # W = 50: E(1) = 10 and one best-effort frame of 60.
        assert verdict.first_miss.finish_ns == 70 * MS - 1
        found = plan(state, replace(self.spec, model="quick"))
        assert (found.verdict.admitted, found.verdict.test, found.blocking_ns) == (True, "sporadic", 10 * MS)
        found = plan(make_state(PROFILE, make_spec(200, 200)), self.spec)
        assert (found.verdict.admitted, found.blocking_ns) == (True, 60 * MS)

    def test_its_own_figures_are_checked(self):
        state = make_state(PROFILE)
        assert evaluate(state, replace(self.spec, model="other")).reason is Reason.NOT_PROFILED
        assert evaluate(state, replace(self.spec, deadline_ns=59 * MS)).reason is Reason.DEADLINE_INFEASIBLE


class TestWiden:
    def test_windows_grow_after_their_joint(self):
        state = make_state(PROFILE, make_spec(100, 60, frames=2))
        found = widen(replace(state, windows=(replace(state.windows[0], widest_ns=90 * MS),)))
        assert found.verdict.admitted
        assert [(w.window_ns, w.joint_ns, w.changed) for w in found.windows] == [(90 * MS, 30 * MS, True)]
        # Frames at 0 and 100: joints 30 and 120.
        assert (found.slots.release // MS).tolist() == [30, 120]
        assert [s.stream_id for s in found.streams] == ["s0"]

    def test_nothing_to_grow(self):
        found = widen(make_state(PROFILE, make_spec(100, 60, frames=2)))
        assert found.verdict.admitted
        assert not found.windows[0].changed

    def test_growing_can_make_another_late(self):
        # B comes at 15 and 33. W = 15: two batches of 8 from the joints 30 and 45. W = 45:
        # the window [15, 60) takes both, 12 long from 60, and A, released at 66 and due at 72, ends at 73.
        profile = make_profile(a=[1], b=[8, 12, 14])
        state = make_state(
            profile,
            make_spec(40, 12, model="a", frames=3, start_in=20),
            make_spec(18, 90, model="b", frames=2, start_in=15),
        )
        a, b = state.windows
        narrow = replace(b, window_ns=15 * MS, narrowest_ns=15 * MS, joint_ns=15 * MS, widest_ns=15 * MS)
        assert widen(replace(state, windows=(a, narrow))).verdict.admitted
        verdict = widen(replace(state, windows=(a, replace(narrow, widest_ns=45 * MS)))).verdict
        assert (verdict.reason, verdict.first_miss.category.model) == (Reason.DEADLINE_MISS, "a")
        assert (verdict.first_miss.release_ns, verdict.first_miss.finish_ns) == (66 * MS, 73 * MS)

    def test_under_the_sporadic_test(self):
        profile = make_profile(m=[4, 7, 10], quick=[1])
        state = make_state(profile, make_spec(20, 60), make_spec(40, 24, model="quick"))
        grown = replace(state.windows[0], widest_ns=60 * MS)
        found = widen(replace(state, windows=(grown, state.windows[1])))
        # W = 60: three frames, 10 long. The quick one waits for one such job, and needs 1 of its own 12.
        assert (found.verdict.admitted, found.verdict.test, found.slots) == (True, "sporadic", None)
        assert [w.window_ns for w in found.windows] == [60 * MS, 12 * MS]
        assert found.blocking_ns == 10 * MS
