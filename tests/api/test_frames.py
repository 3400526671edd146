import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gateway.api.answers import FrameOutcomes, ResultsPage
from gateway.api.results import tensor
from tests.api.served import FRAME, LARGE, books, echo, problem, wait_until

STRICT = json.JSONDecoder(parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def frame_of(seq):
    return np.random.default_rng(seq).integers(0, 256, 192, np.uint8).tobytes()


def test_a_frame_comes_back_bit_exact(served):
    with served.stream() as stream:
        answer = served.http.post(stream["frames_url"], content=FRAME)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        [result] = answer.json()["results"]
        assert echo(result) == FRAME
        assert (result["seq"], result["outcome"], result["reason"]) == (0, "met", "")
        assert (result["batch"], result["degraded"], result["shape"]) == (1, False, [8, 8, 3])
        assert result["deadline_ms"] == 400
        assert 0 < result["execute_ms"] <= result["latency_ms"] < 400
        assert result["latency_ms"] == pytest.approx(result["queue_ms"] + result["execute_ms"])
        FrameOutcomes.model_validate_json(answer.content, strict=True)


def test_several_frames_back_to_back(served):
    frames = [frame_of(seq) for seq in range(5)]
    with served.stream() as stream:
        results = served.http.post(stream["frames_url"], content=b"".join(frames)).json()["results"]
        assert [result["seq"] for result in results] == list(range(5))
        assert [echo(result) for result in results] == frames
        assert books(served, stream)["outcomes"]["met"] == 5


def test_frames_of_a_chunked_body(served):
    with served.stream() as stream:
        chunks = (FRAME[start : start + 50] for start in range(0, 192, 50))
        [result] = served.http.post(stream["frames_url"], content=chunks).json()["results"]
        assert echo(result) == FRAME


@pytest.mark.parametrize(
    "content_type", ["application/octet-stream", "application/x-www-form-urlencoded", "image/x-raw", ""]
)
def test_any_content_type_is_taken(served, content_type):
    with served.stream() as stream:
        answer = served.http.post(stream["frames_url"], content=FRAME, headers={"content-type": content_type})
        assert answer.status_code == 200


def test_concurrent_streams_get_their_own_answers(served):
    def send(stream, number):
        frame = frame_of(number)
        [result] = served.http.post(stream["frames_url"], content=frame).json()["results"]
        return echo(result) == frame

    with served.stream() as first, served.stream() as second, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(send, [first, second] * 20, range(40)))


def test_without_waiting_results_are_polled(served):
    with served.stream() as stream:
        accepted = served.http.post(stream["frames_url"], params={"wait": "false"}, content=FRAME * 3)
        assert accepted.status_code == 202
        assert accepted.json() == {"seqs": [0, 1, 2], "results_url": stream["results_url"]}
        after, seen = -1, []
        while len(seen) < 3:
            answer = served.http.get(stream["results_url"], params={"after": after, "timeout_ms": 5_000})
            page = answer.json()
            ResultsPage.model_validate_json(answer.content, strict=True)
            assert page["results"], "nothing came in 5 s"
            assert page["state"] == "active"
            seen += page["results"]
            assert page["next_after"] == seen[-1]["seq"]
            after = page["next_after"]
        assert [result["seq"] for result in seen] == [0, 1, 2]
        assert all(echo(result) == FRAME for result in seen)


def test_a_poll_ends_in_time_when_nothing_comes(served):
    with served.stream() as stream:
        began = time.monotonic()
        page = served.http.get(stream["results_url"], params={"timeout_ms": 100}).json()
        assert page == {"results": [], "next_after": -1, "state": "active"}
        assert 0.09 < time.monotonic() - began < 5


def test_a_poll_ends_when_the_stream_does(served):
    with served.stream() as stream, ThreadPoolExecutor(1) as pool:
        poll = pool.submit(served.http.get, stream["results_url"], params={"timeout_ms": 15_000})
        served.http.delete(f"/v1/streams/{stream['stream_id']}")
        assert poll.result(10).json()["state"] == "closed"


def test_a_finished_stream_says_so(served):
    with served.stream(frames=2) as stream:
        problem(served.http.post(stream["frames_url"], content=FRAME * 3), 409, "stream_finished")
        assert served.http.post(stream["frames_url"], content=FRAME * 2).status_code == 200
        problem(served.http.post(stream["frames_url"], content=FRAME), 409, "stream_finished")
        assert books(served, stream)["state"] == "finished"


def test_a_closed_stream_takes_nothing(served):
    with served.stream() as stream:
        served.http.delete(f"/v1/streams/{stream['stream_id']}")
        problem(served.http.post(stream["frames_url"], content=FRAME), 410, "stream_closed")


#: Bodies that are not whole frames of [8, 8, 3] UINT8: short, long, empty, FP32, another shape.
WRONG = {"short": FRAME[:-1], "long": FRAME + b"x", "empty": b"", "shape": bytes(8 * 9 * 3), "other": bytes(3 * 7)}


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_size_is_that_frames_affair_alone(served, name, chunked):
    body = WRONG[name]
    with served.stream() as stream, served.stream() as neighbour:
        for seq in range(2):
            content = iter([body]) if chunked else body
            document = problem(served.http.post(stream["frames_url"], content=content), 400, "frame_size_mismatch")
            assert (document["expected_bytes"], document["received_bytes"]) == (192, len(body))
            [result] = served.http.post(stream["frames_url"], content=FRAME).json()["results"]
            assert (result["seq"], echo(result)) == (seq, FRAME)
            [result] = served.http.post(neighbour["frames_url"], content=frame_of(seq)).json()["results"]
            assert echo(result) == frame_of(seq)


def test_a_frame_that_expires_alone_is_a_504(served):
    served.stand_in.delay_s = lambda call: 0.3
    with served.stream(deadline_ms=100, period_ms=50) as stream, ThreadPoolExecutor(2) as pool:
        busy = pool.submit(served.http.post, stream["frames_url"], content=FRAME)
        served.wait_until_running()
        document = problem(served.http.post(stream["frames_url"], content=FRAME), 504, "frame_expired")
        assert document["result"]["outcome"] == "expired"
        assert document["result"]["outputs"] is None
        assert 100 <= document["result"]["latency_ms"] < 300
        [late] = busy.result().json()["results"]
        assert (late["outcome"], echo(late)) == ("missed", FRAME)  # late, but answered


def test_frames_that_expire_together_are_results(served):
    served.stand_in.delay_s = lambda call: 0.3
    with served.stream(deadline_ms=100, period_ms=50) as stream, ThreadPoolExecutor(2) as pool:
        busy = pool.submit(served.http.post, stream["frames_url"], content=FRAME)
        served.wait_until_running()
        answer = served.http.post(stream["frames_url"], content=FRAME * 2)
        assert answer.status_code == 200
        assert [result["outcome"] for result in answer.json()["results"]] == ["expired", "expired"]
        busy.result()
        assert books(served, stream)["outcomes"] == {"met": 0, "missed": 1, "expired": 2, "cancelled": 0, "failed": 0}


def test_a_frame_that_fails_alone_is_a_502_with_tritons_words(served):
    served.stand_in.error = lambda call: "the model is unwell" if call.shape[1:] == LARGE else ""
    with served.stream(shape=LARGE, period_ms=400, deadline_ms=800) as stream:
        document = problem(served.http.post(stream["frames_url"], content=bytes(768)), 502, "frame_failed")
        assert "the model is unwell" in document["detail"]
        answer = served.http.post(stream["frames_url"], content=bytes(768 * 2))
        assert answer.status_code == 200
        assert {result["outcome"] for result in answer.json()["results"]} == {"failed"}


def test_a_client_that_goes_away_cancels_its_frames(served):
    served.stand_in.delay_s = lambda call: 1.0
    before = len(served.stand_in.log("infer"))
    with served.stream(deadline_ms=2_000, period_ms=1_000) as stream, ThreadPoolExecutor(2) as pool:
        busy = pool.submit(served.http.post, stream["frames_url"], content=FRAME)
        served.wait_until_running()
        with served.connect() as connection:
            head = f"POST {stream['frames_url']} HTTP/1.1\r\nHost: x\r\nContent-Length: 384\r\n\r\n"
            connection.sendall(head.encode() + FRAME * 2)
            wait_until(lambda: books(served, stream)["accepted"] == 3, "the frames did not come in")
        wait_until(lambda: books(served, stream)["outcomes"]["cancelled"] == 2, "nothing was cancelled")
        assert busy.result().json()["results"][0]["outcome"] == "met"
    assert len(served.stand_in.log("infer")) == before + 1


def test_a_client_that_goes_away_too_late_wastes_nothing_but_the_answer(served):
    served.stand_in.delay_s = lambda call: 0.2
    with served.stream() as stream:
        with served.connect() as connection:
            head = f"POST {stream['frames_url']} HTTP/1.1\r\nHost: x\r\nContent-Length: 192\r\n\r\n"
            connection.sendall(head.encode() + FRAME)
            served.wait_until_running()
        wait_until(lambda: books(served, stream)["outcomes"]["met"] == 1, "the frame has no outcome")


def test_a_full_arena_says_when_to_come_back(served):
    served.stand_in.delay_s = lambda call: 0.5
    free = served.call(lambda: served.gateway.arena.free_bytes)
    with served.stream() as stream:
        lent = served.call(lambda: served.gateway.arena.lend(free - 1_024))
        served.call(lent.__enter__)
        try:
            answer = served.http.post(stream["frames_url"], content=FRAME * 64)
            problem(answer, 503, "arena_full")
            assert int(answer.headers["retry-after"]) >= 1
        finally:
            served.call(lent.__exit__, None, None, None)
        served.stand_in.delay_s = lambda call: 0.0
        assert served.http.post(stream["frames_url"], content=FRAME).status_code == 200
        assert books(served, stream)["accepted"] == 1


def test_too_many_frames_in_one_body(served):
    with served.stream() as stream:
        document = problem(served.http.post(stream["frames_url"], content=FRAME * 1_025), 413, "body_too_large")
        assert document["limit_bytes"] == 192 * 1_024


@pytest.mark.parametrize(
    ("array", "datatype", "data"),
    [
        (np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32), "FP32", [None, None, None, -0.0, 1e-45]),
        (np.array([[1.5, np.nan]], np.float16), "FP16", [1.5, None]),
        (np.array([np.finfo(np.float64).max]), "FP64", [1.7976931348623157e308]),
        (np.array([2**64 - 1], np.uint64), "UINT64", [2**64 - 1]),
        (np.array([-(2**63)], np.int64), "INT64", [-(2**63)]),
        (np.array([True, False]), "BOOL", [True, False]),
        (np.arange(6, dtype=np.int32).reshape(2, 3).T, "INT32", [0, 3, 1, 4, 2, 5]),
        (np.array([b"caf\xc3\xa9", b"\xff"], object), "BYTES", ["café", "\ufffd"]),
        (np.zeros((0, 4), np.float32), "FP32", []),
        (np.float32(2.5).reshape(()), "FP32", [2.5]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_outputs_are_strict_json(array, datatype, data):
    from gateway.api.results import dump

    document = STRICT.decode(dump(tensor(array)).decode())
    assert document == {"datatype": datatype, "shape": list(array.shape), "data": data}


def test_large_frames_and_small_ones_do_not_mix(served):
    large = np.random.default_rng(1).integers(0, 256, 768, np.uint8).tobytes()
    with served.stream() as first, served.stream(shape=LARGE, period_ms=400, deadline_ms=800) as second:
        with ThreadPoolExecutor(2) as pool:
            answers = [
                pool.submit(served.http.post, stream["frames_url"], content=frame)
                for stream, frame in ((first, FRAME), (second, large))
            ]
        assert [echo(answer.result().json()["results"][0]) for answer in answers] == [FRAME, large]


def test_the_books_balance_from_the_metrics_alone(served):
    served.stand_in.error = lambda call: "unwell" if call.rows == 2 else ""
    before = served.counters()
    with served.stream() as stream:
        for body in (FRAME, FRAME * 3, FRAME * 2, FRAME[:-1], FRAME * 1_025):
            served.http.post(stream["frames_url"], content=body)
        served.http.delete(f"/v1/streams/{stream['stream_id']}")
        served.http.post(stream["frames_url"], content=FRAME * 2)
    after = served.counters()

    def grown(name, *labels):
        return after.get((name, *labels), 0) - before.get((name, *labels), 0)

    outcomes = ("met", "missed", "expired", "cancelled", "failed")
    assert grown("framegate_frames_accepted_total", "echo") == 6
    assert sum(grown("framegate_frames_total", "echo", outcome) for outcome in outcomes) == 6
    assert after["framegate_frames_in_flight", "echo"] == 0
    assert grown("framegate_refused_total", "frame_size_mismatch") == 1
    assert grown("framegate_refused_total", "body_too_large") == 1
    assert grown("framegate_refused_total", "stream_closed") == 2
    assert grown("framegate_frames_retried_total", "echo") == 2, "those of the batch that was refused"
    assert grown("framegate_frame_latency_seconds_count", "echo") == 6
    assert grown("framegate_http_responses_total", "POST", "/v1/streams/{stream_id}/frames", "200") == 3
    assert not any(stream["stream_id"] in key for key in after)
