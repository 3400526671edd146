import json
import re

import pytest

from gateway.api.admission import counter_offers, evidence, refusal
from gateway.core import verdict as core
from gateway.core.types import Category, StreamSpec
from gateway.runtime.results import Registration
from tests.api.served import FRAME, LARGE, SMALL, problem, wait_until
from tests.core.factories import make_profile


def test_a_registered_stream_can_be_looked_at_and_closed(served):
    answer = served.register(name="front door", frames=1000, on_late="serve")
    assert answer.status_code == 201
    stream = answer.json()
    admission = stream.pop("admission")
    assert admission["test"] == "exact"  # it is finite, and alone
    assert admission["reason"] is None
    assert 0 < admission["worst_latency_ms"] <= 400
    assert re.fullmatch(r"[0-9a-f]{16}", stream["stream_id"])
    assert stream == {
        "stream_id": stream["stream_id"],
        "name": "front door",
        "state": "active",
        "close_reason": "",
        "model": "echo",
        "version": "1",
        "tested_version": "1",
        "retest": False,
        "shape": [8, 8, 3],
        "dtype": "UINT8",
        "frame_bytes": 192,
        "period_ms": 200.0,
        "fps": 5.0,
        "deadline_ms": 400.0,
        "frames": 1000,
        "burst": 1,
        "jitter_ms": 0.0,
        "on_late": "serve",
        "on_excess": "refuse",
        "service_class": "real_time",
        "swapping": False,
        "model_stays": "pinned",
        "accepted": 0,
        "demoted": 0,
        "refused": {},
        "in_flight": 0,
        "outcomes": {"met": 0, "missed": 0, "expired": 0, "cancelled": 0, "failed": 0},
        "worst_latency_ms": admission["worst_latency_ms"],
        "observed_worst_latency_ms": None,
        "out_of_order": 0,
        "penalty_ms": 0.0,
        "degraded_shape": None,
        "promise": "kept",
        "promise_evidence": None,
        "suspect": False,
        "frames_url": f"/v1/streams/{stream['stream_id']}/frames",
        "results_url": f"/v1/streams/{stream['stream_id']}/results",
        "events_url": f"/v1/streams/{stream['stream_id']}/events",
        "ws_url": f"/v1/streams/{stream['stream_id']}/ws",
    }
    url = answer.headers["location"]
    assert served.http.get(url).json() == stream
    assert served.http.get("/v1/streams").json()["streams"] == [stream]
    closed = served.http.delete(url)
    assert closed.status_code == 200
    assert closed.json()["state"] == "closed"
    assert served.http.delete(url).json()["state"] == "closed"
    assert served.http.get(url).json()["state"] == "closed"
    assert served.http.get("/v1/streams").json()["streams"] == []


def test_fps_is_another_way_to_say_period(served):
    with served.stream(period_ms=None, fps=8) as stream:
        assert (stream["period_ms"], stream["fps"]) == (125.0, 8.0)


def test_the_version_may_be_asked_for(served):
    with served.stream(version="1") as stream:
        assert stream["version"] == "1"


def test_a_refusal_has_evidence_and_offers(served):
    # A batch of the first takes 40 ms, longer than the second's window of 30 ms: in the worst case it is in the way.
    with served.stream(name="front door", shape=LARGE, period_ms=83, deadline_ms=253) as first:
        wanted = {"period_ms": 47, "deadline_ms": 60, "name": "yard"}
        document = problem(served.register(**wanted), 409, "not_schedulable")
        evidence = document["evidence"]
        assert (evidence["test"], evidence["phase"], evidence["reason"]) == ("sporadic", 2, "deadline_miss")
        miss = evidence["first_miss"]
        assert miss["late_ms"] == pytest.approx(miss["finish_ms"] - miss["deadline_ms"])
        assert miss["late_ms"] > 0
        names = dict(zip(miss["streams"], miss["names"], strict=True))
        assert names.items() <= {first["stream_id"]: "front door", "this": "yard"}.items()
        assert miss["model"] == "echo"
        assert any(name in document["detail"] for name in names.values())
        assert "if cameras send at the worst moments that they may" in document["detail"]
        assert document["detail"].startswith("It would be admitted with deadline_ms "), "what helps comes first"

        offers = {offer["field"]: offer for offer in document["counter_offers"]}
        assert offers["deadline_ms"]["value"] > 60
        assert served.http.get("/v1/streams").json()["streams"][0]["stream_id"] == first["stream_id"]


def test_offers_are_in_the_units_of_http():
    offers = [
        core.CounterOffer("period_ns", 250_000_000),
        core.CounterOffer("deadline_ns", 1_500_000),
        core.CounterOffer("shape", (4, 4, 3)),
    ]
    assert [offer.model_dump(exclude_none=True) for offer in counter_offers(offers)] == [
        {"field": "period_ms", "value": 250.0, "fps": 4.0},
        {"field": "deadline_ms", "value": 1.5},
        {"field": "shape", "value": (4, 4, 3)},
    ]


def test_too_much_of_the_device_is_refused_in_phase_1(served):
    document = problem(served.register(period_ms=1, deadline_ms=100), 409, "not_schedulable")
    assert document["evidence"]["phase"] == 1
    assert document["evidence"]["reason"] == "utilization"
    assert document["evidence"]["utilization"] > 1
    assert document["evidence"]["first_miss"] is None


def test_a_deadline_below_twice_one_frame_is_explained(served):
    wanted = {"name": "", "deadline_ms": 11, "period_ms": 1_000, "start_in_ms": 1}
    document = problem(served.register(**wanted, frames=5), 409, "not_schedulable")
    assert document["evidence"]["test"] == "exact"
    assert "a batch of 1 of this stream would end" in document["detail"]
    assert "half its deadline" in document["detail"]
    unbounded = problem(served.register(**wanted), 409, "not_schedulable")
    assert unbounded["evidence"]["test"] == "sporadic"
    assert "frames of this stream would be answered" in unbounded["detail"]
    assert "half its deadline" in unbounded["detail"]


def test_bursts_and_jitter_are_part_of_the_contract(served):
    with served.stream(burst=3, jitter_ms=12.5, period_ms=400) as stream:
        assert (stream["burst"], stream["jitter_ms"], stream["fps"]) == (3, 12.5, 2.5)
        # Six frames may come in one window of 200 ms at these figures: 24 + 12 ms, and as much in the way.
        looked_at = served.http.get(f"/v1/streams/{stream['stream_id']}").json()
        assert (looked_at["burst"], looked_at["jitter_ms"]) == (3, 12.5)


def test_admission_counts_on_bursts_and_jitter(served):
    body = {"model": "echo", "shape": SMALL, "period_ms": 100, "deadline_ms": 100}

    def answer(**fields):
        return served.http.post("/v1/admission/check", json={**body, **fields}).json()

    assert answer()["admitted"]
    assert answer(burst=2)["admitted"]
    assert answer(burst=2)["evidence"]["utilization"] > answer()["evidence"]["utilization"]
    assert not answer(burst=32)["admitted"]
    # With so much jitter several periods' frames may come in one window.
    assert not answer(jitter_ms=2_000)["admitted"]


def test_a_check_says_in_a_sentence_what_a_registration_would(served):
    def asked(**fields):
        body = {"model": "echo", "shape": SMALL, "period_ms": 100, **fields}
        return served.http.post("/v1/admission/check", json=body).json()

    fits = asked(deadline_ms=200)
    worst_ms = fits["evidence"]["worst_latency_ms"]
    assert fits["detail"] == f"It fits; the sporadic test decided, worst latency {worst_ms:.0f} ms."
    for wanted in ({"deadline_ms": 11}, {"deadline_ms": 5}):
        refused = served.register(period_ms=100, **wanted).json()
        assert asked(**wanted)["detail"] == refused["detail"]
        assert refused["counter_offers"]
        assert "No single change" not in refused["detail"]


@pytest.mark.parametrize("searched", [True, False])
def test_that_nothing_else_would_fit_is_said_only_after_a_search(searched):
    verdict = core.Verdict(admitted=False, test="sporadic", phase=1, reason=core.Reason.UTILIZATION, utilization=1.5)
    answer = Registration(StreamSpec("echo", "1", (8, 8, 3), 10**8, 10**8), verdict)
    found = evidence(answer, str)
    told = refusal(found, [], answer.spec, searched=searched).detail
    assert ("No single change" in told) is ("up to 16 times as long were tried" in told) is searched
    offers = counter_offers([core.CounterOffer("period_ns", 10**9)])
    assert "No single change" not in refusal(found, offers, answer.spec, searched=searched).detail


@pytest.mark.parametrize(
    ("streams", "due_ms", "finish_ms", "half"),
    [
        (("door", "mine"), 40, 60, True),
        (("door", "mine"), 40, 400, True),
        (("door", "mine"), 150, 190, True),
        (("door", "mine"), 150, 191, False),
        (("door",), 40, 60, True),
        (("door",), 40, 400, False),
    ],
)
def test_the_half_is_explained_beside_other_streams_where_it_is_the_reason(streams, due_ms, finish_ms, half):
    release_ns, due_ns, finish_ns = ((due_ms - 40) * 10**6, due_ms * 10**6, finish_ms * 10**6)
    category = Category("echo", "1", (8, 8, 3))
    miss = core.FirstMiss(category, streams, 2, release_ns, due_ns, finish_ns)
    verdict = core.Verdict(admitted=False, test="sporadic", phase=2, reason=core.Reason.DEADLINE_MISS, first_miss=miss)
    answer = Registration(StreamSpec("echo", "1", (8, 8, 3), 10**8, 80_000_000), verdict, candidate="mine")
    told = refusal(evidence(answer, str), [], answer.spec).detail
    assert f"there are {due_ms}.0 ms for it." in told
    assert ("half its deadline" in told) is half


def test_the_worst_latency_is_predicted_and_observed(served):
    with served.stream(frames=10) as stream:
        url = f"/v1/streams/{stream['stream_id']}"
        for _ in range(3):
            answered = served.http.post(f"{url}/frames", content=FRAME).json()["results"][0]
            state = served.http.get(url).json()
            assert state["observed_worst_latency_ms"] >= answered["latency_ms"]
        assert state["worst_latency_ms"] == stream["admission"]["worst_latency_ms"] > 0


def test_a_miss_of_many_streams_is_told_shortly():
    category = Category("echo", "1", (8, 8, 3))
    ids = tuple(f"id{number}" for number in range(9))
    miss = core.FirstMiss(category, (*ids, "mine"), 10, 0, 50_000_000, 60_000_000)
    verdict = core.Verdict(admitted=False, test="sporadic", phase=2, reason=core.Reason.DEADLINE_MISS, first_miss=miss)
    answer = Registration(StreamSpec("echo", "1", (8, 8, 3), 10**8, 10**8, name="yard"), verdict, candidate="mine")
    found = evidence(answer, lambda stream_id: f"camera {stream_id}")
    assert found.first_miss.streams == [*ids, "this"]
    assert found.first_miss.names[-1] == "yard"
    told = refusal(found, [], answer.spec).detail
    assert "camera id4 and 5 more would be answered 10.0 ms after their deadline" in told


@pytest.mark.parametrize(("test", "advice"), [("exact", "admission_test"), ("sporadic", "shorten the deadline")])
def test_what_is_beyond_the_limit_is_explained(test, advice):
    verdict = core.Verdict(admitted=False, test=test, phase=2, reason=core.Reason.BEYOND_HORIZON)
    answer = Registration(StreamSpec("echo", "1", (8, 8, 3), 10**8, 10**8), verdict)
    told = refusal(evidence(answer, str), [], answer.spec).detail
    assert advice in told
    assert "scheduling.max_horizon_frames" in told


def test_a_deadline_below_one_frame_is_infeasible(served):
    document = problem(served.register(deadline_ms=5), 422, "deadline_infeasible")
    assert document["evidence"]["phase"] == 0
    one_ms = served.http.get("/v1/profile").json()["entries"][0]["p99_ms"]
    assert f"takes {one_ms:.1f} ms by the profile, longer than the deadline of 5 ms" in document["detail"]
    assert f"has to be at least twice that, {2 * one_ms:.1f} ms" in document["detail"]


def test_a_shape_without_times_is_not_profiled(served):
    document = problem(served.register(shape=[9, 9, 3]), 409, "not_profiled")
    assert "framegate profile" in document["detail"]
    assert "Profiled shapes of it: " in document["detail"]
    assert "[8, 8, 3] UINT8 (version 1)" in document["detail"]


@pytest.mark.parametrize(
    ("tables", "said"),
    [({}, "The profile is empty."), ({"m": [1], "n": [1]}, "Profiled models: m, n."), ({"echo": [9]}, "of it: [8, 8,")],
)
def test_what_is_profiled_instead_is_listed(tables, said):
    verdict = core.Verdict(admitted=False, test="sporadic", phase=0, reason=core.Reason.NOT_PROFILED)
    answer = Registration(StreamSpec("echo", "1", (7, 7, 3), 10**8, 10**8), verdict)
    assert said in refusal(evidence(answer, str), [], answer.spec, profile=make_profile(**tables)).detail


@pytest.mark.parametrize(("phase", "said"), [(1, "at least 101.2 %"), (2, "could be asked for 101.2 %")])
def test_too_much_work_is_told_as_a_bound_or_as_the_worst_case(phase, said):
    reason = core.Reason.UTILIZATION
    verdict = core.Verdict(admitted=False, test="sporadic", phase=phase, reason=reason, utilization=1.012)
    answer = Registration(StreamSpec("echo", "1", (8, 8, 3), 10**8, 10**8), verdict)
    told = refusal(evidence(answer, str), [], answer.spec).detail
    assert said in told
    assert ("in the worst case" in told) is (phase == 2)


def test_a_check_changes_nothing(served):
    body = {"model": "echo", "shape": SMALL, "period_ms": 200, "deadline_ms": 400}
    before = served.http.get("/v1/streams").json()
    answer = served.http.post("/v1/admission/check", json=body)
    assert answer.status_code == 200
    assert answer.json()["admitted"] is True
    assert answer.json()["version"] == "1"
    assert answer.json()["counter_offers"] == []
    refused = served.http.post("/v1/admission/check", json={**body, "period_ms": 1})
    assert refused.status_code == 200
    assert refused.json()["admitted"] is False
    assert refused.json()["evidence"]["reason"] == "utilization"
    rates = [offer for offer in refused.json()["counter_offers"] if offer["field"] == "period_ms"]
    assert rates[0]["value"] > 1
    assert rates[0]["fps"] == pytest.approx(1000 / rates[0]["value"])
    infeasible = served.http.post("/v1/admission/check", json={**body, "deadline_ms": 5})
    assert infeasible.json()["evidence"]["reason"] == "deadline_infeasible"
    assert served.http.get("/v1/streams").json() == before


def test_shape_and_dtype_are_checked_against_the_model(served):
    document = problem(served.register(shape=[8, 8]), 422, "shape_mismatch")
    assert document["expected"] == [-1, -1, 3]
    problem(served.register(shape=[8, 8, 4]), 422, "shape_mismatch")
    problem(served.register(shape=[1, 8, 8, 3]), 422, "shape_mismatch")
    document = problem(served.register(dtype="FP32"), 422, "dtype_mismatch")
    assert (document["expected"], document["received"]) == ("UINT8", "FP32")


def test_a_model_that_is_not_there(served):
    problem(served.register(model="nosuch"), 404, "unknown_model")
    problem(served.register(version="2"), 404, "unknown_model")


@pytest.mark.parametrize("stream_id", ["nosuch", "a" * 5_000, "%00", "..", "%2e%2e", "a%20b", "ä", "0" * 16])
def test_a_stream_that_is_not_there(served, stream_id):
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/results"), ("POST", "/frames")):
        answer = served.http.request(method, f"/v1/streams/{stream_id}{path}")
        assert answer.status_code == 404, (method, path)
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.content) < 1_000


def test_the_utilization_of_the_list_is_what_is_admitted(served):
    assert served.http.get("/v1/streams").json()["utilization"] == 0
    with served.stream() as stream:
        listed = served.http.get("/v1/streams").json()
        assert listed["utilization"] == pytest.approx(stream["admission"]["utilization"])


def test_registrations_are_counted_by_answer(served):
    before = served.counters()
    with served.stream():
        served.register(model="nosuch")
    after = served.counters()
    for result in ("admitted", "unknown_model"):
        key = ("framegate_registrations_total", result)
        assert after[key] - before.get(key, 0) == 1


def test_the_time_to_a_verdict_is_measured_by_call_and_test(served):
    name = "framegate_admission_seconds_count"
    before = served.counters()
    with served.stream():
        served.http.post("/v1/admission/check", json={"model": "echo", "shape": SMALL, "fps": 1, "deadline_ms": 400})
    after = served.counters()
    for call in ("register", "check"):
        assert after[name, call, "sporadic"] - before.get((name, call, "sporadic"), 0) == 1


def test_a_client_that_goes_away_before_its_turn_has_registered_nothing(served):
    before = served.counters()
    body = json.dumps({"model": "echo", "shape": SMALL, "period_ms": 200, "deadline_ms": 400}).encode()
    head = (
        f"POST /v1/streams HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    registrar = served.gateway._parts.registrar
    served.run(registrar._turn.acquire())
    with served.connect() as connection:
        connection.sendall(head.encode() + body)
        wait_until(lambda: registrar._waiting == 1, "the registration does not wait")
    wait_until(lambda: registrar._waiting == 0, "it still waits though nobody does")
    served.call(registrar._turn.release)
    with served.stream() as stream:  # the turn is free, and only this one is there
        listed = served.http.get("/v1/streams").json()["streams"]
        assert [one["stream_id"] for one in listed] == [stream["stream_id"]]
    counted = ("framegate_registrations_total", "client_gone")
    assert served.counters()[counted] - before.get(counted, 0) == 1


def test_every_answer_to_a_registration_is_counted(served):
    before = served.counters()
    with served.stream():
        pass
    served.register(model="no")
    served.register(deadline_ms=-1)
    served.http.post("/v1/streams", content=b"{", headers={"content-type": "application/json"})
    served.http.post("/v1/streams", content=b"{}", headers={"content-type": "text/plain"})
    served.http.post("/v1/admission/check", content=b"{}", headers={"content-type": "text/plain"})
    after = served.counters()
    name = "framegate_registrations_total"
    grown = {key[1]: after[key] - before.get(key, 0) for key in after if key[0] == name}
    assert {result: count for result, count in grown.items() if count} == {
        "admitted": 1,
        "unknown_model": 1,
        "invalid_request": 2,
        "unsupported_media_type": 1,
    }
