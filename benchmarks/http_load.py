"""Senders over HTTP that cost little: bare asyncio connections, answers read as far as they are needed.

A client library would take a multiple of the gateway's own time for a frame, on the processor core that both share.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

#: An answer's members stand before its outputs, which nobody reads here.
_OUTPUTS = b',"outputs":'
_HEAD_END = b"\r\n\r\n"
_OK = 200
#: Some answers come in chunks; what is of interest stands in the first.
_CHUNKED_END = b"0\r\n\r\n"


@dataclass(frozen=True)
class Answer:
    """What came of one frame.

    Attributes:
        status: Of HTTP; 0: the connection broke.
        at_s: When it was there, on the loop's clock.
        members: Of the frame result, without outputs; empty if there is none.
    """

    status: int
    at_s: float
    members: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """How the frame ended: its outcome, or ``http_<status>`` for one that was not taken."""
        return str(self.members.get("outcome", f"http_{self.status}"))

    @property
    def busy_ms(self) -> float:
        """Its share of the device's time."""
        batch = self.members.get("batch")
        return float(self.members["execute_ms"]) / batch if batch else 0.0


class Pool:
    """Keep-alive connections to one server, at `address`; each carries one call at a time."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def request(self, path: str, body: bytes) -> bytes:
        """Return the bytes of a POST of a frame."""
        host, port = self.address
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\n"
            f"content-type: application/octet-stream\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def send(self, request: bytes) -> Answer:
        """Send `request` and return what comes of it."""
        try:
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*self.address)
            writer.write(request)
            head = await reader.readuntil(_HEAD_END)
            body = await _body(reader, head)
        except (OSError, asyncio.IncompleteReadError):
            return Answer(0, asyncio.get_running_loop().time())
        self._idle.append((reader, writer))
        return Answer(int(head[9:12]), asyncio.get_running_loop().time(), _members(body))

    async def abandon(self, request: bytes) -> None:
        """Open a connection, send half of `request` and vanish."""
        try:
            _, writer = await asyncio.open_connection(*self.address)
            writer.write(request[: len(request) // 2])
            await writer.drain()
            writer.transport.abort()
        except OSError:
            pass

    def close(self) -> None:
        """Close what is idle."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    name, length = b"content-length:", 0
    lower = head.lower()
    if name in lower:
        length = int(lower.split(name, 1)[1].split(b"\r\n", 1)[0])
        return await reader.readexactly(length)
    body = b""
    while not body.endswith(b"\r\n" + _CHUNKED_END):
        size = int(await reader.readuntil(b"\r\n"), 16)
        body += await reader.readexactly(size + 2)
        if not size:
            break
    return body


def _members(body: bytes) -> dict[str, Any]:
    """Return the members of the only frame result of an answer, or those of one that is in a problem document."""
    start, end = body.find(b'{"seq"'), body.find(_OUTPUTS)
    if start < 0 or end < 0:
        return {}
    members: dict[str, Any] = json.loads(body[start:end] + b"}")
    return members


async def send_at(pool: Pool, request: bytes, times_s: Sequence[float]) -> list[Answer]:
    """Send `request` at each instant of the loop's clock, whatever the answers do; return them in order."""
    loop = asyncio.get_running_loop()
    sent: list[asyncio.Task[Answer]] = []
    for at_s in times_s:
        if (wait_s := at_s - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        sent.append(loop.create_task(pool.send(request)))
    return list(await asyncio.gather(*sent))


def load(host: str, port: int, request: bytes, times_s: Sequence[float], *, vanish: bool) -> list[Answer]:
    """Send in a process of its own, from its main thread; `times_s` are on the monotonic clock that all share.

    With `vanish` no call is completed, and there is no answer.
    """

    async def run() -> list[Answer]:
        shift_s = asyncio.get_running_loop().time() - time.monotonic()
        pool = Pool(host, port)
        local = [at_s + shift_s for at_s in times_s]
        if vanish:
            await abandon_at(pool, request, local)
            return []
        answers = await send_at(pool, request, local)
        pool.close()
        return [Answer(a.status, a.at_s - shift_s, a.members) for a in answers]

    return asyncio.run(run())


async def abandon_at(pool: Pool, request: bytes, times_s: Sequence[float]) -> None:
    """Open a connection and vanish after half of `request` at each instant."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        for at_s in times_s:
            if (wait_s := at_s - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            group.create_task(pool.abandon(request))
