"""Delays that are asked for over HTTP, and what the API and the metrics show of a category that pays them back."""

import httpx
import pytest

from tests.api.served import FRAME, LARGE, SMALL, Served, problem

LARGE_FRAME = bytes(16 * 16 * 3)


@pytest.fixture(scope="module")
def served():
    with Served(fault_injection=True) as gateway:
        yield gateway


def ask(served, **body):
    return served.http.post("/v1/faults", json=body)


def test_without_the_flag_there_is_no_such_route():
    with Served() as plain:
        assert "--fault-injection" in problem(ask(plain, jobs=1, delay_ms=1), 404, "not_found")["detail"]
        assert "/v1/faults" not in plain.http.get("/openapi.json").json()["paths"]


def test_the_next_jobs_carry_it(served):
    answer = ask(served, jobs=1, delay_ms=250.4, model="echo")
    assert (answer.status_code, answer.json()) == (200, {"jobs": 1, "delay_ms": 250.4, "model": "echo"})
    with served.stream(burst=2) as stream:
        for _ in range(2):
            assert served.http.post(stream["frames_url"], content=FRAME).status_code == 200
    delays = [call.parameters.get("framegate_delay_ms") for call in served.stand_in.log("infer")]
    assert delays[-2:] == [250, None]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"jobs": 1},
        {"jobs": -1, "delay_ms": 1},
        {"jobs": 1.5, "delay_ms": 1},
        {"jobs": 1, "delay_ms": 60_001},
        {"jobs": 1, "delay_ms": 1, "model": "../m"},
        {"jobs": 1, "delay_ms": 1, "more": 1},
    ],
)
def test_what_is_not_valid_is_refused(served, body):
    problem(ask(served, **body), 422, "invalid_request")


def test_a_model_that_is_not_there_has_no_jobs(served):
    said = problem(ask(served, jobs=1, delay_ms=1, model="centerfce"), 404, "unknown_model")["detail"]
    assert "centerfce" in said
    assert "GET /v1/models" in said


def test_numbers_are_finite(served):
    json = {"content-type": "application/json"}
    problem(
        served.http.post("/v1/faults", content='{"jobs": 1, "delay_ms": NaN}', headers=json), 422, "invalid_request"
    )


def test_it_takes_json_alone(served):
    problem(
        httpx.post(f"{served.url}/v1/faults", content=b"{}", headers={"content-type": "text/plain"}),
        415,
        "unsupported_media_type",
    )


def test_a_penalty_shows_in_the_stream_the_results_and_the_metrics(served):
    with served.stream(shape=LARGE, burst=4, deadline_ms=2_000) as stream:

        def send():
            (result,) = served.http.post(stream["frames_url"], content=LARGE_FRAME).json()["results"]
            return result

        def state():
            found = served.http.get(f"/v1/streams/{stream['stream_id']}").json()
            return found["penalty_ms"], found["degraded_shape"]

        assert send()["degraded"] is False
        assert state() == (0, None)
        served.stand_in.delay_s = lambda call: 0.06
        served.http.post(stream["frames_url"], content=LARGE_FRAME)
        served.stand_in.delay_s = lambda call: 0.0
        penalty_ms, shape = state()
        assert 20 <= penalty_ms < 40
        assert tuple(shape) == SMALL
        counters = served.counters()
        assert counters["framegate_penalty_seconds", "echo", "16x16x3"] == pytest.approx(penalty_ms / 1_000)
        assert counters["framegate_degraded", "echo", "16x16x3"] == 1
        assert counters["framegate_overrun_seconds_total", "overrun", "echo"] >= 0.02
        result = send()
        assert (result["degraded"], tuple(result["shape"])) == (True, SMALL)
        assert result["outputs"]["echo"]["shape"] == list(SMALL)
        assert state() == (0, None)  # a job of 40 ms that took about 2
        assert send()["degraded"] is False
        counters = served.counters()
        assert counters["framegate_frames_degraded_total", "echo"] == 1
        assert counters["framegate_degraded", "echo", "16x16x3"] == 0
    assert ("framegate_penalty_seconds", "echo", "16x16x3") not in served.counters()
