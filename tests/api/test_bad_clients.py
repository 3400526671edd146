"""Clients that send too much, break off, or send what is no HTTP: over bare sockets, under the real server."""

import json
import logging
import resource
import socket
import struct
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.api.served import FRAME, books, problem, wait_until

GIGANTIC = 5_000_000_000
PATHS = [
    ("POST", "/v1/streams"),
    ("POST", "/v1/admission/check"),
    ("GET", "/v2/health/live"),
    ("GET", "/metrics"),
    ("DELETE", "/v1/streams/x"),
    ("PUT", "/no/such/path"),
    ("POST", "/v1/streams/x/frames"),
]


def rss_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def head(method, path, *headers):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def read_answer(connection):
    """Return status and JSON of one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536) or pytest.fail(f"the connection was closed after {data!r}")
    top, _, body = data.partition(b"\r\n\r\n")
    headers = dict(line.lower().split(": ", 1) for line in top.decode().split("\r\n")[1:])
    while len(body) < int(headers["content-length"]):
        body += connection.recv(65_536)
    return int(top.split()[1]), headers, json.loads(body)


def reset(connection):
    """Close it the hard way: the other side gets a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.fixture(autouse=True)
def _no_error_is_logged(caplog):
    caplog.set_level(logging.WARNING)
    yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_five_gigabytes_announced_are_refused_unread(served, method, path):
    with served.connect() as connection:
        began = time.monotonic()
        connection.sendall(head(method, path, f"Content-Length: {GIGANTIC}"))
        status, headers, document = read_answer(connection)
        assert time.monotonic() - began < 1
        if path.endswith("/frames"):
            assert (status, document["code"]) == (404, "stream_not_found")
            return
        assert (status, document["code"]) == (413, "body_too_large")
        assert headers["connection"] == "close"
        kind = "application/json" if path.startswith("/v2") else "application/problem+json"
        assert headers["content-type"] == kind


def test_five_gigabytes_announced_for_a_stream(served):
    before = rss_bytes()
    with served.stream() as stream, served.connect() as connection:
        connection.sendall(head("POST", stream["frames_url"], f"Content-Length: {GIGANTIC}"))
        status, _, document = read_answer(connection)
        assert (status, document["code"]) == (413, "body_too_large")
        assert document["limit_bytes"] == 192 * 1_024
        assert books(served, stream)["accepted"] == 0
    assert rss_bytes() - before < 16 << 20


def test_who_asks_first_is_told_first(served):
    """With `Expect: 100-continue` a refused client never has to send its body."""
    with served.stream() as stream, served.connect() as connection:
        connection.sendall(head("POST", stream["frames_url"], f"Content-Length: {GIGANTIC}", "Expect: 100-continue"))
        assert read_answer(connection)[0] == 413
    with served.stream() as stream, served.connect() as connection:
        connection.sendall(head("POST", stream["frames_url"], "Content-Length: 192", "Expect: 100-continue"))
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(FRAME)
        assert read_answer(connection)[0] == 200


@pytest.mark.parametrize(("method", "path"), PATHS[:-1])
def test_an_endless_body_is_cut_off(served, method, path):
    """Unannounced, 200 MB: the answer comes at about the limit, and memory stays where it was."""
    before = rss_bytes()
    block = b"10000\r\n" + bytes(65_536) + b"\r\n"
    with served.connect() as connection:
        connection.sendall(head(method, path, "Transfer-Encoding: chunked"))
        sent = 0
        try:
            while sent < 200 << 20:
                connection.sendall(block)
                sent += len(block)
        except OSError:
            pass  # closed before all was sent
        try:
            status, _, document = read_answer(connection)
            assert (status, document["code"]) == (413, "body_too_large")
        except ConnectionError:
            pass  # the answer was lost with the connection: the client would not stop sending
    assert rss_bytes() - before < 16 << 20


def test_a_client_that_sends_all_of_a_large_body_still_gets_its_answer(served):
    """As real clients do: they read only after they have written."""
    answer = httpx.post(f"{served.url}/v1/streams", content=bytes(20 << 20), timeout=20)
    problem(answer, 413, "body_too_large")
    with served.stream() as stream:
        answer = httpx.post(served.url + stream["frames_url"], content=(bytes(65_536) for _ in range(64)), timeout=20)
        problem(answer, 413, "body_too_large")


def test_uploads_that_break_off_are_the_clients_affair(served):
    """A hundred resets in the middle of a frame while a stream runs beside it."""
    stop = threading.Event()
    outcomes = []
    before = served.counters()
    with served.stream(period_ms=100) as stream, served.stream(period_ms=100) as steady:

        def run_steadily():
            while not stop.wait(0.002):
                [result] = served.http.post(steady["frames_url"], content=FRAME).json()["results"]
                outcomes.append(result["outcome"])

        thread = threading.Thread(target=run_steadily)
        thread.start()
        rss = rss_bytes()
        for number in range(100):
            connection = served.connect()
            path = stream["frames_url"] if number % 2 else "/v1/streams"
            connection.sendall(head("POST", path, "Content-Length: 192" if number % 2 else "Content-Length: 50000"))
            connection.sendall(FRAME[:100])
            reset(connection)
        wait_until(
            lambda: served.counters().get(("framegate_refused_total", "client_gone"), 0) >= 50, "they were not noticed"
        )
        stop.set()
        thread.join(10)
        assert rss_bytes() - rss < 8 << 20
        assert books(served, stream)["accepted"] == 0
        assert set(outcomes) == {"met"}
    after = served.counters()
    grown = {key: after[key] - before.get(key, 0) for key in after if key[0] == "framegate_http_responses_total"}
    assert not any(key[-1].startswith("5") and count for key, count in grown.items())
    assert served.call(lambda: served.gateway.arena.batches) == 0


def test_resets_while_the_answer_is_awaited(served):
    served.stand_in.delay_s = lambda call: 0.02
    with served.stream(period_ms=20, deadline_ms=40) as stream:
        for _ in range(50):
            connection = served.connect()
            connection.sendall(head("POST", stream["frames_url"], "Content-Length: 192") + FRAME)
            reset(connection)
        wait_until(lambda: books(served, stream)["in_flight"] == 0, "frames have no outcome")
        served.stand_in.delay_s = lambda call: 0.0
        assert served.http.post(stream["frames_url"], content=FRAME).status_code == 200
    assert served.call(lambda: served.gateway.arena.batches) == 0


def test_a_poll_that_is_given_up_holds_nothing(served):
    with served.stream() as stream:
        for _ in range(20):
            connection = served.connect()
            connection.sendall(head("GET", f"{stream['results_url']}?timeout_ms=20000"))
            reset(connection)
        waiters = served.gateway.stream(stream["stream_id"]).ring._waiters
        wait_until(lambda: not waiters, "somebody still waits")


@pytest.mark.parametrize(
    "header",
    [
        "Content-Length: abc",
        "Content-Length: -1",
        "Content-Length: 1e3",
        "Content-Length: " + "9" * 400,
        "Content-Length: 10\r\nContent-Length: 11",
        "Content-Length: 10\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip",
    ],
)
def test_what_is_no_http_is_refused_by_the_server(served, header):
    with served.connect() as connection:
        connection.sendall(head("POST", "/v1/streams", header))
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_several_requests_on_one_connection(served):
    """A refusal that was read in full leaves the connection usable."""
    with served.stream() as stream, served.connect() as connection:
        for body in (FRAME, FRAME[:-1], FRAME):
            connection.sendall(head("POST", stream["frames_url"], f"Content-Length: {len(body)}") + body)
            status, _, _ = read_answer(connection)
            assert status == (200 if body is FRAME else 400)


def test_callers_cannot_make_series(served):
    with served.stream() as stream:
        served.http.post(stream["frames_url"], content=FRAME)
    served.http.get("/no")
    served.register(model="no")
    before = len(served.http.get("/metrics").text.splitlines())
    for number in range(200):
        served.http.get(f"/no/such/path/{number}")
        served.http.request("BREW", f"/v1/streams/{number}")
        served.http.get(f"/v1/streams/{number}")
        served.register(model=f"m{number}")
        served.register(name=f'quote" back\\slash {number} ' + "x" * 90, period_ms=1)
        with served.stream(name=f"n{number}"):
            pass
    began = time.monotonic()
    after = served.http.get("/metrics").text.splitlines()
    assert time.monotonic() - began < 0.2
    assert len(after) - before < 30
