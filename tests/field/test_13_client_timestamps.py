"""A camera whose timestamps step back, repeat and restart: they are data, and nothing depends on them."""

import json
import time

import pytest

from tests.api.served import FRAME, Served, books
from tests.api.sockets import answer, socket_of

STAMPS = [100, 133, 120, 166, 166, 0, 33, 86_400_000, 40]
#: Each compared with the one before: 120, the second 166, 0 and 40.
OUT_OF_ORDER = 4
PERIOD_S = 1 / 30


def over_calls(served, stream):
    def send(stamp):
        answered = served.http.post(
            stream["frames_url"], content=FRAME, headers={"Framegate-Timestamp-Ms": str(stamp)}
        ).raise_for_status()
        return answered.json()["results"][0]

    return send


def over_websocket(served, stream):
    def send(stamp):
        opened.send(json.dumps({"timestamp_ms": stamp}))
        opened.send(FRAME)
        return answer(opened)

    with socket_of(served, stream) as opened:
        yield send


@pytest.mark.parametrize("way", ["calls", "websocket"])
def test_stamps_that_step_back_are_counted_and_change_nothing(way, length):
    rounds = round(length(short=3, full=600))
    with Served() as served, served.stream(period_ms=1e3 / 30, deadline_ms=200, jitter_ms=33) as stream:
        sender = over_websocket(served, stream) if way == "websocket" else None
        send = over_calls(served, stream) if sender is None else next(sender)
        found, began = [], time.monotonic()
        for index, stamp in enumerate(STAMPS * rounds):
            time.sleep(max(0.0, began + index * PERIOD_S - time.monotonic()))
            found.append(send(stamp))
        if sender is not None:
            sender.close()
        assert [result["timestamp_ms"] for result in found] == STAMPS * rounds
        assert [result["seq"] for result in found] == list(range(len(found)))
        assert {result["outcome"] for result in found} == {"met"}
        assert {result["deadline_ms"] for result in found} == {200}
        for result in found:
            assert 0 <= result["queue_ms"] <= result["latency_ms"] < 200
        state = books(served, stream)
        assert (state["state"], state["accepted"]) == ("active", len(found))
        # within a round, and where the next one begins: 100 after 40 is forwards
        assert state["out_of_order"] == OUT_OF_ORDER * rounds


@pytest.mark.parametrize("stamp", ["", "x", "nan", "inf", "1e999", "1 2"])
def test_a_stamp_that_is_none_is_refused(stamp):
    with Served() as served, served.stream() as stream:
        answered = served.http.post(stream["frames_url"], content=FRAME, headers={"Framegate-Timestamp-Ms": stamp})
        assert (answered.status_code, answered.json()["code"]) == (422, "invalid_request")
        state = books(served, stream)
        assert (state["accepted"], state["out_of_order"]) == (0, 0)
