"""Passes calls on to the scheduler's application, and its answers back, as they are, while they come.

The client's connection and its limits are this process's affair, what is asked and answered the scheduler's: a client
that goes away is a connection that closes there, one that waits for ``100 Continue`` gets it when the scheduler asks
for the body, and one that reads slowly is read for slowly.

A connection to the scheduler serves another call only after one that was sent and answered whole. When the scheduler
closes one just as it is to be used, nobody can tell whether the call was carried out: so only calls that may be made
twice are sent on a connection that has served before.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

from starlette.types import Receive, Scope, Send

from gateway.api.caller import caller_of
from gateway.api.http_cycle import Cycle
from gateway.api.limits import LINGER_S
from gateway.api.problems import problem_response
from gateway.errors import Stopping
from gateway.ingest.upstream import Upstream
from gateway.settings import LimitsSettings

_LENGTH = b"content-length"
#: Of one connection; what matters to the other is said anew there.
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te", b"trailer", _LENGTH}
)
#: uvicorn says when it is, and how long its answer is, by itself.
_OURS = frozenset({b"date", b"transfer-encoding", b"keep-alive"})
#: Calls that may be made twice.
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_IDLE = 64
_IDLE_S = 5.0


class Proxy:
    """ASGI application; see the module's docstring.

    Args:
        path: Of the scheduler's Unix socket.
        limits: Say how long the scheduler waits for a call on a connection.
    """

    def __init__(self, path: str, limits: LimitsSettings) -> None:
        self._path = path
        self._idle_s = min(_IDLE_S, limits.upload_timeout_ms / 2_000)
        self._idle: list[Upstream] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one call."""
        try:
            await self._pass_on(scope, receive, send)
        except Stopping as error:
            await problem_response(error, path=scope["path"])(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = _Call(scope, receive, send)
        upstream = await self._connection(new=call.streams or scope["method"] not in _REPEATABLE)
        while True:
            try:
                if await call.run(upstream):
                    break
            finally:
                self._put_back(upstream)
            # It was closed just when it was to be used: nothing of the call was read.
            upstream = await self._connection(new=True)

    async def _connection(self, *, new: bool) -> Upstream:
        """Return a connection on which nothing is going on. `new`: one that nobody can be closing just now."""
        loop = asyncio.get_running_loop()
        while self._idle and not new:
            upstream = self._idle.pop()
            if upstream.open and loop.time() - upstream.since < self._idle_s:
                return upstream
            upstream.abort()
        try:
            _, upstream = await loop.create_unix_connection(Upstream, self._path)
        except OSError:
            raise Stopping(retry_after_s=5) from None
        return upstream

    def _put_back(self, upstream: Upstream) -> None:
        if upstream.reusable and len(self._idle) < _MOST_IDLE:
            upstream.used, upstream.since = True, asyncio.get_running_loop().time()
            self._idle.append(upstream)
        else:
            upstream.abort()


class _Call:
    """One call that is passed on."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._caller = cast("Cycle", caller_of(scope))
        headers = scope["headers"]
        names = {name for name, _ in headers}
        self._chunked = b"transfer-encoding" in names
        self._has_body = self._chunked or b"content-length" in names
        self._waits = self._caller.waiting_for_100_continue
        #: Its body is not here yet, or it waits with it.
        self.streams = self._has_body and (self._waits or not self._caller.complete)
        self._body = b"" if self.streams or not self._has_body else b"".join(self._caller.take())
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        version = scope["http_version"].encode()
        lines = [b"%b %b HTTP/%b\r\n" % (scope["method"].encode(), target, version)]
        lines += [b"%b: %b\r\n" % header for header in headers if header[0] not in _HOP_BY_HOP]
        #: Of a body of known length that streams, what is not sent.
        self._left = 0
        if self._chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        elif self.streams:
            self._left = int(next(value for name, value in headers if name == _LENGTH))
            lines.append(b"content-length: %d\r\n" % self._left)
        elif self._has_body:  # what is here: of a call that asks for another protocol, and gets none, that is nothing
            lines.append(b"content-length: %d\r\n" % len(self._body))
        self._head = b"".join([*lines, b"\r\n"])

    async def run(self, upstream: Upstream) -> bool:
        """Have it answered; False if nothing of it was read, so that it may be tried again."""
        upstream.begin(head_only=self._scope["method"] == "HEAD")
        sending: asyncio.Task[None] | None = None
        self._caller.when_gone(upstream.abort)
        try:
            upstream.sent = not self.streams
            await upstream.write(self._head + self._whole_body())
            if self.streams:
                if self._waits:
                    await upstream.until(lambda: upstream.continued or upstream.status > 0)
                if not self._waits or upstream.continued:
                    sending = asyncio.create_task(self._send_body(upstream))
            await upstream.until(lambda: upstream.status > 0)
            if upstream.status == 0:
                if self._caller.disconnected:
                    return True
                if upstream.used:
                    return False
                raise Stopping(retry_after_s=5)
            await self._pass_back(upstream)
            return True
        finally:
            self._caller.when_gone(None)
            if sending is not None:
                sending.cancel()
                await asyncio.wait((sending,))

    def _whole_body(self) -> bytes:
        if not self._chunked or self.streams:
            return self._body
        return _chunk(self._body) + b"0\r\n\r\n" if self._body else b"0\r\n\r\n"

    async def _send_body(self, upstream: Upstream) -> None:
        """Pass on what comes of the body."""
        while not upstream.lost:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return
            piece, more = message.get("body", b""), message.get("more_body", False)
            data = _chunk(piece) if self._chunked and piece else piece
            if self._chunked and not more:
                data += b"0\r\n\r\n"
            if data:
                await upstream.write(data)
            self._left -= 0 if self._chunked else len(piece)
            if not more:
                if self._left:  # the server takes no body of such a call
                    upstream.abort()
                upstream.sent = True
                return

    async def _pass_back(self, upstream: Upstream) -> None:
        closes = upstream.closes and self._scope["http_version"] != "1.0"
        headers = [header for header in upstream.headers if header[0] not in _OURS]
        await self._send({"type": "http.response.start", "status": upstream.status, "headers": headers})
        while piece := await upstream.piece():
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        if not upstream.complete:
            self._caller.transport.abort()  # it was cut off, and so is the client
            return
        if closes:  # what the client still sends is thrown away there, for a while
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await upstream.until(lambda: False)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)
