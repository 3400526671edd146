"""What one connection may cost: headers without end, bodies above the limit. Under the real server."""

import http.client
import re
import time

import pytest

from gateway.api.connection import HEAD_BYTES
from tests.api.served import FRAME, Served, books, wait_until
from tests.api.test_bad_clients import head, read_answer, rss_bytes

MIB = 1 << 20


GET = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/streams HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (GET + b"X: ", b"x" * 65_536),
        (GET, b"X-1: y\r\n" * 8_192),
        (b"GET /", b"x" * 65_536),
        (POST + b"0\r\nX: ", b"x" * 65_536),
    ],
    ids=["one header", "many headers", "the path", "a trailer"],
)
def test_headers_without_end(served, begin, more):
    more *= 100 * MIB // len(more)
    before = rss_bytes()
    with served.connect() as connection:
        connection.sendall(begin)
        with pytest.raises(ConnectionError):
            connection.sendall(more)
    assert rss_bytes() - before < 16 * MIB
    assert served.http.get("/v2/health/live").status_code == 200


@pytest.mark.parametrize("where", ["path", "header", "headers"])
def test_headers_that_are_just_too_large_are_told_so(served, where):
    def ask(size):
        with served.connect() as connection:
            path, headers = "/v2/health/live", ["A: b"]
            if where == "path":
                path += "?" + "x" * size
            elif where == "header":
                headers.append("X: " + "y" * size)
            else:
                headers.extend(["X: " + "y" * 99] * (size // 100))
            connection.sendall(head("GET", path, *headers))
            return read_answer(connection)

    assert ask(HEAD_BYTES - 200)[0] == 200
    status, headers, document = ask(HEAD_BYTES + 100)
    assert (status, document["code"], document["limit_bytes"]) == (431, "head_too_large", HEAD_BYTES)
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"


def test_headers_that_come_in_pieces_are_added_up(served):
    with served.connect() as connection:
        connection.sendall(GET + b"X: " + b"x" * (HEAD_BYTES - 1_000))
        time.sleep(0.05)  # so that the rest is read by itself
        connection.sendall(b"x" * 1_000 + b"\r\n\r\n")
        assert read_answer(connection)[0] == 431


def test_calls_behind_a_large_body_on_one_connection_are_not_taken_for_headers(served):
    """Pipelined: one piece that arrives holds the end of a body and the next call's headers."""
    with served.stream() as stream, served.connect() as connection:
        call = head("POST", stream["frames_url"], f"Content-Length: {192 * 500}") + FRAME * 500
        connection.sendall(call[:-100])
        connection.sendall(call[-100:] + head("GET", "/v2/health/live") * 3)
        data = b""
        while data.count(b"HTTP/1.1 200") < 4:
            data += connection.recv(1 << 16)
        assert b"431" not in re.findall(rb"HTTP/1.1 (\d+)", data)


def test_a_body_somewhat_above_the_limit_is_told_so(served):
    """A client that writes all before it reads: 64 MiB and a little."""
    host, port = served.url.removeprefix("http://").split(":")
    with served.stream() as stream:
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("POST", stream["frames_url"], bytes(67_200_000))
        answer = connection.getresponse()
        assert answer.status == 413
        connection.close()
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("PUT", stream["frames_url"], bytes(60 * MIB))
        assert connection.getresponse().status == 405
        connection.close()


def test_a_connection_that_rests_is_closed_and_one_that_is_used_is_not():
    """One timer serves for many calls: it must neither count from the first of them, nor close in the midst of one."""
    with Served(server={"keep_alive_s": 1}) as served, served.connect() as used, served.connect() as resting:
        served.stand_in.delay_s = lambda call: 0.4
        with served.stream(deadline_ms=2_000) as stream:
            resting.sendall(head("GET", "/v2/health/live"))
            assert read_answer(resting)[0] == 200
            began = time.monotonic()
            for _ in range(4):
                used.sendall(head("POST", stream["frames_url"], "Content-Length: 192") + FRAME)
                assert read_answer(used)[0] == 200
            assert resting.recv(1) == b""
            assert used.recv(1) == b""
            assert 2.4 < time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/streams/{}/frames", 200),
        ("/v1/streams/{}/frames?", 200),
        ("/v1/streams/{}/frames?wait=true", 200),
        ("/v1/streams/{}/frames?wait=never", 422),
        ("http://elsewhere/v1/streams/{}/frames", 200),
        ("/v1/streams/{}/%66rames", 200),
        ("/v1/streams/a/{}/frames", 404),
        ("/v1/streams/{}/frames/", 404),
        ("/v1/streams//frames", 404),
    ],
)
def test_however_the_target_is_spelt_it_is_one_and_the_same_call(served, target, status):
    """Frames are taken before the framework sees the call; what is none goes to it, as all else does."""
    with served.stream() as stream, served.connect() as connection:
        for _ in range(2):
            connection.sendall(head("POST", target.format(stream["stream_id"]), "Content-Length: 192") + FRAME)
            found, headers, document = read_answer(connection)
            assert found == status
            assert ("results" in document) == (status == 200)
            assert headers["content-type"] == f"application/{'' if status == 200 else 'problem+'}json"
        wait_until(lambda: not served.server.server_state.tasks, "a call is not over")


def test_a_fault_of_ours_in_such_a_call_is_answered_and_logged(served, monkeypatch, caplog):
    def broken(*_arguments):
        raise ValueError("broken")

    with served.stream() as stream, served.connect() as connection:
        with monkeypatch.context() as patched:
            patched.setattr("gateway.api.frames._parse_wait", broken)
            connection.sendall(head("POST", stream["frames_url"], "Content-Length: 192") + FRAME)
            status, _, document = read_answer(connection)
            assert (status, "broken" in str(document)) == (500, False)
        assert "unexpected error while answering POST" in caplog.text
        connection.sendall(head("POST", stream["frames_url"], "Content-Length: 192") + FRAME)
        assert read_answer(connection)[0] == 200


@pytest.mark.parametrize("target", [b"POST http://host HTTP/1.1", b"CONNECT host:1 HTTP/1.1", b"POST http:// HTTP/1.1"])
@pytest.mark.parametrize("behind", [False, True], ids=["first", "pipelined"])
@pytest.mark.usefixtures("no_error_is_logged")
def test_a_large_body_behind_a_target_that_cannot_be_is_refused_and_nothing_is_logged(served, target, behind):
    """And the call that runs meanwhile does not get that body for its own."""
    with served.stream() as stream, served.connect() as connection:
        bad = target + b"\r\nHost: x\r\nContent-Length: 40000\r\n\r\n" + bytes(40_000)
        if behind:
            connection.sendall(head("POST", stream["frames_url"], f"Content-Length: {len(FRAME)}") + FRAME + bad)
        else:
            connection.sendall(bad)
        data = b""
        while part := connection.recv(1 << 16):
            data += part
        assert b"HTTP/1.1 400 " in data
        wait_until(lambda: books(served, stream)["in_flight"] == 0, "it did not end")


@pytest.mark.usefixtures("no_error_is_logged")
def test_a_websocket_behind_a_call_that_runs_does_not_get_its_answer(served):
    """An answer written into a WebSocket would be no frame of it: the handshake is taken for a call, as it may be."""
    served.stand_in.delay_s = lambda call: 0.1
    try:
        with served.stream() as stream, served.connect() as connection:
            call = head("POST", stream["frames_url"], f"Content-Length: {len(FRAME)}") + FRAME
            upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
            path = f"/v1/streams/{stream['stream_id']}/ws"
            connection.sendall(call + head("GET", path, *upgrade, f"Sec-WebSocket-Key: {'A' * 22}=="))
            data = b""
            while len(re.findall(rb"HTTP/1.1 (?:200|4\d\d) ", data)) < 2:
                data += connection.recv(1 << 16) or pytest.fail(f"the connection was closed after {data!r}")
            assert re.findall(rb"HTTP/1.1 (\d+) ", data) == [b"200", b"426"]
    finally:
        served.stand_in.delay_s = lambda call: 0.0


def test_a_body_that_comes_byte_by_byte_is_kept_in_few_pieces(served):
    """Each would take a hundred times the memory that counts."""
    with served.stream() as stream, served.connect() as connection:
        connection.setsockopt(6, 1, 1)  # TCP_NODELAY
        connection.sendall(head("POST", stream["frames_url"], f"Content-Length: {len(FRAME)}"))
        for number in range(100):
            connection.sendall(FRAME[number : number + 1])
            time.sleep(0.001)

        def pieces():
            return [len(each.cycle._pieces) for each in served.server.server_state.connections if each.cycle]

        assert max(served.call(pieces)) <= 2
        connection.sendall(FRAME[100:])
        assert read_answer(connection)[0] == 200
