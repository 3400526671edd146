"""The application under a server that knows ASGI alone: all that ours does beyond it has another way."""

import asyncio
import json

import pytest

from tests.api.asgi import DISCONNECT, Client, chunk, scope
from tests.api.served import FRAME, Served, books, echo


@pytest.fixture(scope="module")
def shared():
    with Served() as gateway:
        yield gateway


class Bare(Client):
    """Gives its messages as a server does, and the last of them when it is told to."""

    def __init__(self, *messages, at_last=None):
        super().__init__(*messages)
        self.at_last = at_last
        self.leave = asyncio.Event()

    async def receive(self):
        if not self.messages and self.at_last is not None:
            await self.leave.wait()
            return self.at_last
        return await super().receive()


def call(stream, **headers):
    return {
        **scope(path=stream["frames_url"], **headers),
        "query_string": b"",
        "http_version": "1.1",
        "extensions": {"http.response.trailers": {}},
    }


@pytest.mark.parametrize("accept", ["application/json", "application/octet-stream"])
def test_a_frame_is_answered(served, accept):
    before = served.counters()
    with served.stream() as stream:
        client = Client(chunk(FRAME[:100]), chunk(b""), chunk(FRAME[100:], more=False))
        served.run(served.app(call(stream, content_length=192, accept=accept), client.receive, client.send))
        assert client.status == 200
        if accept == "application/json":
            [result] = json.loads(client.body)["results"]
            assert echo(result) == FRAME
        else:
            assert FRAME in client.body
    key = ("framegate_http_responses_total", "POST", "/v1/streams/{stream_id}/frames", "200")
    assert served.counters()[key] == before.get(key, 0) + 1


def test_a_client_that_goes_away_cancels_its_frames(served):
    served.stand_in.delay_s = lambda call: 0.3
    before = served.counters()

    async def conversation(stream):
        busy = Client(chunk(FRAME, more=False))
        running = asyncio.ensure_future(served.app(call(stream), busy.receive, busy.send))
        while not served.gateway.view().running:
            await asyncio.sleep(0.005)
        client = Bare(chunk(FRAME * 2, more=False), at_last=DISCONNECT)
        waiting = asyncio.ensure_future(served.app(call(stream), client.receive, client.send))
        while served.gateway.stream(stream["stream_id"]).accepted < 3:
            await asyncio.sleep(0.005)
        client.leave.set()
        await waiting
        assert client.sent == []
        await running
        assert busy.status == 200

    with served.stream(burst=4, deadline_ms=2_000) as stream:
        served.run(conversation(stream))
        assert books(served, stream)["outcomes"] == {"met": 1, "missed": 0, "expired": 0, "cancelled": 2, "failed": 0}
    key = ("framegate_http_responses_total", "POST", "/v1/streams/{stream_id}/frames", "499")
    assert served.counters()[key] == before.get(key, 0) + 1


def test_a_call_that_is_cut_off_cancels_its_frames(served):
    served.stand_in.delay_s = lambda call: 0.3

    async def conversation(stream):
        busy = Client(chunk(FRAME, more=False))
        running = asyncio.ensure_future(served.app(call(stream), busy.receive, busy.send))
        while not served.gateway.view().running:
            await asyncio.sleep(0.005)
        client = Client(chunk(FRAME, more=False))
        waiting = asyncio.ensure_future(served.app(call(stream), client.receive, client.send))
        while served.gateway.stream(stream["stream_id"]).accepted < 2:
            await asyncio.sleep(0.005)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        await running

    with served.stream(burst=4, deadline_ms=2_000) as stream:
        served.run(conversation(stream))
        assert books(served, stream)["outcomes"]["cancelled"] == 1


def test_frames_over_a_websocket_are_answered(served):
    async def conversation(stream):
        client = Bare(
            {"type": "websocket.connect"},
            {"type": "websocket.receive", "text": '{"timestamp_ms": 1.5}'},
            {"type": "websocket.receive", "bytes": FRAME * 2},
            {"type": "websocket.receive", "bytes": FRAME[1:]},
            at_last={"type": "websocket.disconnect", "code": 1005},
        )
        address = {"type": "websocket", "path": f"/v1/streams/{stream['stream_id']}/ws", "headers": []}
        serving = asyncio.ensure_future(served.app(address, client.receive, client.send))
        while len(client.sent) < 4:
            await asyncio.sleep(0.005)
        client.leave.set()
        await serving
        return client.sent

    with served.stream(burst=4, deadline_ms=2_000) as stream:
        accepted, *answers = served.run(conversation(stream))
    assert accepted["type"] == "websocket.accept"
    documents = [json.loads(answer["text"]) for answer in answers]
    assert documents[0]["error"]["code"] == "frame_size_mismatch"
    assert [(each["message"], each["timestamp_ms"], echo(each)) for each in documents[1:]] == [(0, 1.5, FRAME)] * 2
