"""The body limit by itself: what is read, what is kept, when it answers. No server, no sleeps."""

import asyncio

import pytest

from gateway.api import limits
from gateway.api.limits import BodyLimit
from gateway.api.uploads import Uploads
from tests.api.asgi import DISCONNECT, Client, chunk, scope


@pytest.fixture(autouse=True)
def _short_linger(monkeypatch):
    monkeypatch.setattr(limits, "LINGER_S", 0.2)
    monkeypatch.setattr(limits, "QUIET_S", 0.05)


async def _echo(scope, receive, send):
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message.get("body", b"")})


def run(client, request, limit=10):
    asyncio.run(BodyLimit(_echo, Uploads(1 << 20, 60), limit)(request, client.receive, client.send))


def test_a_body_comes_through_unchanged():
    client = Client(chunk(b"abc"), chunk(b""), chunk(b"def", more=False))
    run(client, scope(content_length=6))
    assert client.sent[1]["body"] == b"abcdef"


def test_a_body_of_exactly_the_limit_passes():
    client = Client(chunk(b"x" * 10, more=False))
    run(client, scope(content_length=10))
    assert client.status == 200


def test_an_announced_length_is_refused_before_anything_is_read():
    client = Client()
    run(client, scope(content_length=5_000_000_000))
    assert client.status == 413
    assert client.problem["code"] == "body_too_large"
    assert client.problem["limit_bytes"] == 10
    assert client.received == 0
    assert (b"connection", b"close") in client.sent[0]["headers"]


def test_an_unannounced_length_is_refused_as_soon_as_it_passes_the_limit():
    client = Client(*[chunk(b"x" * 4)] * 3, DISCONNECT)
    run(client, scope(transfer_encoding="chunked"))
    assert client.status == 413


def test_the_answer_is_complete_before_the_rest_is_thrown_away():
    seen_when_answered = []
    client = Client(*[chunk(b"x" * 100)] * 50, chunk(b"", more=False))
    send = client.send

    async def watched(message):
        if message.get("body"):
            seen_when_answered.append(client.received)
        await send(message)

    client.send = watched
    run(client, scope(transfer_encoding="chunked"))
    assert seen_when_answered == [1]
    assert client.received == 51
    assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_a_client_that_sends_fast_is_not_listened_to_for_much(monkeypatch):
    monkeypatch.setattr(limits, "LINGER_BYTES", 1_000)
    client = Client(*[chunk(b"x" * 100)] * 50)
    run(client, scope(transfer_encoding="chunked"))
    assert client.received == 1 + 11  # the limit of the route, 10, on top
    assert client.sent[-1]["more_body"] is False


def test_a_client_that_never_stops_sending_is_not_listened_to_for_long():
    client = Client(chunk(b"x" * 100))

    async def for_ever():
        await asyncio.sleep(0.001)
        client.received += 1
        return chunk(b"x" * 100)

    client.receive = for_ever
    run(client, scope(transfer_encoding="chunked"))
    assert client.received < 200
    assert client.sent[-1]["more_body"] is False


def test_a_client_that_breaks_off_is_forgotten():
    client = Client(chunk(b"abc"), DISCONNECT)
    run(client, scope(content_length=9))
    assert client.sent == []


def test_without_a_body_nothing_is_read_beforehand():
    client = Client(DISCONNECT)
    run(client, scope("GET"))
    assert client.received == 1  # by the route itself


def test_the_route_sees_the_disconnect_after_the_body():
    seen = []

    async def route(scope, receive, send):
        seen.extend([(await receive())["type"], (await receive())["type"]])

    client = Client(chunk(b"abc", more=False), DISCONNECT)
    asyncio.run(BodyLimit(route, Uploads(1 << 20, 60), 10)(scope(content_length=3), client.receive, client.send))
    assert seen == ["http.request", "http.disconnect"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/streams"),
        ("GET", "/metrics"),
        ("GET", "/v2/health/live"),
        ("DELETE", "/no/such/path"),
    ],
)
def test_every_path_has_the_limit(method, path):
    client = Client(chunk(b"x" * 11, more=False))
    run(client, scope(method, path, content_length=11))
    assert client.status == 413


def test_a_client_that_sends_first_is_listened_to_beyond_the_routes_limit(monkeypatch):
    """However large the limit: a body somewhat above it comes to its end."""
    monkeypatch.setattr(limits, "LINGER_BYTES", 100)
    client = Client(*[chunk(b"x" * 100)] * 10, chunk(b"x" * 50, more=False))
    run(client, scope(content_length=1_050), limit=1_000)
    assert client.status == 413
    assert client.messages == []
