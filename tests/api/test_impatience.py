"""Clients that do not go on: half bodies, half headers, answers that nobody takes. The server waits for 0.3 s."""

import dataclasses
import http.client
import json
import time

import numpy as np
import pytest

from tests.api.served import FRAME, IMPATIENT, Served, wait_until
from tests.api.test_bad_clients import head, read_answer

MIB = 1 << 20


@pytest.fixture(scope="module")
def impatient():
    """A server that waits for nobody for longer than 0.3 s, and reads 4 MiB at a time."""
    with Served(limits=IMPATIENT) as served:
        yield served


def ends(connection):
    """Read until the server closes, and return what came."""
    data = b""
    try:
        while part := connection.recv(1 << 16):
            data += part
    except ConnectionError:
        pass
    return data


@pytest.mark.parametrize("way", ["announced", "chunked"])
def test_half_bodies_hold_no_more_than_the_limit_and_not_for_long(impatient, way):
    before = impatient.counters().get(("framegate_refused_total", "uploads_full"), 0)
    with impatient.stream() as stream:
        size = 192 * 1_000
        connections = [impatient.connect() for _ in range(30)]
        for connection in connections:
            if way == "announced":
                connection.sendall(head("POST", stream["frames_url"], f"Content-Length: {size}") + bytes(size - 1))
            else:
                body = b"%x\r\n" % (size - 1) + bytes(size - 1) + b"\r\n"
                connection.sendall(head("POST", stream["frames_url"], "Transfer-Encoding: chunked") + body)
        assert impatient.counters()["framegate_upload_bytes",] <= 4 * MIB
        answers = [read_answer(connection) for connection in connections]
        codes = [document["code"] for _, _, document in answers]
        assert set(codes) == {"uploads_full", "upload_timeout"}
        assert codes.count("upload_timeout") == 4 * MIB // size
        for status, headers, document in answers:
            assert headers["connection"] == "close"
            assert status == {"uploads_full": 503, "upload_timeout": 408}[document["code"]]
            assert ("retry-after" in headers) == (status == 503)
        for connection in connections:
            assert ends(connection) == b""
            connection.close()
        after = impatient.counters()
        assert after["framegate_upload_bytes",] == 0
        assert after["framegate_refused_total", "uploads_full"] - before == codes.count("uploads_full")
        assert impatient.http.post(stream["frames_url"], content=FRAME).status_code == 200


def test_half_a_json_body_is_dropped_too(impatient):
    with impatient.connect() as connection:
        connection.sendall(head("POST", "/v1/streams", "Content-Length: 1000") + b"{")
        status, _, document = read_answer(connection)
        assert (status, document["code"]) == (408, "upload_timeout")
        assert ends(connection) == b""


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"GET /v2/health/live HTTP/1.1\r\nHost",
        head("GET", "/v2/health/live") + b"GET /v2",
        head("POST", "/v1/streams/none/frames", "Content-Length: 1000") + b"half",
    ],
    ids=["nothing", "half a head", "half a second head", "half a body that nobody wants"],
)
def test_who_does_not_go_on_is_disconnected(impatient, begin):
    with impatient.connect() as connection:
        began = time.monotonic()
        connection.sendall(begin)
        time.sleep(0.1)
        if begin:
            connection.sendall(b"x")  # what comes drop by drop does not count as going on
        ends(connection)
        assert 0.2 < time.monotonic() - began < 5


def test_a_connection_between_two_calls_may_rest(impatient):
    """Slow cameras keep theirs: the short limits are for what has begun."""
    host, port = impatient.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.connect()
    used = connection.sock
    for _ in range(2):
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().read() == b'{"live":true}'
        time.sleep(0.7)
    assert connection.sock is used
    connection.close()


def keep_results(served, stream, frames, size):
    """Have results with `size` outputs of three digits each kept for the long poll, from `seq` 1 on."""
    ring = served.gateway.stream(stream["stream_id"]).ring
    [template] = served.run(served.gateway.results(stream["stream_id"], -1, 1_000))
    big = {"echo": np.full(size, 255, np.uint8)}
    for seq in range(1, frames + 1):
        served.call(ring.add, dataclasses.replace(template, seq=seq, outputs=big))


@pytest.mark.parametrize(("frames", "size"), [(1, 10 * MIB), (200, MIB // 4)], ids=["one piece", "frame by frame"])
def test_who_does_not_take_the_answer_is_disconnected(impatient, frames, size):
    with impatient.stream() as stream:
        impatient.http.post(stream["frames_url"], content=FRAME)
        keep_results(impatient, stream, frames, size)
        connections = impatient.server.server_state.connections
        before = len(connections)
        with impatient.connect() as connection:
            connection.sendall(head("GET", f"{stream['results_url']}?after=0"))
            wait_until(lambda: len(connections) == before + 1, "the call did not come in")
            wait_until(lambda: len(connections) == before, "it is still connected")
        wait_until(lambda: not impatient.server.server_state.tasks, "the call still runs")


def test_who_takes_it_slowly_gets_all_of_it(impatient):
    with impatient.stream() as stream:
        impatient.http.post(stream["frames_url"], content=FRAME)
        keep_results(impatient, stream, 20, MIB // 4)
        with impatient.http.stream("GET", stream["results_url"]) as answer:
            parts = []
            for part in answer.iter_raw(1 << 20):
                parts.append(part)
                time.sleep(0.05)
        assert len(json.loads(b"".join(parts))["results"]) == 21
