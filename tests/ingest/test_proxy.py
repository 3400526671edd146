"""What one client does with a call that is passed on must not be felt by another, whose call takes the same way."""

import time

import pytest

from tests.api.served import Served

GET = b"GET /v1/profile HTTP/1.1\r\nHost: x\r\n\r\n"
INFER = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def single():
    """One ingest process, so that all clients share its connections to the scheduler."""
    with Served(server={"ingest_workers": 1}) as gateway:
        yield gateway


def status_of(peer):
    received = b""
    while b"\r\n\r\n" not in received:
        part = peer.recv(1 << 16)
        assert part, received
        received += part
    return int(received.split(b" ", 2)[1])


def ask(served, data=GET):
    """Return the status of a call of another client, and how long it took."""
    with served.connect() as peer:
        began = time.monotonic()
        peer.sendall(data)
        return status_of(peer), time.monotonic() - began


@pytest.mark.parametrize(
    "head",
    [
        INFER + b"Inference-Header-Content-Length: x\r\nContent-Length: 1000000\r\n\r\n",
        INFER + b"Inference-Header-Content-Length: x\r\nContent-Length: 40\r\n\r\n",
        INFER + b"Inference-Header-Content-Length: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
        INFER + b"Inference-Header-Content-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["large", "small", "asks first", "chunked"],
)
def test_a_call_that_is_answered_before_its_body_came_leaves_nothing_behind(single, head):
    with single.connect() as first:
        first.sendall(head)
        assert status_of(first) == 400
        for _ in range(3):
            status, took_s = ask(single)
            assert status == 200
            assert took_s < 2


def test_nor_does_a_call_for_another_protocol_that_announces_a_body(single):
    """The server takes no body of such a call."""
    with single.connect() as first:
        head = b"POST /v1/streams HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        first.sendall(head + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 60\r\n\r\n")
        assert 400 <= status_of(first) < 500
        for _ in range(3):
            status, took_s = ask(single)
            assert status == 200
            assert took_s < 2


def test_an_expectation_that_nobody_knows_holds_up_nothing(single):
    body = b'{"model":"echo","shape":[8,8,3],"period_ms":500,"deadline_ms":900}'
    head = b"POST /v1/streams HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: something\r\n"
    with single.connect() as peer:
        peer.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
        time.sleep(0.1)  # so that the call is passed on before its body is here
        began = time.monotonic()
        peer.sendall(body)
        assert status_of(peer) == 201
        assert time.monotonic() - began < 2


def test_a_connection_that_the_scheduler_cuts_off_makes_no_call_twice(single, monkeypatch):
    """A registration whose answer is lost may have been carried out: it is not made again."""
    made = []
    before = single.gateway.register

    async def cut_off(*arguments, **options):
        record = await before(*arguments, **options)
        made.append(record)
        for connection in list(single.server.server_state.connections):
            connection.transport.abort()
        return record

    assert ask(single)[0] == 200  # a connection that has served is there
    monkeypatch.setattr(single.gateway, "register", cut_off)
    answer = single.register()
    assert answer.status_code == 503
    assert len(made) == 1
