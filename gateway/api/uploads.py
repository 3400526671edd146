"""Bodies on their way in: what all of them together may hold, and how long each may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType

from starlette.types import Receive, Scope

from gateway.api.caller import Caller, caller_of
from gateway.errors import BodyTooLarge, FramegateError, Stopping, UploadsFull, UploadTimeout
from gateway.runtime.bodies import Piece, joined
from gateway.runtime.ends import Ends


class Place:
    """Of a camera among all bodies, while this is entered; 0 bytes if it is not given one."""

    __slots__ = ("_placed", "_size", "_stream_id")

    def __init__(self, placed: set[str], stream_id: str, size: int) -> None:
        self._placed = placed
        self._stream_id = stream_id
        self._size = size

    def __enter__(self) -> int:
        if self._stream_id in self._placed:
            self._size = 0
        elif self._size:
            self._placed.add(self._stream_id)
        return self._size

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._size:
            self._placed.discard(self._stream_id)


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
        #: What ends each wait for a body. A timer for each would cost a frame's call some 10 us.
        self._reading: Ends[Callable[[], None]] = Ends(lambda end_wait: end_wait())

    def place(self, stream_id: str, size: int, most: int) -> Place:
        """Promise a camera a place for what it sends, while the answer is entered; it gives the size of that place.

        It is 0 while something else of the camera has it, and where `size` is over `most`, what its contract allows.
        """
        return Place(self.placed, stream_id, 0 if size > most else size)

    def give_up(self) -> None:
        """Wait for no body any more: those that are not complete end in `Stopping`, now and later."""
        self._timeout_s = 0.0
        self._reading.end_all()

    async def read(self, scope: Scope, receive: Receive, limit_bytes: int, *, promised: bool = False) -> bytes | None:
        """Read the whole body as `read_pieces` does, and join it."""
        pieces = await self.read_pieces(scope, receive, limit_bytes, promised=promised)
        return None if pieces is None else joined(pieces)

    async def read_pieces(
        self, scope: Scope, receive: Receive, limit_bytes: int, *, promised: bool = False
    ) -> list[Piece] | None:
        """Read the whole body; None if the client went away before its end.

        A body that is `promised` a place is not refused for others that are not.

        Raises:
            BodyTooLarge: It is longer than `limit_bytes`, announced or not.
            UploadsFull: There is no room for it beside the others.
            UploadTimeout: It was not complete in time.
            Stopping: It was given up.
        """
        announced = check_announced(scope, limit_bytes)
        caller = caller_of(scope)
        if caller is not None and caller.complete:
            return self.whole(caller, limit_bytes, promised=promised)
        upload = _Upload(self, limit_bytes, promised=promised)
        try:
            upload.expect(announced or 0)
            return await (self._receive(receive, upload) if caller is None else self._gather(caller, upload))
        except TimeoutError:
            if self._timeout_s == 0:
                raise Stopping(retry_after_s=5) from None
            raise UploadTimeout(
                f"After {self._timeout_s:g} s there are {upload.size} bytes of the body"
                + ("." if announced is None else f", of {announced}.")
            ) from None
        finally:
            upload.release()

    def whole(self, caller: Caller, limit_bytes: int, *, promised: bool) -> list[Piece] | None:
        """Return a body that is here already; None if the client went away. Raises `BodyTooLarge`, `UploadsFull`."""
        size, pieces = caller.size, caller.take()
        if size > limit_bytes:
            raise _too_large("longer than", limit_bytes)
        self._check_room(size, promised=promised)
        return None if caller.disconnected else pieces

    async def _gather(self, caller: Caller, upload: _Upload) -> list[Piece] | None:
        """Let the connection gather the body."""
        try:
            upload.grow(caller.size)
            await self._wait(caller, upload)
        finally:
            pieces = caller.take()  # thrown away, if it is refused
        return None if caller.disconnected else pieces

    async def _wait(self, caller: Caller, upload: _Upload) -> None:
        if self._timeout_s == 0:
            raise TimeoutError
        end_wait = caller.give_up
        self._reading.begin(end_wait, self._timeout_s)
        try:
            await caller.wait(upload.grow)
        finally:
            self._reading.end(end_wait)

    async def _receive(self, receive: Receive, upload: _Upload) -> list[Piece] | None:
        """Read the body by ASGI's means."""
        pieces: list[Piece] = []
        timeout = asyncio.timeout(None)
        end_wait = partial(_expire, timeout)
        try:
            async with timeout:
                if self._timeout_s == 0:
                    end_wait()
                else:
                    self._reading.begin(end_wait, self._timeout_s)
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    piece = message.get("body", b"")
                    upload.grow(upload.size + len(piece))
                    pieces.append(piece)
                    if not message.get("more_body", False):
                        return pieces
        finally:
            self._reading.end(end_wait)

    def hold(self, size: int, *, promised: bool = False) -> int:
        """Let `size` bytes more count, until they are released, and return `size`. Raises `UploadsFull`."""
        self._check_room(size, promised=promised)
        self._count(size, promised=promised)
        return size

    def _check_room(self, size: int, *, promised: bool) -> None:
        others_bytes = self.held_bytes - self._promised_bytes
        crowded = not promised and others_bytes + size > self._limit_bytes - self._kept_bytes()
        if crowded or self.held_bytes + size > self._limit_bytes:
            raise UploadsFull(f"Bodies of {self.held_bytes} bytes are on their way already.", retry_after_s=1)

    def release(self, size: int, *, promised: bool = False) -> None:
        """So many of the bytes held are gone."""
        self._count(-size, promised=promised)

    def _count(self, size: int, *, promised: bool) -> None:
        self.held_bytes += size
        if promised:
            self._promised_bytes += size


class _Upload:
    """One body on its way: `size` is what has come of it."""

    __slots__ = ("_held", "_limit_bytes", "_promised", "_uploads", "size")

    def __init__(self, uploads: Uploads, limit_bytes: int, *, promised: bool) -> None:
        self.size = 0
        self._held = 0
        self._uploads = uploads
        self._limit_bytes = limit_bytes
        self._promised = promised

    def expect(self, size: int) -> None:
        """So many bytes were announced. Raises `UploadsFull`."""
        self._held += self._uploads.hold(size, promised=self._promised)

    def grow(self, size: int) -> None:
        """So many bytes have come, in all. Raises `BodyTooLarge`, `UploadsFull`: then nothing counts any more."""
        self.size = size
        try:
            if size > self._limit_bytes:
                raise _too_large("longer than", self._limit_bytes)
            if size > self._held:
                self.expect(size - self._held)
        except FramegateError:
            self.release()  # at once, as others may grow before whoever reads this one is told
            raise

    def release(self) -> None:
        """It is not on its way any more."""
        held, self._held = self._held, 0
        self._uploads.release(held, promised=self._promised)


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
