"""The test of models that take turns in memory, by hand (times in ms)."""

from dataclasses import replace

import pytest

from gateway.core.admission import evaluate, plan, widen, with_candidate
from gateway.core.arrival_curve import curves_of
from gateway.core.config import EngineConfig, ResidencyConfig
from gateway.core.plan_state import AdmissionState, MemoryState, TurnState
from gateway.core.swap_test import turns_of
from gateway.core.types import ServiceClass
from gateway.core.verdict import Reason
from tests.core.factories import MS, make_category, make_spec
from tests.properties.swap_rig import swap_profile

PROFILE = swap_profile({"a": [4], "b": [4], "p": [5]}, {"a": 10, "b": 20, "p": 30}, unload=10)
#: What is planned: a tenth more.
LOAD_A, LOAD_B, UNLOAD = 11, 22, 11


def camera(model, deadline=200, period=1000, **overrides):
    return make_spec(period, deadline, model=model, swapping=True, **overrides)


def state(*specs, profile=PROFILE, **memory):
    budget = MemoryState("models", 1, region=tuple(sorted({s.model for s in specs if s.swapping})), weight=1)
    config = EngineConfig(residency=ResidencyConfig(max_models=1, warm_up_factor=2))
    found = AdmissionState(0, 0, (), (), (), profile, config, memory=replace(budget, **memory))
    for n, spec in enumerate(specs):
        found = with_candidate(found, spec, f"s{n}")
    return found


def turns(found, blocking=4 * MS, **kwargs):
    return turns_of(found, curves_of(found), blocking, **kwargs)


class TestTheRegion:
    def test_turns_and_what_they_take(self):
        found = turns(state(camera("a", 400), camera("b", 600)))
        assert found.reason is None
        # d: at least one warm-up of 8, the longest job in the way, 8 too, and the batch: 20. More as the region allows.
        local = {category.model: ns / MS for category, ns in found.local_ns.items()}
        assert local["a"] >= 20
        assert local["a"] / 200 == local["b"] / 300
        # While a waits for b: 11 + 22 + d_b, and its own turn: 11 + 11 + d_a.
        longest = UNLOAD + LOAD_B + local["b"]
        assert found.evidence.longest_turn_ns / MS == UNLOAD + LOAD_B + 20
        assert longest + UNLOAD + LOAD_A + local["a"] <= 200
        assert longest + UNLOAD + LOAD_A + local["a"] > 200 - 2 * (200 + 300) / 64

    def test_warm_ups_are_of_one_frame_and_of_the_largest_batch(self):
        profile = swap_profile({"a": [4, 6, 7], "b": [4]}, {"a": 10, "b": 20}, unload=10)
        found = turns(state(camera("a", 400, burst=3), camera("b", 600), profile=profile))
        assert found.largest == {make_category("a"): 3, make_category("b"): 1}
        assert {category.model: ns / MS for category, ns in found.warm_ns.items()} == {"a": 8 + 14, "b": 8}
        assert found.longest_warm_up_ns == 14 * MS

    def test_one_that_does_not_come_round_in_time(self):
        # W = 60: b's turn of 11 + 22 + 20 and a's own of 11 + 11 + 20 do not fit.
        found = turns(state(camera("a", 120), camera("b", 600)))
        assert found.reason is Reason.SWAP
        assert found.evidence.late_ns == (UNLOAD + LOAD_B + 20 + UNLOAD + LOAD_A + 20 - 60) * MS - 1

    def test_a_use_of_one_is_refused(self):
        # Each window of 100 takes its turn: 42 + 53 is all of it but 5.
        specs = [camera("a", 200, 100), camera("b", 200, 100)]
        found = turns(state(*specs))
        assert found.reason is Reason.SWAP
        assert found.evidence.utilization == pytest.approx(0.95)
        assert turns(state(*specs, camera("b", 100, 100))).evidence.utilization > 1

    def test_rare_frames_take_rare_turns(self):
        often, rarely = turns(state(camera("a", period=100), camera("b"))), turns(state(camera("a"), camera("b")))
        assert often.evidence.utilization > rarely.evidence.utilization

    def test_a_model_whose_load_was_not_measured(self):
        found = turns(state(camera("a"), camera("b"), profile=swap_profile({"a": [4], "b": [4]}, {"a": 10})))
        assert (found.reason, found.evidence.late_ns) == (Reason.SWAP, None)

    def test_a_load_elsewhere_is_in_the_way(self):
        specs = [camera("a", 400), camera("b", 400)]
        slow = swap_profile({"a": [4], "b": [4], "p": [5]}, {"a": 10, "b": 20, "p": 300}, unload=10)
        assert turns(state(*specs, profile=slow)).reason is None
        assert turns(state(*specs, profile=slow, used=("p",))).reason is Reason.SWAP
        assert turns(state(*specs, profile=slow), generous=True).reason is Reason.SWAP

    def test_turns_leave_room_for_loads_elsewhere_if_they_can(self):
        found = state(camera("a", 400), camera("b", 400))
        # 33 for the load of p; with as long a d as possible 22 for that of b is all that it allows for.
        assert turns(found).longest_ns < 33 * MS
        assert turns(found, generous=True).longest_ns >= 33 * MS
        assert plan(found, camera("a", 400)).swap.longest_ns >= 33 * MS

    def test_longest_ns_is_what_turns_can_bear(self):
        found = state(camera("a", 400), camera("b", 400))
        bearable = turns(found).longest_ns
        assert bearable > 22 * MS
        loads = {"a": 10, "b": 20, "p": bearable / MS / 1.1 + 1}
        longer = swap_profile({"a": [4], "b": [4], "p": [5]}, loads, unload=10)
        # Then d has to be shorter, and with a shorter d more can be borne.
        assert turns(replace(found, profile=longer, memory=replace(found.memory, used=("p",)))).longest_ns > bearable


class TestFromNowOn:
    """The region as it is."""

    def specs(self):
        return state(camera("a", 400), camera("b", 400))

    def test_a_turn_that_waits_has_to_be_in_time(self):
        found = self.specs()
        waits = TurnState(make_category("a"), due_ns=300 * MS, window_ns=200 * MS, sizes=(1,))
        ok = replace(found, memory=replace(found.memory, waiting=(waits,)))
        assert turns(ok).reason is None
        assert turns(ok).under_way == ((turns(ok).local_ns[make_category("a")], (4 + 8) * MS),)
        late = replace(found, memory=replace(found.memory, waiting=(replace(waits, due_ns=30 * MS),)))
        assert turns(late).reason is Reason.SWAP

    def test_a_call_under_way_is_in_the_way(self):
        found = self.specs()
        assert turns(replace(found, memory=replace(found.memory, free_ns=20 * MS))).reason is None
        assert turns(replace(found, memory=replace(found.memory, free_ns=390 * MS))).reason is Reason.SWAP

    def test_models_that_have_to_go_first(self):
        found = self.specs()
        moved = replace(found.memory, moved=True, joined=("a", "b"), resident=tuple("abcdefghijklmnopq"))
        profile = swap_profile({"a": [4], "b": [4]}, dict.fromkeys(moved.resident, 10), unload=20)
        assert turns(replace(found, profile=profile, memory=moved)).reason is Reason.SWAP
        few = replace(moved, resident=("a",))
        assert turns(replace(found, profile=profile, memory=few)).reason is None

    def test_a_window_that_was_wider_is_left_over(self):
        found = self.specs()
        waits = TurnState(make_category("a"), due_ns=300 * MS, window_ns=200 * MS, sizes=(1,))
        same = turns(replace(found, memory=replace(found.memory, waiting=(waits,))))
        assert same.left_over == ()
        wider = replace(waits, window_ns=250 * MS)
        assert turns(replace(found, memory=replace(found.memory, waiting=(wider,)))).left_over == same.under_way


class TestTheDevice:
    def pinned(self, deadline, **memory):
        memory = {"budget": 2, "resident": ("p",)} | memory
        return state(
            camera("a", 400),
            camera("b", 400),
            make_spec(1000, deadline, model="p"),
            profile=PROFILE,
            region=("a", "b"),
            **memory,
        )

    def test_a_stream_that_stays_has_turns_beside_it(self):
        # W = 40 for the pinned one: its 5, the warm-up (8) and the job (4) of a turn of each model, and one job before.
        verdict = evaluate(self.pinned(80), make_spec(1000, 80, model="p"))
        assert verdict.admitted
        assert verdict.swap is not None

    def test_its_deadline_is_broken_by_turns(self):
        # W = 17 < 8 + 2 * 5: nothing of a turn is due so early, but a first execution may be in the way.
        verdict = evaluate(self.pinned(80), make_spec(1000, 34, model="p"))
        assert verdict.reason is Reason.DEADLINE_MISS
        assert verdict.first_miss is not None
        assert evaluate(state(make_spec(1000, 80, model="p")), make_spec(1000, 34, model="p")).admitted

    def test_the_plan_says_when_jobs_are_due_after_the_load(self):
        answer = plan(self.pinned(80), camera("a", 400))
        assert answer.verdict.admitted
        local = dict(answer.swap.local_ns)
        assert set(local) == {make_category("a"), make_category("b")}
        assert answer.blocking_ns >= 8 * MS  # first executions may be in the way
        assert answer.verdict.worst_latency_ns <= 400 * MS

    def test_best_effort_that_turns_cannot_bear_is_refused(self):
        slow = swap_profile({"a": [4], "b": [4], "p": [5]}, {"a": 10, "b": 20, "p": 300}, unload=10)
        found = state(camera("a", 400), camera("b", 400), profile=slow)
        verdict = evaluate(found, make_spec(model="p", service_class=ServiceClass.BEST_EFFORT))
        assert verdict.reason is Reason.SWAP
        assert evaluate(state(camera("a", 400), camera("b", 400)), make_spec(model="p", service_class="best_effort"))

    def test_windows_grow_if_turns_allow_it(self):
        for deadline, grows in ((800, True), (200, False)):
            found = state(camera("a", deadline), camera("b", deadline))
            windows = [replace(w, widest_ns=2 * w.window_ns) for w in found.windows]
            answer = widen(replace(found, windows=tuple(windows)))
            assert answer.verdict.admitted is grows
            assert (answer.swap is not None) is grows
