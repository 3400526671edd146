"""Frames of one stream over one WebSocket, each sent as it comes, without a call of its own.

::

    async with client.open(stream) as socket:
        [result] = await socket.send([frame])

Many tasks may send: a message is numbered as it is written, and the gateway's answers name their message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from gateway.client import wire
from gateway.client.problems import GatewayUnreachable, ProblemError, problem
from gateway.client.types import FrameResult, StreamHandle

#: How long a gateway has to answer a close.
CLOSE_S = 2.0


@dataclass(eq=False)
class _Sent:
    """A message whose answers are not all here.

    Attributes:
        left: Frames without a result.
        done: Their results in order of `seq`, or why there are none.
    """

    left: int
    done: asyncio.Future[list[FrameResult]]
    results: list[FrameResult] = field(default_factory=list)


class StreamSocket:
    """An open WebSocket; see `FramegateClient.open`.

    Closing it cancels the frames that wait: take their results before.
    """

    def __init__(self, connection: ClientConnection, stream: StreamHandle, url: str, timeout_s: float) -> None:
        self.stream = stream
        self._connection = connection
        self._url = url
        self._timeout_s = timeout_s
        self._count = 0
        self._sent: dict[int, _Sent] = {}
        self._turn = asyncio.Lock()
        self._why = ""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, url: str, stream: StreamHandle, timeout_s: float) -> StreamSocket:
        """Open a WebSocket of `stream` at the gateway with the base URL `url`.

        Raises:
            ProblemError: The gateway refused it: it does not know the stream, or the stream is over.
            GatewayUnreachable: There is no connection.
        """
        address = f"ws{url.removeprefix('http')}/v1/streams/{stream.stream_id}/ws"
        try:
            connection = await connect(
                address, compression=None, max_size=None, open_timeout=timeout_s, close_timeout=CLOSE_S
            )
        except InvalidStatus as error:
            headers = {name.lower(): value for name, value in error.response.headers.raw_items()}
            raise wire.problem_of(
                error.response.status_code, bytes(error.response.body or b""), headers.get("retry-after")
            ) from error
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise GatewayUnreachable(f"{address}: {error or type(error).__name__}") from error
        return cls(connection, stream, address, timeout_s)

    @property
    def open(self) -> bool:
        """Whether frames can be sent."""
        return not self._reading.done()

    async def send(self, frames: Sequence[wire.Frame], *, timestamp_ms: float | None = None) -> list[FrameResult]:
        """Send frames as one message and wait for their results, in order.

        Args:
            frames: Arrays of the stream's shape, or their bytes; one entry is one frame.
            timestamp_ms: A time of your own; it comes back with the results.

        Raises:
            ProblemError: The frames were not accepted.
            GatewayUnreachable: The connection broke, or there was no answer in time.
        """
        body = wire.join_frames(self.stream, frames)
        sent = _Sent(len(frames), asyncio.get_running_loop().create_future())
        # A task of its own: given up half-way, it would leave open whether the message has been counted.
        writing = asyncio.create_task(self._write(body, timestamp_ms, sent))
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(writing)
                return await sent.done
        except TimeoutError:
            raise GatewayUnreachable(f"{self._url}: no answer within {self._timeout_s:g} s") from None
        finally:
            writing.add_done_callback(_seen)
            sent.done.add_done_callback(_seen)
            sent.done.cancel()

    async def aclose(self) -> None:
        """Close it."""
        await self._connection.close()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _write(self, body: bytes, timestamp_ms: float | None, sent: _Sent) -> None:
        async with self._turn:
            if not self.open:
                raise self._gone()
            self._sent[self._count] = sent
            self._count += 1
            try:
                if timestamp_ms is not None:
                    await self._connection.send(orjson.dumps({"timestamp_ms": timestamp_ms}).decode())
                await self._connection.send(body)
            except ConnectionClosed:
                await self._reading  # which knows why
                raise self._gone() from None

    async def _read(self) -> None:
        """Hand out answers until the connection is over; never raises."""
        try:
            while True:
                self._take(orjson.loads(await self._connection.recv(decode=False)))
        except ConnectionClosed as error:
            self._why = self._why or str(error)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            self._why = f"an answer that is none: {error!r}"
            await self._connection.close(1002)
        finally:
            for sent in self._sent.values():
                if not sent.done.done():
                    sent.done.set_exception(self._gone())
            self._sent.clear()

    def _take(self, answer: dict[str, Any]) -> None:
        index, refused = answer["message"], answer.get("error")
        if index is None:  # of the connection, not of a message: it is closed next
            self._why = str(_problem_of(refused or {}))
            return
        sent = self._sent.get(index)
        if sent is None:
            return
        if refused is not None:
            del self._sent[index]
            if not sent.done.done():
                sent.done.set_exception(_problem_of(refused))
            return
        sent.results.append(FrameResult.from_json(answer))
        sent.left -= 1
        if sent.left == 0:
            del self._sent[index]
            if not sent.done.done():
                sent.done.set_result(sorted(sent.results, key=lambda result: result.seq or 0))

    def _gone(self) -> GatewayUnreachable:
        return GatewayUnreachable(f"{self._url}: the connection is closed: {self._why}")


def _problem_of(document: dict[str, Any]) -> ProblemError:
    after_ms = document.get("retry_after_ms")
    return problem(int(document.get("status", 0)), document, None if after_ms is None else after_ms / 1e3)


def _seen(future: asyncio.Future[Any]) -> None:
    """Its exception, if it has one, is known, or nobody waits for it any more."""
    if not future.cancelled():
        future.exception()


class SocketSender:
    """Sends a stream's frames over a WebSocket that is opened when there are frames, and again after it was lost.

    It stands where a `FramegateClient` posts frames.

    Args:
        url: The gateway's base URL.
        timeout_s: Longest wait for a connection, and for an answer.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._opening: asyncio.Task[StreamSocket] | None = None
        self._stream_id = ""

    async def post_frames(self, stream: StreamHandle, frames: Sequence[wire.Frame]) -> list[FrameResult]:
        """Send frames and wait for their results. Raises as `StreamSocket.connect` and `StreamSocket.send`."""
        socket = await self._socket(stream)
        return await socket.send(frames)

    async def aclose(self) -> None:
        """Close what is open; frames that wait are cancelled."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
        [socket] = await asyncio.gather(opening, return_exceptions=True)
        if isinstance(socket, StreamSocket):
            await socket.aclose()

    async def _socket(self, stream: StreamHandle) -> StreamSocket:
        if self._opening is not None and self._useless(self._opening, stream):
            await self.aclose()
        if self._opening is None:
            self._stream_id = stream.stream_id
            self._opening = asyncio.create_task(StreamSocket.connect(self._url, stream, self._timeout_s))
            self._opening.add_done_callback(_seen)
        return await asyncio.shield(self._opening)

    def _useless(self, opening: asyncio.Task[StreamSocket], stream: StreamHandle) -> bool:
        """Whether there must be another: it failed, it was lost, or it is of the stream before."""
        if stream.stream_id != self._stream_id:
            return True
        if not opening.done():
            return False
        return opening.cancelled() or opening.exception() is not None or not opening.result().open
