"""Bodies on their way in: what all of them together may hold, and how long each may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import Receive, Scope

from gateway.errors import BodyTooLarge, Stopping, UploadsFull, UploadTimeout


class Uploads:
    """All bodies that are being read.

    A body counts with its announced length from the start, without one with what has come of it. So a client
    that announces much and sends little takes its share for `timeout_s` at most.

    Args:
        limit_bytes: Of all together.
        timeout_s: From the headers to the last byte of the body.
        kept_bytes: Returns how much of the limit is kept for bodies that are `promised` a place.

    Attributes:
        held_bytes: What counts now.
        placed: The cameras of which something is promised a place just now.
    """

    def __init__(self, limit_bytes: int, timeout_s: float, kept_bytes: Callable[[], int] = lambda: 0) -> None:
        self.held_bytes = 0
        self.placed: set[str] = set()
        self._promised_bytes = 0
        self._kept_bytes = kept_bytes
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_s
        #: Oldest first, with the time when each is over. One timer for all, as a timer for each would cost a frame's
        #: call some 10 us: it stands for a body that was the oldest, and looks at its successors when it goes off.
        self._reading: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def place(self, stream_id: str, size: int, most: int) -> Iterator[int]:
        """Promise a camera a place for what it sends; give the size of that place.

        It is 0 while something else of the camera has it, and where `size` is over `most`, what its contract allows.
        """
        if stream_id in self.placed or size > most:
            yield 0
            return
        self.placed.add(stream_id)
        try:
            yield size
        finally:
            self.placed.discard(stream_id)

    def give_up(self) -> None:
        """Wait for no body any more: those that are not complete end in `Stopping`, now and later."""
        self._timeout_s = 0.0
        for timeout in self._reading:
            _expire(timeout)

    async def read(self, scope: Scope, receive: Receive, limit_bytes: int, *, promised: bool = False) -> bytes | None:
        """Read the whole body; None if the client went away before its end.

        A body that is `promised` a place is not refused for others that are not.

        Raises:
            BodyTooLarge: It is longer than `limit_bytes`, announced or not.
            UploadsFull: There is no room for it beside the others.
            UploadTimeout: It was not complete in time.
            Stopping: It was given up.
        """
        announced = check_announced(scope, limit_bytes)
        held = size = 0
        chunks: list[bytes] = []
        timeout = asyncio.timeout(None)
        try:
            held = self.hold(announced or 0, promised=promised)
            async with timeout:
                self._begin(timeout)
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > limit_bytes:
                        raise _too_large("longer than", limit_bytes)
                    if size > held:
                        held += self.hold(size - held, promised=promised)
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        # Of a short body this is the only chunk, and no copy is made.
                        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        except TimeoutError:
            if self._timeout_s == 0:
                raise Stopping(retry_after_s=5) from None
            raise UploadTimeout(
                f"After {self._timeout_s:g} s there are {size} bytes of the body"
                + ("." if announced is None else f", of {announced}.")
            ) from None
        finally:
            self._reading.pop(timeout, None)
            self.release(held, promised=promised)

    def _begin(self, timeout: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        if self._timeout_s == 0:
            timeout.reschedule(loop.time())
            return
        self._reading[timeout] = end = loop.time() + self._timeout_s
        if self._timer is None:
            self._timer = loop.call_at(end, self._look)

    def _look(self) -> None:
        """Give up those whose time is over, and set the timer for the next."""
        self._timer = None
        loop = asyncio.get_running_loop()
        for timeout, end in self._reading.items():
            if end > loop.time():
                self._timer = loop.call_at(end, self._look)
                break
            _expire(timeout)

    def hold(self, size: int, *, promised: bool = False) -> int:
        """Let `size` bytes more count, until they are released, and return `size`. Raises `UploadsFull`."""
        others_bytes = self.held_bytes - self._promised_bytes
        crowded = not promised and others_bytes + size > self._limit_bytes - self._kept_bytes()
        if crowded or self.held_bytes + size > self._limit_bytes:
            raise UploadsFull(f"Bodies of {self.held_bytes} bytes are on their way already.", retry_after_s=1)
        self._count(size, promised=promised)
        return size

    def release(self, size: int, *, promised: bool = False) -> None:
        """So many of the bytes held are gone."""
        self._count(-size, promised=promised)

    def _count(self, size: int, *, promised: bool) -> None:
        self.held_bytes += size
        if promised:
            self._promised_bytes += size


def _expire(timeout: asyncio.Timeout) -> None:
    if not timeout.expired():
        timeout.reschedule(asyncio.get_running_loop().time())


def check_announced(scope: Scope, limit_bytes: int) -> int | None:
    """Return the request's Content-Length, None if there is none.

    The server has refused malformed, negative and repeated ones already.

    Raises:
        BodyTooLarge: It is over the limit.
    """
    for name, value in scope["headers"]:
        if name == b"content-length":
            length = int(value)
            if length > limit_bytes:
                raise _too_large(f"announced with {length} bytes, more than", limit_bytes)
            return length
    return None


def _too_large(what: str, limit_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is {what} the limit here, which is {limit_bytes} bytes.", limit_bytes=limit_bytes)
