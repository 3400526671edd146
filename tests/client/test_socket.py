"""The SDK's WebSocket against a stub gateway on a real server, and against gateways that do not behave."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import numpy as np
import pytest
import uvicorn
from stub_gateway import StubGateway, problem
from websockets.asyncio.server import serve

from gateway.client.client import FramegateClient
from gateway.client.problems import GatewayUnreachable, ProblemError
from gateway.client.socket import SocketSender, StreamSocket
from gateway.client.types import Evidence, StreamHandle

SHAPE = (4, 6, 3)


def frame(value):
    return np.full(SHAPE, value, np.uint8)


def mean(result):
    return float(result.outputs["echo"][1, 0])


@asynccontextmanager
async def serving(stub):
    server = uvicorn.Server(uvicorn.Config(stub.app(), port=0, log_config=None, log_level="error", lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def streaming(stub, timeout_s=10.0):
    """A client and a stream of it."""
    async with serving(stub) as url, FramegateClient(url, timeout_s=timeout_s) as client:
        yield client, await client.register("m", SHAPE, fps=10, deadline_ms=200)


def run(main):
    asyncio.run(asyncio.wait_for(main(), 30))


def test_many_tasks_send_and_each_gets_its_own_results():
    async def main():
        async with streaming(StubGateway()) as (client, stream), client.open(stream) as socket:
            found = await asyncio.gather(*(socket.send([frame(n), frame(n + 1)]) for n in range(0, 100, 2)))
            assert [[mean(result) for result in results] for results in found] == [[n, n + 1] for n in range(0, 100, 2)]
            assert [result.seq for result in found[7]] == [14, 15]
            [labelled] = await socket.send([frame(3)], timestamp_ms=12.5)
            [plain] = await socket.send([frame(3).tobytes()])
            assert (labelled.timestamp_ms, plain.timestamp_ms) == (12.5, None)
            with pytest.raises(ValueError, match="shape"):
                await socket.send([np.zeros((1, 2, 3), np.uint8)])

    run(main)


def test_what_is_refused_is_that_messages_problem():
    async def main():
        surplus = problem(429, "frame_surplus", "too early", retry_after_ms=12.5)
        stub = StubGateway(frame_answers=[surplus])
        async with streaming(stub) as (client, stream), client.open(stream) as socket:
            refused, taken = await asyncio.gather(
                socket.send([frame(1)] * 3), socket.send([frame(2)]), return_exceptions=True
            )
            assert (refused.code, refused.status, refused.retry_after_s) == ("frame_surplus", 429, 0.0125)
            assert mean(taken[0]) == 2

    run(main)


def test_a_stream_that_is_not_there_is_a_problem_before_anything_is_sent():
    async def main():
        async with streaming(StubGateway()) as (client, stream):
            await client.close(stream)
            with pytest.raises(ProblemError, match="410 stream_closed"):
                async with client.open(stream):
                    pass
            unknown = StreamHandle("none", "", "m", SHAPE, "UINT8", 100, 200, Evidence.from_json({}))
            with pytest.raises(ProblemError, match="404 stream_not_found"):
                async with client.open(unknown):
                    pass
        with pytest.raises(GatewayUnreachable, match=r"ws://127\.0\.0\.1:1/v1/streams/none/ws"):
            await StreamSocket.connect("http://127.0.0.1:1", unknown, 5)

    run(main)


def test_who_gives_up_does_not_disturb_the_others():
    """A message counts once it is written, whether its sender still waits or not."""

    async def main():
        gate = asyncio.Event()
        async with streaming(StubGateway(answer_after=gate)) as (client, stream), client.open(stream) as socket:
            tasks = [asyncio.create_task(socket.send([frame(n)])) for n in range(8)]
            await asyncio.sleep(0)
            tasks[1].cancel()  # before it was written
            await asyncio.sleep(0.1)
            tasks[3].cancel()  # after it
            gate.set()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert [mean(found[n][0]) for n in (0, 2, 4, 5, 6, 7)] == [0, 2, 4, 5, 6, 7]
            assert isinstance(found[3], asyncio.CancelledError)

    run(main)


def test_no_answer_in_time_is_an_outage():
    async def main():
        gate = asyncio.Event()
        async with (
            streaming(StubGateway(answer_after=gate), timeout_s=0.3) as (client, stream),
            client.open(stream) as socket,
        ):
            with pytest.raises(GatewayUnreachable, match=r"no answer within 0\.3 s"):
                await socket.send([frame(1)])
            gate.set()

    run(main)


@asynccontextmanager
async def speaking(handler):
    """A gateway whose sockets are served by `handler`, and a stream of it."""
    async with serve(handler, "127.0.0.1", 0, compression=None) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield url, StreamHandle("s0", "", "m", SHAPE, "UINT8", 100, 200, Evidence.from_json({}))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([], "1012 .*stopping"),
        ([json.dumps({"error": {"status": 408, "code": "upload_timeout", "detail": "slow"}, "message": None})], "408"),
        (["{"], "an answer that is none"),
        (["[]"], "an answer that is none"),
        ([json.dumps({"message": 0})], "an answer that is none"),
        ([json.dumps({"message": 7, "outcome": "met"})], "1012"),
    ],
)
def test_a_gateway_that_breaks_off_says_why(said, told):
    async def handler(connection):
        await connection.recv()
        for text in said:
            await connection.send(text)
        await connection.close(1012, "stopping")

    async def main():
        async with speaking(handler) as (url, stream):
            socket = await StreamSocket.connect(url, stream, 5)
            found = await asyncio.gather(*(socket.send([frame(n)]) for n in range(3)), return_exceptions=True)
            assert [type(each) for each in found] == [GatewayUnreachable] * 3
            for each in found:
                assert each.args[0].startswith("ws://")
            with pytest.raises(GatewayUnreachable, match=told):
                await socket.send([frame(9)])
            assert not socket.open
            await socket.aclose()

    run(main)


def test_a_sender_opens_one_socket_and_another_when_it_was_lost_or_the_stream_is_another():
    async def main():
        stub = StubGateway()
        async with streaming(stub) as (client, stream):
            sender = SocketSender(client.url, 5)
            await asyncio.gather(*(sender.post_frames(stream, [frame(n)]) for n in range(5)))
            assert stub.sockets == 1
            lost = await sender._socket(stream)
            await lost._connection.close()
            [result] = await sender.post_frames(stream, [frame(7)])
            assert (mean(result), stub.sockets) == (7, 2)
            other = await client.register("m", SHAPE, fps=10, deadline_ms=200)
            await sender.post_frames(other, [frame(1)])
            assert (stub.sockets, stub.streams["s1"]["accepted"]) == (3, 1)
            stub.streams["s1"]["state"] = "closed"
            for _ in range(2):  # said on the socket, and of the next one
                with pytest.raises(ProblemError, match="410 stream_closed"):
                    await sender.post_frames(other, [frame(1)])
                await (await sender._socket(other)).aclose() if _ == 0 else None
            await sender.aclose()
            await sender.aclose()

    run(main)


def test_a_sender_that_cannot_connect_tries_again_with_the_next_frames():
    async def main():
        sender = SocketSender("http://127.0.0.1:1", 5)
        stream = StreamHandle("s0", "", "m", SHAPE, "UINT8", 100, 200, Evidence.from_json({}))
        for _ in range(2):
            found = await asyncio.gather(
                *(sender.post_frames(stream, [frame(n)]) for n in range(3)), return_exceptions=True
            )
            assert [type(each) for each in found] == [GatewayUnreachable] * 3
        await sender.aclose()

    run(main)
