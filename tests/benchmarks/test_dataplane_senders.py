"""The senders of the benchmark of the frame path, against small servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import serve

from benchmarks.frame_path.processes import HOST
from benchmarks.frame_path.sender import Order, Sender, Sent
from benchmarks.frame_path.wire import Answer, Pong, WireError, http_answers, masked, message, ws_answers

# ---------------------------------------------------------------- the wire


def test_answers_are_taken_when_they_are_complete() -> None:
    text = (
        b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"
        b"HTTP/1.1 429 Too Many\r\ncontent-length: 0\r\n\r\nHTTP"
    )
    buffer, found = bytearray(), []
    for byte in text:
        buffer.append(byte)
        found += http_answers(buffer)
    assert found == [Answer("", b"abc"), Answer("http_429", b"")]
    assert buffer == b"HTTP"
    with pytest.raises(WireError, match="content-length"):
        list(http_answers(bytearray(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")))


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_messages_of_a_server_are_taken_when_they_are_complete(size: int) -> None:
    sent = message(b"x" * size, opcode=1)
    head = len(sent) - size - 4
    mask, payload = sent[head : head + 4], sent[head + 4 :]
    assert masked(payload, mask) == b"x" * size
    plain = bytes([sent[0], sent[1] & 0x7F]) + sent[2:head] + b"x" * size
    assert size == 0 or list(ws_answers(bytearray(plain[:-1]))) == []
    assert list(ws_answers(bytearray(plain))) == [Answer("", b"x" * size)]


def test_what_a_server_says_beside_results() -> None:
    assert list(ws_answers(bytearray(b'\x81\x0b{"error":1}'))) == [Answer("problem", b'{"error":1}')]
    problem = b'{"error":{"code":"arena_full"}}'
    assert list(ws_answers(bytearray(bytes([0x81, len(problem)]) + problem))) == [Answer("arena_full", problem)]
    [pong] = ws_answers(bytearray(b"\x89\x02hi"))
    assert isinstance(pong, Pong)
    assert (pong.data[:2], masked(pong.data[6:], pong.data[2:6])) == (b"\x8a\x82", b"hi")
    with pytest.raises(WireError, match="closed"):
        list(ws_answers(bytearray(b"\x88\x00")))


# ---------------------------------------------------------------- the sender


@contextmanager
def serving(start: Callable[[], Any]) -> Iterator[int]:
    """Run an asyncio server in a thread; give its port."""
    port: Future[int] = Future()
    over = threading.Event()

    async def run() -> None:
        server = await start()
        port.set_result(next(iter(server.sockets)).getsockname()[1])
        await asyncio.to_thread(over.wait)
        server.close()
        await asyncio.sleep(0.05)  # clients have closed: handlers see it

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        yield port.result(10)
    finally:
        over.set()
        thread.join(10)


def http_server(answer: Callable[[int], bytes], delay_s: float = 0.0) -> Callable[[], Any]:
    """A server that answers call number n so."""
    calls = iter(range(10**9))

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                assert await reader.readexactly(size) == b"f" * size
                await asyncio.sleep(delay_s)
                writer.write(answer(next(calls)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return lambda: asyncio.start_server(handle, HOST, 0, limit=1 << 20)


async def answer_messages() -> Any:
    async def handle(socket: Any) -> None:
        number = 0
        async for frame in socket:
            assert frame == b"f" * len(frame)
            number += 1
            if number % 10 == 0:
                await socket.ping()
            await socket.send('{"error":{}}' if number == 5 else '{"seq":1,"outcome":"met"}')

    return await serve(handle, HOST, 0, max_size=None)


MET = b'HTTP/1.1 200 OK\r\ncontent-length: 31\r\n\r\n{"results":[{"outcome":"met"}]}'
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"


def send(tmp_path: Path, port: int, *, size: int = 300_000, seconds: float = 0.5, **order: Any) -> Sent:
    body = tmp_path / "body"
    body.write_bytes(b"f" * size)
    sender = Sender(Order(port=port, path="/x", body=str(body), seconds=seconds, **{"connections": 4} | order))
    try:
        return sender.run()
    finally:
        sender.close()


def test_a_closed_loop_has_one_frame_under_way_on_each_connection(tmp_path: Path) -> None:
    with serving(http_server(lambda _n: MET, delay_s=0.05)) as port:
        sent = send(tmp_path, port)
    assert 20 <= sent.frames <= 40, "4 connections, 50 ms, half a second"
    assert sent.met == sent.frames
    assert 50 <= sent.p50_ms <= sent.p99_ms
    assert not sent.faults


def test_what_is_not_a_result_is_counted_apart(tmp_path: Path) -> None:
    with serving(http_server(lambda n: BUSY if n == 3 else MET)) as port:
        sent = send(tmp_path, port, size=10)
    assert sent.faults == {"http_503": 1}
    assert sent.frames > 10


def test_frames_at_a_rate_come_whatever_the_answers_do(tmp_path: Path) -> None:
    with serving(http_server(lambda _n: MET)) as port:
        sent = send(tmp_path, port, size=10, seconds=1.0, rate_per_s=100.0)
    assert 95 <= sent.frames <= 100
    assert sent.late <= 5


def test_a_frame_that_no_connection_was_free_for_counts_from_when_it_was_due(tmp_path: Path) -> None:
    with serving(http_server(lambda _n: MET, delay_s=0.1)) as port:
        sent = send(tmp_path, port, size=10, seconds=1.0, rate_per_s=40.0, connections=1)
    assert sent.frames <= 10
    assert sent.late >= 5
    assert sent.p99_ms > 500, "the last of them have waited for most of the run"


def test_websockets_carry_frames_of_any_size(tmp_path: Path) -> None:
    with serving(answer_messages) as port:
        for size in (10, 1_000, 300_000):
            sent = send(tmp_path, port, size=size, websocket=True)
            assert sent.frames > 10
            assert sent.met == sent.frames
            assert sent.faults == {"problem": 4}, "the fifth message of each connection"


def test_a_server_that_goes_away_is_an_error(tmp_path: Path) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(10)
        writer.close()

    with serving(lambda: asyncio.start_server(handle, HOST, 0)) as port, pytest.raises((WireError, ConnectionError)):
        send(tmp_path, port, size=10, seconds=5.0)


def test_a_refused_handshake_is_an_error(tmp_path: Path) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\n\r\n")
        writer.close()

    with serving(lambda: asyncio.start_server(handle, HOST, 0)) as port, pytest.raises(WireError, match="404"):
        send(tmp_path, port, websocket=True)
