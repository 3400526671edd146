"""One call of an HTTP connection: uvicorn's, and what `gateway.api.caller` adds.

What comes of a body stays in the pieces in which it came. Until somebody has asked for it, no more than `PAUSE_BYTES`
of it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.api.caller import Headers
from gateway.errors import FramegateError
from gateway.runtime.bodies import Piece, joined

#: As much as uvloop reads at once: most calls are never paused, which would cost two calls of the kernel.
PAUSE_BYTES = 256 << 10
#: Of a piece that is put together with the next.
SMALL_BYTES = 4 << 10


class Cycle(RequestResponseCycle):
    """See the module's docstring. Implements `gateway.api.caller.Caller`."""

    #: uvicorn's default headers, which it replaces once a second, and the same as lines.
    _defaults: ClassVar[list[tuple[bytes, bytes]]] = []
    _default_lines: ClassVar[bytes] = b""

    def __init__(self, connection: HttpToolsProtocol, *, keep_alive: bool) -> None:
        """Make what uvicorn's own constructor makes, but for what most calls do not need."""
        self.scope = connection.scope
        self.transport = connection.transport
        self.flow = connection.flow
        self.logger = connection.logger
        self.access_logger = connection.access_logger
        self.access_log = connection.access_log
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete
        self.disconnected = False
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = connection.expect_100_continue
        self.more_body = True
        self.response_started = self.response_complete = False
        self.chunked_encoding = None
        self.expected_content_length = 0
        self._happened: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self.status: int | None = None
        self.size = 0
        self._pieces: list[Piece] = []
        self._grown: Callable[[int], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._gone: Callable[[], None] | None = None

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Run the application."""
        try:
            await super().run_asgi(app)
        finally:
            # Where this object is: circles, which only the garbage collector would open.
            self.scope.pop("extensions", None)
            if self._task is not None:
                self._tasks.discard(self._task)
                self._task = None

    def start(self, loop: asyncio.AbstractEventLoop, app: ASGI3Application, tasks: set[asyncio.Task[None]]) -> None:
        """Run an application in a task that leaves `tasks` by itself, without a callback."""
        self._task, self._tasks = loop.create_task(self.run_asgi(app)), tasks
        tasks.add(self._task)

    @property
    def message_event(self) -> asyncio.Event:
        """Set when something happens that somebody who receives waits for; made when it is first asked for."""
        event = self._happened
        if event is None:
            event = self._happened = asyncio.Event()
            if self._pieces or not self.more_body or self.disconnected or self.response_complete:
                event.set()
        return event

    @message_event.setter
    def message_event(self, event: asyncio.Event) -> None:
        self._happened = event

    def _happen(self) -> None:
        if self._happened is not None:
            self._happened.set()

    # ------------------------------------------------------------ the connection's side

    def come(self, piece: Piece) -> None:
        """Something of the body is here. Small pieces are put together, as each takes memory of its own."""
        last = self._pieces[-1] if self._pieces else b""
        if isinstance(last, bytearray) and len(last) < SMALL_BYTES:
            last += piece
        else:
            self._pieces.append(bytearray(piece) if self._pieces and len(piece) < SMALL_BYTES else piece)
        self.size += len(piece)
        if self._waiter is None:
            if self.size > PAUSE_BYTES:
                self.flow.pause_reading()
            self._happen()
        elif self._grown is not None:
            try:
                self._grown(self.size)
            except FramegateError as error:
                self._end_wait(error)

    def end(self) -> None:
        """The body is complete."""
        self.more_body = False
        if self._waiter is None:
            self._happen()
        else:
            self._end_wait(None)

    def lose(self) -> None:
        """The client is gone."""
        if self.response_complete:
            return
        self.disconnected = True
        self._happen()
        self._end_wait(None)
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()

    def _end_wait(self, error: BaseException | None) -> None:
        waiter, self._waiter, self._grown = self._waiter, None, None
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)

    # ------------------------------------------------------------ the application's side

    @property
    def complete(self) -> bool:
        """See `Caller`."""
        return not self.more_body

    async def wait(self, grown: Callable[[int], None]) -> None:
        """See `Caller`."""
        if self.disconnected or not self.more_body:
            return
        self._ask()
        self._grown, self._waiter = grown, asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = self._grown = None

    def give_up(self) -> None:
        """See `Caller`."""
        self._end_wait(TimeoutError())

    def take(self) -> list[Piece]:
        """See `Caller`."""
        pieces, self._pieces, self.size = self._pieces, [], 0
        return pieces

    def when_gone(self, callback: Callable[[], None] | None) -> None:
        """See `Caller`."""
        if self.disconnected and callback is not None:
            callback()
            return
        self._gone = callback
        if callback is not None:
            self.flow.resume_reading()  # who is not read from is not seen to go

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """See `Caller`."""
        if self.access_log or self.flow.write_paused or self.response_started:
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
            await self.send({"type": "http.response.body", "body": body, "more_body": False})
            return
        self.status = status
        if self.disconnected:
            return
        lines = [STATUS_LINE[status], self._lines_of_defaults()]
        for name, value in headers:
            lines += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines += (b"\r\n", body)
        self.transport.write(b"".join(lines))
        self.waiting_for_100_continue = False
        self.response_started = self.response_complete = True
        self._happen()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _lines_of_defaults(self) -> bytes:
        if self.default_headers is not Cycle._defaults:
            Cycle._defaults = self.default_headers
            Cycle._default_lines = b"".join(b"%b: %b\r\n" % header for header in self.default_headers)
        return Cycle._default_lines

    async def send(self, message: ASGISendEvent) -> None:
        """Do as uvicorn, and note the status."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await super().send(message)

    async def receive(self) -> ASGIReceiveEvent:
        """Do as uvicorn, with what came of the body."""
        if not self.disconnected and not self.response_complete:
            self._ask()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": joined(self.take()), "more_body": self.more_body}

    def _ask(self) -> None:
        """Somebody wants the body."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        self.flow.resume_reading()
