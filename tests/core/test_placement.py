"""Memory in admission: which models stay, which take turns, and what a refusal says (times in ms)."""

import pickle
from dataclasses import replace

import pytest

from gateway.core.admission import counter_offers, evaluate, plan, with_candidate
from gateway.core.config import EngineConfig, ResidencyConfig
from gateway.core.plan_state import AdmissionState, MemoryState
from gateway.core.types import ServiceClass
from gateway.core.verdict import CounterOffer, MemoryEvidence, Reason
from tests.core.factories import make_spec
from tests.properties.swap_rig import swap_profile

TABLES = {"a": [2], "b": [2], "c": [2], "d": [2]}
LOADS = dict.fromkeys(TABLES, 5.0)
SIZES = {"a": 30, "b": 50, "c": 40, "d": 20}


def camera(model, deadline=1000, **overrides):
    return make_spec(overrides.pop("period", 500), deadline, model=model, **overrides)


def state(*specs, profile=None, memory=None, **config):
    """Streams s0, s1, ... admitted one after another; `memory` replaces fields of the budget of 100 bytes."""
    config.setdefault("residency", ResidencyConfig(budget_bytes=100))
    profile = swap_profile(TABLES, LOADS, sizes=SIZES) if profile is None else profile
    budget = replace(MemoryState("bytes", 100), **(memory or {}))
    found = AdmissionState(0, 0, (), (), (), profile, EngineConfig(**config), memory=budget)
    for n, spec in enumerate(specs):
        answer = plan(found, spec, f"s{n}")
        assert answer.verdict.admitted, answer.verdict
        found = after(found, answer, spec)
    return found


def after(before, answer, spec):
    """The state once `answer` is in force."""
    swap = answer.swap
    region = {} if swap is None else {"region": swap.models, "weight": swap.weight}
    memory = replace(before.memory, **({"region": (), "weight": 0} | region))
    return replace(with_candidate(before, spec, f"x{len(before.streams)}"), memory=memory)


class TestEverythingFits:
    def test_models_stay_as_long_as_they_fit(self):
        answer = plan(state(camera("a"), camera("b")), camera("d"))
        assert answer.verdict.admitted
        assert answer.swap is None
        assert answer.verdict.swap is None

    def test_one_model_counts_once_whatever_streams_it_has(self):
        assert evaluate(state(camera("b"), camera("b")), camera("b", swapping=True)).admitted

    def test_without_a_budget_nothing_is_said_of_memory(self):
        assert evaluate(replace(state(), memory=None), camera("b")).admitted

    def test_best_effort_is_not_refused_for_memory(self):
        full = state(camera("a"), camera("b"), camera("d"))
        assert evaluate(full, camera("c", service_class=ServiceClass.BEST_EFFORT)).admitted


class TestTooMuch:
    def test_the_refusal_has_the_figures(self):
        verdict = evaluate(state(camera("a"), camera("b")), camera("c"))
        assert (verdict.admitted, verdict.reason, verdict.phase) == (False, Reason.MEMORY, 0)
        assert verdict.memory == MemoryEvidence("bytes", 40, 100, 20, (("a", 30), ("b", 50)))

    def test_what_was_lost_and_what_is_pinned_counts(self):
        found = state(camera("a"), memory={"lost": 15, "fixed": ("d",)})
        verdict = evaluate(found, camera("b"))
        assert verdict.memory == MemoryEvidence("bytes", 50, 100, 35, (("a", 30), ("d", 20)), lost=15)

    def test_a_size_that_was_learnt_counts_rather_than_the_profiled_one(self):
        assert evaluate(state(camera("b"), memory={"sizes": (("b", 80),)}), camera("a")).reason is Reason.MEMORY

    def test_a_model_of_unknown_size_is_refused(self):
        profile = swap_profile(TABLES, {"a": 5.0}, sizes=SIZES)
        verdict = evaluate(state(profile=profile), camera("b", swapping=True))
        assert verdict.reason is Reason.MEMORY
        assert verdict.memory is not None
        assert verdict.memory.needed == 0

    def test_in_models_no_size_is_needed(self):
        found = state(profile=swap_profile(TABLES, {}), residency=ResidencyConfig(max_models=1))
        found = replace(found, memory=MemoryState("models", 1))
        assert evaluate(found, camera("b")).admitted

    def test_turns_are_offered_if_they_would_be_admitted(self):
        found = state(camera("a", swapping=True), camera("b"))
        assert counter_offers(found, camera("c"))[0] == CounterOffer("swapping", value=True)

    def test_turns_are_not_offered_where_nobody_would_share(self):
        found = state(camera("a"), camera("b"))
        assert "swapping" not in [offer.field for offer in counter_offers(found, camera("c"))]

    @pytest.mark.parametrize(
        "config",
        [{"admission_test": "exact"}, {"residency": ResidencyConfig(budget_bytes=100, synchronous=True)}],
    )
    def test_where_turns_cannot_be_tested_they_are_refused_for_memory(self, config):
        found = state(camera("a", frames=9, swapping=True), camera("b", frames=9), **config)
        verdict = evaluate(found, camera("c", frames=9, swapping=True))
        assert verdict.reason is Reason.MEMORY


class TestTurns:
    def test_the_most_tolerant_move_until_the_rest_fits(self):
        found = state(camera("a", 2000, swapping=True), camera("b", 1500, swapping=True))
        answer = plan(found, camera("c", 1000, swapping=True))
        assert answer.verdict.admitted
        # b stays and c joins a? 50 + max(30, 40) fits, but a and b are more tolerant: max(30, 50) + 40.
        assert answer.swap.models == ("a", "b")
        assert answer.swap.weight == 50
        assert answer.verdict.swap.models == ("a", "b")
        assert answer.verdict.test == "sporadic"

    def test_one_stream_that_does_not_allow_it_keeps_its_model_out(self):
        found = state(camera("a", 2000, swapping=True), camera("a", 3000), camera("b", swapping=True))
        answer = plan(found, camera("c", 1000, swapping=True))
        assert answer.swap.models == ("b", "c")
        assert answer.swap.weight == 50

    def test_a_model_stays_in_the_region_while_others_share_it(self):
        found = state(*(camera(m, swapping=True) for m in "abc"))
        assert found.memory.region == ("a", "b")
        verdict = evaluate(found, camera("a"))
        assert verdict.reason is Reason.MEMORY

    def test_with_finite_streams_too_the_sporadic_test_decides(self):
        found = state(*(camera(m, swapping=True, frames=9) for m in "ab"))
        assert plan(found, camera("c", swapping=True, frames=9)).verdict.test == "sporadic"

    def test_a_model_alone_in_the_region_leaves_it_when_all_would_fit(self):
        found = state(*(camera(m, swapping=True) for m in "abc"))
        left = [s for s in found.streams if s.category.model != "b"]
        windows = [w for w in found.windows if w.category.model != "b"]
        found = replace(found, streams=tuple(left), windows=tuple(windows))
        assert plan(found, camera("d")).swap.models == ("a",)
        there = replace(found, memory=replace(found.memory, resident=("a",)))
        assert plan(there, camera("d")).swap is None

    def test_the_answer_can_be_made_in_another_process(self):
        found = state(*(camera(m, swapping=True) for m in "abc"))
        assert pickle.loads(pickle.dumps(found)) == found
