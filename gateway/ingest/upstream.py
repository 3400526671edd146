"""One connection of an ingest process to the scheduler's application: one HTTP call after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

#: Of an answer that its client has not taken: then nothing more is read.
_PAUSE_BYTES = 256 << 10


class Upstream(asyncio.Protocol):
    """See the module's docstring. One caller at a time waits for something.

    Attributes:
        status, headers: Of the answer; the status is 0 until all headers are there.
        continued: The scheduler asked for the body of a call that waits with it.
        complete: All of the answer has come.
        sent: All of the call has been written. The scheduler may answer before it has: what it still waits for would be
            taken from the next call.
        lost: The connection is gone.
        used: It has served a call before.
        since: When it was last used, by the loop's clock.
    """

    def __init__(self) -> None:
        self.used = self.lost = False
        self.since = 0.0
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.begin(head_only=False)

    def begin(self, *, head_only: bool) -> None:
        """A call follows. `head_only`: its answer has no body, whatever its headers say."""
        self._parser = httptools.HttpResponseParser(self)
        self._head_only = head_only
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._paused = False
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.continued = self.complete = self.sent = self._unbounded = self._keeps_alive = False
        self._changed.clear()

    @property
    def open(self) -> bool:
        """Whether it can be written to."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def reusable(self) -> bool:
        """Whether another call may follow."""
        return self.sent and self.complete and self.open and self._keeps_alive and not self._head_only

    @property
    def closes(self) -> bool:
        """Whether the scheduler closes the connection after its answer."""
        return any(name == b"connection" and value.lower() == b"close" for name, value in self.headers)

    # ------------------------------------------------------------ to the scheduler

    async def write(self, data: bytes) -> None:
        """Send, and wait while too much is on its way."""
        if self._transport is not None and not self.lost:
            self._transport.write(data)
            await self._writable.wait()

    def abort(self) -> None:
        """Close at once: to the scheduler its client has gone away."""
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------ from the scheduler

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once `condition` holds, or the connection is gone."""
        while not condition() and not self.lost:
            self._changed.clear()
            await self._changed.wait()

    async def piece(self) -> bytes:
        """Return more of the answer's body; nothing at its end."""
        await self.until(lambda: bool(self._pieces) or self.complete)
        piece = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return piece

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: the end of an answer that says nothing of its length."""
        self.lost = True
        self._transport = None
        if self._unbounded:
            self.complete = True
        self._writable.set()
        self._changed.set()

    def pause_writing(self) -> None:
        """The scheduler does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Parse it."""
        if self.complete:  # there is nothing that belongs to anybody
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):  # the latter is not one of the former
            self.abort()
        self._changed.set()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """All have."""
        if self.complete:  # an answer that nobody asked for
            self.abort()
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.continued, self.headers = True, []
            return
        self.status = status
        self._keeps_alive = self._parser.should_keep_alive()  # after the message it says no, whatever was said
        self.complete = self._head_only
        names = {name for name, _ in self.headers}
        self._unbounded = not names & {b"content-length", b"transfer-encoding"}

    def on_body(self, body: bytes) -> None:
        """A part of the body has come."""
        self._pieces.append(body)
        self._size += len(body)
        if self._size > _PAUSE_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer is complete."""
        self.complete = self.status != 0
