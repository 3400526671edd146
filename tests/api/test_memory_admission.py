"""Registrations where memory is short: refusals with figures, and models that take turns."""

from dataclasses import replace

import pytest

from gateway.api.admission import evidence, refusal
from gateway.api.memory_evidence import explain
from gateway.core.profile import ModelEntry
from gateway.core.types import NS_PER_MS, StreamSpec
from gateway.core.verdict import MemoryEvidence, Reason, SwapEvidence, Verdict
from gateway.errors import NotSchedulable
from gateway.runtime.results import Registration
from tests.api.served import Served, problem
from tests.stand_in import Model

SPEC = StreamSpec("echo", "1", (8, 8, 3), 100 * NS_PER_MS, 200 * NS_PER_MS)
MIB = 1 << 20


def found(**fields):
    verdict = Verdict(False, "sporadic", 0, **fields)
    return evidence(Registration(SPEC, verdict), lambda stream_id: "")


@pytest.fixture(scope="module")
def served():
    """Two models with room for one; both have been there."""
    with Served(Model("a"), Model("b"), residency={"max_models": 1}) as gateway:
        assert gateway.http.post("/v1/models/b/load").status_code == 200
        yield gateway


# ---------------------------------------------------------------- over HTTP


def test_models_that_do_not_fit_together_are_refused_with_the_figures(served):
    with served.stream(model="a") as stream:
        assert (stream["swapping"], stream["model_stays"]) == (False, "pinned")
        document = problem(served.register(model="b"), 409, "not_schedulable")
        assert document["evidence"]["reason"] == "memory"
        memory = document["evidence"]["memory"]
        assert memory == {"unit": "models", "needed": 1, "budget": 1, "free": 0, "held": {"a": 1}, "lost": 0}
        assert (
            "b needs 1 model of the budget of 1 model; what has to stay leaves 0 models (a 1 model)"
            in (document["detail"])
        )
        check = served.http.post(
            "/v1/admission/check", json={"model": "b", "shape": [8, 8, 3], "period_ms": 200, "deadline_ms": 400}
        )
        assert check.status_code == 200
        assert (check.json()["admitted"], check.json()["evidence"]["memory"]) == (False, memory)


def test_the_same_model_needs_no_room_of_its_own(served):
    with served.stream(model="a"), served.stream(model="a"):
        pass


def test_best_effort_is_refused_for_no_memory(served):
    with (
        served.stream(model="a"),
        served.stream(model="a", service_class="best_effort", deadline_ms=10_000) as stream,
    ):
        assert stream["model_stays"] == "on_demand"


# ---------------------------------------------------------------- in words


def test_a_refusal_for_memory_is_a_sentence():
    memory = MemoryEvidence("bytes", 90 * MIB, 128 * MIB, 56 * MIB, (("face", 72 * MIB),), lost=8 * MIB)
    error = refusal(found(reason=Reason.MEMORY, memory=memory), [], SPEC)
    assert isinstance(error, NotSchedulable)
    assert error.detail == (
        "echo needs 90.0 MiB of the budget of 128 MiB; what has to stay leaves 56.0 MiB (face 72.0 MiB); 8.0 MiB are"
        " lost. Models take turns in memory where all their streams say `swapping: true`: this one, and those of face"
        " as far as needed."
    )
    assert error.members["evidence"]["memory"]["held"] == {"face": 72 * MIB}


def test_who_else_would_have_to_take_turns_is_said():
    agrees = replace(SPEC, swapping=True)
    beside = MemoryEvidence("models", 1, 2, 0, (("face", 1), ("swap region", 1)))
    error = refusal(found(reason=Reason.MEMORY, memory=beside), [], agrees, searched=True)
    assert "those of face would have to as well" in error.detail
    assert "No single change" not in error.detail, "no rate helps"
    large = MemoryEvidence("bytes", 90 * MIB, 50 * MIB, 50 * MIB)
    assert "only a larger budget helps" in explain(found(reason=Reason.MEMORY, memory=large), SPEC)


def test_what_is_not_profiled_is_not_said_to_be_short_of_offers():
    assert "No single change" not in refusal(found(reason=Reason.NOT_PROFILED), [], SPEC, searched=True).detail


def test_what_is_not_sized_says_so():
    assert "the profile does not say how much it takes" in explain(found(reason=Reason.MEMORY), SPEC)


def test_only_some_holders_are_named():
    memory = MemoryEvidence("models", 1, 9, 0, tuple((f"m{n}", 1) for n in range(9)))
    said = explain(found(reason=Reason.MEMORY, memory=memory), SPEC)
    assert "m4 1 model and 4 more)" in said
    assert "m5" not in said


@pytest.mark.parametrize(
    ("late_ns", "said"),
    [
        (None, "up to 2100 ms each: 120 % of the time, by the longest loads and unloads of the profile."),
        (31 * NS_PER_MS, "up to 2100 ms each, and a window would come round 31 ms too late in the worst case."),
    ],
)
def test_turns_that_take_too_long(late_ns, said):
    swap = SwapEvidence(("face", "plate"), 90 * MIB, 1.2, 2_100 * NS_PER_MS, late_ns)
    answer = found(reason=Reason.SWAP, swap=swap)
    assert explain(answer, SPEC) == f"face, plate would take turns in memory, {said}"
    assert answer.swap.model_dump() == {
        "models": ["face", "plate"],
        "region": 90 * MIB,
        "utilization": 1.2,
        "longest_turn_ms": 2100.0,
        "late_ms": None if late_ns is None else 31.0,
    }


def test_swap_times_of_the_profile_are_what_turns_rest_on():
    """A budget of one, two streams that allow swapping, and loads that take a few milliseconds by the profile."""
    swaps = [ModelEntry(name, "1", 20.0, 20.0, MIB, swaps=5, load_max_ms=30.0, unload_max_ms=30.0) for name in "ab"]
    with Served(Model("a"), Model("b"), residency={"max_models": 1}, swaps=swaps) as gateway:
        wide = {"period_ms": 4_000, "deadline_ms": 4_000, "swapping": True}
        with gateway.stream(model="a", **wide), gateway.stream(model="b", **wide) as second:
            assert (second["swapping"], second["model_stays"]) == (True, "takes_turns")
            assert second["admission"]["swap"]["models"] == ["a", "b"]
            entries = {entry["name"]: entry for entry in gateway.http.get("/v1/models").json()["models"]}
            assert [entries[name]["swap_region"] for name in "ab"] == [True, True]
            refused = gateway.http.post("/v1/models/b/load")
            assert (refused.status_code, refused.json()["code"]) == (409, "model_takes_turns")
            assert "loaded when it has its turn" in refused.json()["detail"]
            assert gateway.stand_in.log("load") == [], "b never was in memory, and its profile was enough"
