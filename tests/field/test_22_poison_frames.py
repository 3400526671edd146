"""Report 22: a frame that cannot be digested fails alone; its batch-mates are tried again without it."""

import threading
import time

import numpy as np
import pytest

from tests.api.served import SMALL, Served, echo
from tests.field.support import picture, send_together, steady

POISON = 66
REFUSED = "NaN in layer 3"
#: Frames that come within a window are one batch.
WINDOWS = {"early_dispatch": False}
#: The stand-in takes a millisecond.
TIMES = {SMALL: {1: 3.0, 2: 3.0, 4: 3.0, 8: 3.0}}


def refuses_poison(frames: np.ndarray) -> str:
    return REFUSED if (frames[:, 0] == POISON).any() else ""


@pytest.fixture
def served():
    with Served(times=TIMES, scheduling=WINDOWS) as served:
        yield served


def four_cameras(served, deadline_ms):
    urls = []
    for _ in range(4):
        answer = served.register(period_ms=150, deadline_ms=deadline_ms, jitter_ms=75)
        assert answer.status_code == 201, answer.text
        urls.append(answer.json()["frames_url"])
    return urls


def test_three_succeed_and_one_fails(served, length):
    urls = four_cameras(served, 1_000)
    served.call(setattr, served.stand_in, "indigestible", refuses_poison)
    failed = 0
    for number in range(length(8, 200)):
        guilty = number % 5  # one round in five has none
        values = [POISON if n == guilty else 10 + n for n in range(4)]
        for n, answer in enumerate(send_together(served, urls, values)):
            if n == guilty:
                assert answer.status_code == 502, answer.text
                assert REFUSED in answer.json()["detail"]
                failed += 1
            else:
                assert answer.status_code == 200, answer.text
                [result] = answer.json()["results"]
                assert result["outcome"] == "met"
                assert echo(result) == picture(values[n])
        time.sleep(0.15)
    assert failed >= 6
    assert served.counters()["framegate_frames_retried_total", "echo"] >= 4
    assert served.http.get("/v1/models").json()["models"][0]["versions"][0]["single_frame_shapes"] == []


def test_without_time_for_it_each_gets_an_honest_reason(served):
    """Four frames of one body are one batch, whose refusal takes as long as their deadline."""
    served.call(setattr, served.stand_in, "delay_s", lambda call: 0.2)
    served.call(setattr, served.stand_in, "indigestible", refuses_poison)
    with served.stream(period_ms=200, deadline_ms=200, burst=4) as stream:
        body = b"".join(picture(value) for value in (1, 2, POISON, 4))
        results = served.http.post(stream["frames_url"], content=body).json()["results"]
    assert [(result["seq"], result["outcome"], result["batch"]) for result in results] == [
        (seq, "failed", 4) for seq in range(4)
    ]
    assert {result["reason"] for result in results} == {f"batch_failed: {REFUSED}"}


def test_a_poison_stream_costs_the_others_no_more_than_their_second_try(served, length):
    """Ten poison frames a second beside two cameras: once refused alone, its frames go alone."""
    served.call(setattr, served.stand_in, "indigestible", refuses_poison)
    with (
        steady(served, picture(1), fps=10) as first,
        steady(served, picture(2), fps=10) as second,
        steady(served, picture(POISON), fps=10) as poison,
    ):
        threading.Event().wait(length(3.0, 60.0))
        [suspect] = [s for s in served.http.get("/v1/streams").json()["streams"] if s["suspect"]]
        assert suspect["outcomes"]["met"] == 0
        served.call(served.stand_in.calls.clear)
        threading.Event().wait(length(1.0, 20.0))
        assert served.counters()["framegate_streams_suspect",] == 1
    for camera in (first, second):
        assert camera.outcomes["frame_failed"] == 0, (
            "it was in no batch with a poison frame that could not be tried again"
        )
        # A busy machine costs one now and then; the batch that a poison frame spoils would cost one each time.
        assert camera.outcomes["met"] >= 0.95 * camera.outcomes.total() - 1, camera.outcomes
    assert poison.outcomes["frame_failed"] >= 0.9 * poison.outcomes.total() - 1, poison.outcomes


def test_the_models_own_failure_makes_nobody_suspect(served):
    """An upstream error of everything: no healthy stream is marked."""
    urls = four_cameras(served, 400)
    served.call(setattr, served.stand_in, "error", lambda call: "" if served.stand_in.log("load") else "CUDA error")
    statuses = {answer.status_code for answer in send_together(served, urls, [1, 2, 3, 4])}
    assert statuses == {502}
    assert not any(stream["suspect"] for stream in served.http.get("/v1/streams").json()["streams"])
