"""Contracts over HTTP: what is surplus, what is demoted, what has no promise at all."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.api.served import Served, problem, wait_until

FRAME = bytes(192)


@pytest.fixture(scope="module")
def shared():
    served = Served(
        scheduling={"policing": True, "default_jitter_ms": 10}, best_effort={"max_waiting": 4, "window_ms": 50}
    ).start()
    yield served
    served.stop()


def post(served, stream, count=1, **query):
    return served.http.post(stream["frames_url"], content=FRAME * count, params=query)


def state(served, stream):
    return served.http.get(f"/v1/streams/{stream['stream_id']}").json()


def test_surplus_is_429_and_says_when_to_come_back(served):
    with served.stream(period_ms=2_000, deadline_ms=400, jitter_ms=100) as stream:
        assert post(served, stream).status_code == 200
        answer = post(served, stream)
        document = problem(answer, 429, "frame_surplus")
        assert document["stream_id"] == stream["stream_id"]
        assert 1_500 < document["retry_after_ms"] <= 1_900
        assert answer.headers["retry-after"] == "2"
        assert "2000 ms, up to 100 ms late" in document["detail"]
        time.sleep(document["retry_after_ms"] / 1e3)
        assert post(served, stream).status_code == 200
        found = state(served, stream)
        assert (found["accepted"], found["refused"], found["demoted"]) == (2, {"surplus": 1}, 0)


def test_a_body_is_taken_whole_or_not_at_all(served):
    with served.stream(period_ms=1_000, deadline_ms=800, burst=2) as stream:
        document = problem(post(served, stream, 3), 429, "frame_surplus")
        assert document["retry_after_ms"] is None, "three frames never come together"
        assert "retry-after" not in post(served, stream, 3).headers
        assert post(served, stream, 2).status_code == 200, "the refused ones have used nothing up"
        assert state(served, stream)["refused"] == {"surplus": 6}


def test_refused_frames_are_counted_by_reason(served):
    with served.stream() as stream:
        before = served.counters().get(("framegate_refused_total", "surplus"), 0)
        post(served, stream)
        post(served, stream)
        assert served.counters()["framegate_refused_total", "surplus"] == before + 1


def test_surplus_may_be_demoted(served):
    with served.stream(period_ms=1_000, deadline_ms=800, burst=2, on_excess="best_effort") as stream:
        results = post(served, stream, 4).json()["results"]
        assert [result["demoted"] for result in results] == [False, False, True, True]
        assert [result["seq"] for result in results] == [0, 1, 2, 3]
        assert {result["outcome"] for result in results} == {"met"}
        found = state(served, stream)
        assert (found["on_excess"], found["accepted"], found["demoted"]) == ("best_effort", 4, 2)
        problem(post(served, stream, 5), 429, "frame_surplus")  # more than may wait


@pytest.mark.parametrize(
    ("fields", "jitter_ms"),
    [({"period_ms": 200}, 10), ({"period_ms": 20, "deadline_ms": 200}, 5), ({"jitter_ms": 0}, 0)],
)
def test_jitter_that_is_not_declared(served, fields, jitter_ms):
    with served.stream(**fields) as stream:
        assert stream["jitter_ms"] == jitter_ms


def test_newest_frames_replace_those_that_wait(served):
    """The device works on the first one meanwhile; of the others the last one is served."""
    served.stand_in.delay_s = lambda call: 0.3
    fields = {"on_late": "newest", "period_ms": 50, "deadline_ms": 2_000}
    with served.stream(**fields) as stream, ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, served, stream)
        served.wait_until_running()
        for _ in range(3):
            time.sleep(0.06)
            assert post(served, stream, wait="false").status_code == 202
        assert first.result().json()["results"][0]["outcome"] == "met"
        wait_until(lambda: state(served, stream)["in_flight"] == 0, "it does not end")
        found = served.http.get(stream["results_url"]).json()["results"]
        assert [(r["outcome"], r["reason"]) for r in found] == [
            ("met", ""),
            ("cancelled", "superseded"),
            ("cancelled", "superseded"),
            ("met", ""),
        ]


def test_a_call_whose_frame_was_superseded_is_told_so(served):
    served.stand_in.delay_s = lambda call: 0.3
    with served.stream(on_late="newest", period_ms=50, deadline_ms=2_000) as stream, ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, served, stream)
        served.wait_until_running()
        time.sleep(0.06)
        second = pool.submit(post, served, stream)
        wait_until(lambda: state(served, stream)["in_flight"] == 2, "it does not wait")
        time.sleep(0.06)
        assert post(served, stream, wait="false").status_code == 202
        document = problem(second.result(), 503, "frame_cancelled")
        assert document["result"]["reason"] == "superseded"
        assert "newer frame" in document["detail"]
        assert "on_late" in document["detail"]
        assert first.result().status_code == 200
        wait_until(lambda: state(served, stream)["in_flight"] == 0, "it does not end")


class TestBestEffort:
    def test_it_is_not_policed_and_keeps_to_itself(self, served):
        with served.stream(service_class="best_effort", period_ms=10_000, deadline_ms=5_000) as stream:
            assert stream["service_class"] == "best_effort"
            assert stream["admission"]["test"] == "none"
            results = post(served, stream, 4).json()["results"]
            assert [(r["outcome"], r["demoted"]) for r in results] == [("met", False)] * 4

    def test_so_many_wait_and_no_more(self, served):
        served.stand_in.delay_s = lambda call: 0.3
        with served.stream(service_class="best_effort", deadline_ms=5_000) as stream:
            assert post(served, stream, wait="false").status_code == 202
            served.wait_until_running()
            assert post(served, stream, 4, wait="false").status_code == 202
            answer = post(served, stream)
            problem(answer, 503, "best_effort_full")
            assert answer.headers["retry-after"] == "1"
            wait_until(lambda: state(served, stream)["in_flight"] == 0, "they do not end")
            assert post(served, stream).status_code == 200
            assert state(served, stream)["refused"] == {"best_effort_full": 1}

    def test_a_deadline_is_how_long_it_waits(self, served):
        served.stand_in.delay_s = lambda call: 0.5
        with served.stream(service_class="best_effort", deadline_ms=100) as stream, ThreadPoolExecutor(1) as pool:
            running = pool.submit(post, served, stream)
            served.wait_until_running()
            began = time.monotonic()
            problem(post(served, stream), 504, "frame_expired")
            assert time.monotonic() - began < 0.4, "on time, though the device is busy"
            assert running.result().json()["results"][0]["outcome"] == "missed"
