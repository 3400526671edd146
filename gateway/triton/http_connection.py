"""One HTTP/1.1 connection to Triton that is kept alive: requests as bytes out, answers in, one at a time.

::

    idle ── exchange: request written ──> waiting ── whole answer ──> idle, or closed if Triton says so
                                             └────── it breaks, the answer is none, nobody waits any more ──> closed

A request is never sent twice, nor a second one before the first is answered. Whoever stops waiting closes the
connection, as what comes on it could be taken for the answer to the next one.

A large body whose length is known needs no parser: but for what came with its headers it is received where it stays.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import httptools
import numpy as np

from gateway.triton.types import BackendError

_FINAL = 200
_LENGTH, _ENCODING, _HEAD_LENGTH = b"content-length", b"transfer-encoding", b"inference-header-content-length"
#: What is read at one time; bodies above that are large.
_PIECE_BYTES = 1 << 16


class Answer(NamedTuple):
    """One whole answer.

    Attributes:
        body: Read-only.
        head_bytes: How much of it is JSON before binary data begins; None: all of it.
    """

    status: int
    body: bytes | memoryview
    head_bytes: int | None = None


class HttpConnection(asyncio.BufferedProtocol):
    """See the module's docstring.

    Args:
        most_bytes: The largest body that is taken.

    Attributes:
        idle_since_s: On the loop's clock, when it was used last.
    """

    def __init__(self, most_bytes: int) -> None:
        self.idle_since_s = 0.0
        self._free = False
        self._most_bytes = most_bytes
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._buffer = memoryview(bytearray(_PIECE_BYTES))
        self._pieces: list[bytes] = []
        self._large: memoryview | None = None
        self._size = 0
        self._length: int | None = None
        self._head_bytes: int | None = None
        self._fault: BackendError | None = None

    @property
    def usable(self) -> bool:
        """Whether it is connected, and nothing is under way."""
        return self._free and self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and return its answer. Nothing limits the time.

        Raises:
            BackendError: The connection broke (``UNAVAILABLE``), what came was no answer, or it was too large.
        """
        if self._transport is None or not self.usable:
            raise RuntimeError("an exchange on a connection that is not free")
        self._free = False
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        self._waiter = waiter
        self._transport.write(request)
        try:
            return await waiter
        finally:
            self._waiter = None
            self.idle_since_s = self._loop.time()
            if not self._free:
                self.close()

    def close(self) -> None:
        """Close it at once; an exchange that is under way ends as broken."""
        self._free = False
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------ of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP's
        """It is there."""
        self._transport = transport
        self._free = True
        self.idle_since_s = self._loop.time()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._buffer if self._large is None else self._large[self._size :]

    def buffer_updated(self, count: int) -> None:
        """Take so many bytes."""
        if self._waiter is None:
            self.close()  # nobody has asked
        elif self._large is None:
            self._parse(self._buffer[:count])
        else:
            self._size += count
            if self._size == len(self._large):
                self._complete(self._large.toreadonly())
                self._large = None
                self._parser = httptools.HttpResponseParser(self)  # the old one still waits for this body

    def _parse(self, data: memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fault = self._fault or _broken(f"what came is not HTTP: {error}")
        if self._fault is not None:
            self._fail(self._fault)

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        self._fail(_broken(str(error) if error else "the connection was closed before the answer"))

    def _fail(self, error: BackendError) -> None:
        self.close()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    # ------------------------------------------------------------ of the parser

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._waiter is None or self._waiter.done():
            self._fault = _broken("a second answer came")
        self._pieces.clear()
        self._size = 0
        self._length = self._head_bytes = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note the lengths."""
        name = name.lower()
        if name == _LENGTH:
            self._length = int(value)
            self._check_size(self._length)
        elif name == _HEAD_LENGTH:
            self._head_bytes = int(value)
        elif name == _ENCODING:
            self._length = None

    def on_headers_complete(self) -> None:
        """Make room for a large body."""
        if self._fault is None and self._length is not None and self._length > _PIECE_BYTES:
            self._large = np.empty(self._length, np.uint8).data  # not filled with zeros first

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        start = self._size
        self._size += len(piece)
        self._check_size(self._size)
        if self._large is not None:
            self._large[start : self._size] = piece
        elif self._fault is None:
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was only the announcement of one."""
        if self._fault is not None or self._parser.get_status_code() < _FINAL:
            return
        self._large = None  # announced in vain
        pieces = self._pieces
        self._complete(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        pieces.clear()

    def _complete(self, body: bytes | memoryview) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._free = self._parser.should_keep_alive()
            self._waiter.set_result(Answer(self._parser.get_status_code(), body, self._head_bytes))

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes and self._fault is None:
            words = f"Received message larger than max ({size} vs. {self._most_bytes})"
            self._fault = BackendError(words, "RESOURCE_EXHAUSTED")


def _broken(words: str) -> BackendError:
    return BackendError(words, "UNAVAILABLE")
