"""One HTTP/1.1 connection to Triton that is kept alive: requests as bytes out, answers in, one at a time.

::

    idle ── exchange: request written ──> waiting ── whole answer ──> idle, or closed if Triton says so
                                             └────── it breaks, the answer is none, nobody waits any more ──> closed

A request is never sent twice, nor a second one before the first is answered. Whoever stops waiting closes the
connection, as what comes on it could be taken for the answer to the next one.

A large body whose length is known needs no parser: but for what came with its headers it is received where it stays.
Nor does an answer that comes whole, behind a head that has been parsed before: those of one model and batch size are
the same, byte for byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import httptools
import numpy as np

from gateway.triton.types import BackendError

_FINAL = 200
_LENGTH, _ENCODING, _HEAD_LENGTH = b"content-length", b"transfer-encoding", b"inference-header-content-length"
#: What is read at one time; bodies above that are large.
_PIECE_BYTES = 1 << 16
_HEAD_END = b"\r\n\r\n"
#: Forgotten together beyond that: as many as there are lengths of answers.
_MOST_HEADS = 1024


class Answer(NamedTuple):
    """One whole answer.

    Attributes:
        body: Read-only.
        head_bytes: How much of it is JSON before binary data begins; None: all of it.
    """

    status: int
    body: bytes | memoryview
    head_bytes: int | None = None


#: Called once, with the answer, or with why there is none.
Done = Callable[[Answer | BaseException], None]


class Heads:
    """What is known of the heads of answers: of each, its bytes and what was parsed. One for many connections."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, int | None, int]] = {}

    def find(self, buffer: bytearray, count: int) -> tuple[Answer | None, bytes]:
        """Return the answer that the first `count` bytes are, if their head is known, and the head as far as it is."""
        end = buffer.find(_HEAD_END, 0, count) + len(_HEAD_END)
        if end < len(_HEAD_END):
            return None, b""
        head = bytes(memoryview(buffer)[:end])
        known = self._known.get(head)
        if known is None or end + known[2] != count:
            return None, head
        return Answer(known[0], bytes(memoryview(buffer)[end:count]), known[1]), head

    def note(self, head: bytes, answer: Answer) -> None:
        """An answer with that head, and after which the connection stays, was parsed."""
        if len(self._known) >= _MOST_HEADS:
            self._known.clear()
        self._known[head] = answer.status, answer.head_bytes, len(answer.body)


class HttpConnection(asyncio.BufferedProtocol):
    """See the module's docstring.

    Args:
        most_bytes: The largest body that is taken.
        heads: Those that need not be parsed.

    Attributes:
        idle_since_s: On the loop's clock, when it was used last.
    """

    def __init__(self, most_bytes: int, heads: Heads | None = None) -> None:
        self.idle_since_s = 0.0
        self._heads = heads or Heads()
        #: Of the answer that is being parsed, if it may be noted: its head, and how many bytes came with it.
        self._head = b""
        self._came = 0
        self._free = False
        self._most_bytes = most_bytes
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._done: Done | None = None
        self._bytes = bytearray(_PIECE_BYTES)
        self._buffer = memoryview(self._bytes)
        self._fresh = True
        self._whole: Answer | None = None
        self._stays = False
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
        waiter: asyncio.Future[Answer] = self._loop.create_future()

        def done(answer: Answer | BaseException) -> None:
            if waiter.done():
                return
            if isinstance(answer, BaseException):
                waiter.set_exception(answer)
            else:
                waiter.set_result(answer)

        self.begin(request, done)
        try:
            return await waiter
        finally:
            if self._done is done:  # nobody waits any more
                self._done = None
                self.close()

    def begin(self, request: bytes, done: Done) -> None:
        """Send a request. `done` is called with its answer, or with the `BackendError` that `exchange` raises.

        By then the connection takes the next request, if it is `usable`.
        """
        if self._transport is None or not self.usable:
            raise RuntimeError("an exchange on a connection that is not free")
        self._free = False
        self._fresh = True
        self._done = done
        self._transport.write(request)

    def cancel(self) -> None:
        """Wait no more: whoever does is told `CancelledError`, and the connection is closed."""
        self._end(asyncio.CancelledError())

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
        if self._done is None:
            self.close()  # nobody has asked
        elif self._large is not None:
            self._size += count
            if self._size == len(self._large):
                answer = Answer(self._parser.get_status_code(), self._large.toreadonly(), self._head_bytes)
                self._free, self._large = self._parser.should_keep_alive(), None
                self._parser = httptools.HttpResponseParser(self)  # the old one still waits for this body
                self._end(answer)
        elif self._fresh:
            self._begin_answer(count)
        else:
            self._head = b""
            self._parse(self._buffer[:count])

    def _begin_answer(self, count: int) -> None:
        """Take what came first of an answer."""
        self._fresh = False
        answer, self._head = self._heads.find(self._bytes, count)
        if answer is not None:
            self._free = True
            self._end(answer)
            return
        self._came = count
        self._parse(self._buffer[:count])

    def _parse(self, data: memoryview) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fault = self._fault or _broken(f"what came is not HTTP: {error}")
        if self._whole is not None:
            self._end_parsed(self._whole)
        elif self._fault is not None:
            self._end(self._fault)

    def _end_parsed(self, whole: Answer) -> None:
        self._whole = None
        self._free = self._fault is None and self._stays
        if self._free and self._length is not None and len(self._head) + len(whole.body) == self._came:
            self._heads.note(self._head, whole)
        self._end(whole)

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        self._end(_broken(str(error) if error else "the connection was closed before the answer"))

    def _end(self, answer: Answer | BaseException) -> None:
        """Tell whoever waits, once; the connection is closed, unless it is free again."""
        self.idle_since_s = self._loop.time()
        if not self._free:
            self.close()
        done, self._done = self._done, None
        if done is not None:
            done(answer)

    # ------------------------------------------------------------ of the parser

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._done is None or self._whole is not None:
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
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._stays = self._parser.should_keep_alive()
        self._whole = Answer(self._parser.get_status_code(), body, self._head_bytes)

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes and self._fault is None:
            words = f"Received message larger than max ({size} vs. {self._most_bytes})"
            self._fault = BackendError(words, "RESOURCE_EXHAUSTED")


def _broken(words: str) -> BackendError:
    return BackendError(words, "UNAVAILABLE")
