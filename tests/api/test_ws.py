"""Frames over a WebSocket, under the real server: what is taken, what is answered, how it ends."""

import json
import threading
import time

import pytest
from websockets.exceptions import InvalidStatus

from gateway.api import ws_exchange
from gateway.core.types import NS_PER_MS as MS
from gateway.core.types import StreamSpec
from tests.api.served import FRAME, Served, books, echo, problem, wait_until
from tests.api.sockets import answer, answers, code_of_close, socket_of

pytestmark = pytest.mark.usefixtures("no_error_is_logged")


def frame(value):
    return bytes([value]) * len(FRAME)


def test_a_result_is_that_of_a_call_and_names_its_message(served):
    with served.stream(burst=2, deadline_ms=2_000) as stream, socket_of(served, stream) as socket:
        over_http = served.http.post(stream["frames_url"], content=FRAME).json()["results"][0]
        socket.send(FRAME)
        over_ws = answer(socket)
        assert over_ws.pop("message") == 0
        assert set(over_ws) == set(over_http)
        assert (over_ws["seq"], over_ws["outcome"], echo(over_ws)) == (1, "met", FRAME)
        assert over_ws["outputs"]["echo"] == over_http["outputs"]["echo"]


def test_a_message_of_several_frames_is_answered_frame_by_frame(served):
    with served.stream(burst=5, deadline_ms=2_000) as stream, socket_of(served, stream) as socket:
        socket.send(b"".join(map(frame, range(4))))
        found = answers(socket, 4)
        assert [(result["message"], result["seq"], echo(result)) for result in found] == [
            (0, seq, frame(seq)) for seq in range(4)
        ]
        # a message may come in fragments
        socket.send([frame(9)[:100], frame(9)[100:]])
        assert echo(answer(socket)) == frame(9)


def test_a_socket_gets_the_results_of_its_own_frames(served):
    with (
        served.stream(burst=8, deadline_ms=2_000) as stream,
        socket_of(served, stream) as one,
        socket_of(served, stream) as other,
    ):
        for value in range(4):
            (one, other)[value % 2].send(frame(value))
        assert [echo(result) for result in answers(one, 2)] == [frame(0), frame(2)]
        assert [echo(result) for result in answers(other, 2)] == [frame(1), frame(3)]
        assert served.counters()["framegate_websockets",] == 2
    wait_until(lambda: served.counters()["framegate_websockets",] == 0, "they are counted as open")


def test_results_come_in_the_order_in_which_frames_end(served):
    """The first frame is on the device, the next expire behind it, in time."""
    served.stand_in.delay_s = lambda call: 0.6
    with served.stream(period_ms=20, deadline_ms=200) as stream, socket_of(served, stream) as socket:
        socket.send(FRAME)
        served.wait_until_running()
        time.sleep(0.05)
        socket.send(FRAME)
        found = answers(socket, 2)
        assert [(result["seq"], result["outcome"]) for result in found] == [(1, "expired"), (0, "missed")]
        assert found[0]["outputs"] is None


def test_what_is_refused_is_a_problem_and_the_socket_goes_on(served):
    before = served.counters()
    with served.stream() as stream, socket_of(served, stream) as socket:
        for body in (b"", FRAME[:-1], FRAME + b"x"):
            socket.send(body)
        found = answers(socket, 3)
        assert [each["message"] for each in found] == [0, 1, 2]
        for each, size in zip(found, (0, 191, 193), strict=True):
            error = each["error"]
            assert (error["status"], error["code"]) == (400, "frame_size_mismatch")
            assert (error["expected_bytes"], error["received_bytes"]) == (192, size)
            assert error["type"] == "urn:framegate:problem:frame_size_mismatch"
        socket.send(FRAME)
        assert (answer(socket)["message"], books(served, stream)["accepted"]) == (3, 1)
    key = ("framegate_refused_total", "frame_size_mismatch")
    assert served.counters()[key] - before.get(key, 0) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{}",
        "[]",
        "1",
        '{"timestamp_ms": "1"}',
        '{"timestamp_ms": true}',
        '{"timestamp_ms": null}',
        '{"timestamp_ms": 1, "x": 2}',
        '{"timestamp_ms": 1e999}',
        '{"timestamp_ms": ' + "1" * 500 + "}",
        "\ud7ff" * 1000,
    ],
)
def test_text_that_is_no_label_is_refused(served, text):
    with served.stream() as stream, socket_of(served, stream) as socket:
        socket.send(text)
        found = answer(socket)
        assert (found["message"], found["error"]["code"]) == (None, "invalid_request")
        socket.send(FRAME)
        assert answer(socket)["timestamp_ms"] is None


def test_a_label_comes_back_with_the_frames_of_its_message(served):
    with served.stream(burst=4, deadline_ms=2_000) as stream, socket_of(served, stream) as socket:
        socket.send('{"timestamp_ms": 7}')
        socket.send('{"timestamp_ms": 1500.25}')
        socket.send(FRAME * 2)
        socket.send(FRAME)
        assert [result["timestamp_ms"] for result in answers(socket, 3)] == [1500.25, 1500.25, None]


def refused(served, path):
    with pytest.raises(InvalidStatus) as caught, socket_of(served, path):
        pass
    response = caught.value.response
    document = json.loads(response.body)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.status_code == document["status"]
    return document["status"], document["code"], response.headers


def test_who_has_no_stream_is_refused_before_the_upgrade(served):
    before = served.counters()
    assert refused(served, "/v1/streams/none/ws")[:2] == (404, "stream_not_found")
    assert refused(served, "/v1/streams/%20/ws")[:2] == (404, "stream_not_found")
    assert refused(served, "/v1/streams")[:2] == (404, "not_found")
    assert refused(served, "/no/such/path")[:2] == (404, "not_found")
    with served.stream() as stream:
        url = f"/v1/streams/{stream['stream_id']}/ws"
    assert refused(served, url)[:2] == (410, "stream_closed")
    with served.stream(frames=1) as stream:
        served.http.post(stream["frames_url"], content=FRAME)
        assert refused(served, f"/v1/streams/{stream['stream_id']}/ws")[:2] == (409, "stream_finished")
    answered = served.http.get(url)
    problem(answered, 426, "upgrade_required")
    assert answered.headers["upgrade"] == "websocket"
    after = served.counters()

    def counted(route, status):
        key = ("framegate_http_responses_total", "GET", route, status)
        return after[key] - before.get(key, 0)

    assert counted("/v1/streams/{stream_id}/ws", "404") == 2
    assert counted("/v1/streams/{stream_id}/ws", "410") == 1
    assert counted("unmatched", "404") == 2


def test_a_stream_that_is_closed_ends_its_sockets_when_all_is_answered(served):
    served.stand_in.delay_s = lambda call: 0.3
    with served.stream(deadline_ms=2_000) as stream, socket_of(served, stream) as socket:
        socket.send(FRAME)
        wait_until(lambda: books(served, stream)["accepted"] == 1, "it did not come in")
        served.http.delete(f"/v1/streams/{stream['stream_id']}")
        socket.send(FRAME)
        code, reason, before = code_of_close(socket)
        assert (code, reason) == (1000, "closed")
        assert [each.get("outcome") or each["error"]["code"] for each in before] == ["stream_closed", "met"]


def test_a_stream_that_is_finished_ends_its_sockets(served):
    with served.stream(frames=2, burst=2, deadline_ms=2_000) as stream, socket_of(served, stream) as socket:
        socket.send(FRAME)
        socket.send(FRAME)
        code, reason, before = code_of_close(socket)
        assert (code, reason, len(before)) == (1000, "finished", 2)


@pytest.mark.parametrize("way", ["closes", "vanishes"])
def test_the_frames_of_a_client_that_goes_are_cancelled(served, way):
    served.stand_in.delay_s = lambda call: 0.5
    with served.stream(burst=8, deadline_ms=10_000) as stream:
        with socket_of(served, stream) as socket:
            socket.send(FRAME)
            served.wait_until_running()
            for _ in range(3):
                socket.send(FRAME)
            wait_until(lambda: books(served, stream)["accepted"] == 4, "they did not come in")
            began = time.monotonic()
            if way == "vanishes":
                socket.socket.close()
            else:
                socket.close()
            wait_until(lambda: books(served, stream)["outcomes"]["cancelled"] == 3, "they were not cancelled")
            assert time.monotonic() - began < 0.4
        wait_until(lambda: books(served, stream)["in_flight"] == 0, "the first did not end")
        assert books(served, stream)["outcomes"]["met"] == 1
        assert served.gateway.arena.free_bytes == served.gateway.arena.region.size


def test_a_client_with_too_many_unanswered_messages_is_not_read_from(monkeypatch):
    """Its frames stay in the network until there is an answer; every one of them is answered in the end."""
    monkeypatch.setattr(ws_exchange, "_MOST_UNANSWERED", 1)  # its contract alone would allow them
    with Served(limits={"max_unanswered": 4}) as served:
        served.stand_in.delay_s = lambda call: 0.2
        with (
            served.stream(burst=40, period_ms=20_000, deadline_ms=20_000) as stream,
            socket_of(served, stream) as socket,
        ):
            for value in range(24):
                socket.send(frame(value))
            wait_until(lambda: books(served, stream)["accepted"] >= 4, "they did not come in")
            time.sleep(0.05)
            assert books(served, stream)["in_flight"] <= 4
            assert [echo(result) for result in answers(socket, 24)] == [frame(value) for value in range(24)]


@pytest.mark.parametrize(
    ("limit", "contract", "most"),
    [
        (64, {"period_ns": 100 * MS, "deadline_ns": 200 * MS}, 64),
        (4, {"period_ns": 100 * MS, "deadline_ns": 250 * MS}, 4),
        (4, {"period_ns": 100 * MS, "deadline_ns": 250 * MS, "burst": 8}, 32),
        (64, {"period_ns": 10 * MS, "deadline_ns": 2_000 * MS, "jitter_ns": 5 * MS}, 202),
        (64, {"period_ns": MS, "deadline_ns": 86_400_000 * MS}, 65_536),
    ],
)
def test_a_camera_that_keeps_to_its_contract_is_never_held_up(limit, contract, most):
    assert ws_exchange.max_unanswered(limit, StreamSpec("echo", "1", (8, 8, 3), **contract)) == most


def test_a_stop_flushes_results_and_closes_sockets_in_time():
    served = Served(server={"shutdown_grace_s": 2}).start()
    found = []
    with served.http:
        stream = served.register(period_ms=30_000, deadline_ms=60_000).json()
        served.stand_in.delay_s = lambda call: 0.5
        with socket_of(served, stream) as socket, socket_of(served, stream) as idle:
            socket.send(FRAME)
            wait_until(lambda: books(served, stream)["accepted"] == 1, "it did not come in")
            reader = threading.Thread(target=lambda: found.append(code_of_close(socket)))
            reader.start()
            began = time.monotonic()
            served.server.should_exit = True
            assert code_of_close(idle) == (1012, "stopping", [])
            reader.join(10)
            served.stop()
            assert time.monotonic() - began < 3
    [(code, reason, before)] = found
    assert (code, reason, [each["outcome"] for each in before]) == (1012, "stopping", ["met"])


def test_while_it_stops_no_socket_is_opened():
    with Served() as served, served.stream() as stream:
        served.call(served.app.state.api.draining.set)
        status, code, headers = refused(served, f"/v1/streams/{stream['stream_id']}/ws")
        assert (status, code, headers["retry-after"]) == (503, "stopping", "5")


def test_an_engine_that_fails_is_said_frame_by_frame(caplog):
    with Served() as served:
        stream = served.register(burst=4, deadline_ms=5_000).json()
        served.stand_in.delay_s = lambda call: 1.0
        with socket_of(served, stream) as socket:
            socket.send(FRAME)
            served.wait_until_running()
            socket.send(FRAME)
            wait_until(lambda: books(served, stream)["accepted"] == 2, "it did not come in")
            served.call(served.gateway._parts.delivery.give_up)
            for each in answers(socket, 2):
                assert each["error"]["code"] == "engine_failed"
    assert "the engine failed" in caplog.text
    caplog.clear()


def test_a_large_output_comes_as_one_message_all_the_same():
    large = (256, 256, 3)
    with (
        Served(times={large: {1: 20.0}}) as served,
        served.stream(shape=large) as stream,
        socket_of(served, stream) as socket,
    ):
        body = bytes(range(256)) * 768
        socket.send(body)
        assert echo(answer(socket)) == body
