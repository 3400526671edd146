"""One connection: uvicorn's, with bounds where uvicorn trusts its clients.

====================================  =================================================================
a client that                         is
====================================  =================================================================
sends headers without end             answered 431 beyond `HEAD_BYTES`, and disconnected
does not finish its headers           disconnected after `read_timeout_s`
does not finish an unwanted body      disconnected after `read_timeout_s`
takes nothing of its answer           disconnected after `send_timeout_s`, and the answer is dropped
asks for a WebSocket                  handed to `gateway.api.ws_connection`
====================================  =================================================================

Bodies that are wanted are `gateway.api.uploads`' affair. A large one whose length is known is not parsed, but taken in
the pieces in which it comes, which saves a copy. Nor is the head in front of it, if it is that of the call before, byte
for byte: a camera's are.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, cast
from urllib.parse import unquote

import httptools
from starlette.types import Receive, Scope, Send
from uvicorn._types import ASGI3Application, HTTPScope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.api.caller import CALLER
from gateway.api.http_cycle import Cycle
from gateway.api.problems import problem_response
from gateway.api.write_limit import WriteLimit
from gateway.errors import HeadTooLarge
from gateway.runtime.bodies import Piece
from gateway.settings import LimitsSettings

#: Of the request line and the headers together. Servers commonly take 8 to 64 KiB; ours needs 1.
HEAD_BYTES = 64 << 10
#: A body of more than this is not parsed. After it the parser is made anew, which costs as much as copying about this.
PLAIN_BYTES = 32 << 10
MS_PER_S = 1_000
#: The target of a request that is a path and nothing else.
_PLAIN_PATH = re.compile(rb"/[A-Za-z0-9/_.-]*")


class _Said(NamedTuple):
    """What a head says. `scope`: But for its headers, which are beside it, and for what is of one call alone."""

    scope: dict[str, Any]
    headers: tuple[tuple[bytes, bytes], ...]
    url: bytes
    body_bytes: int
    keep_alive: bool


class First(Protocol):
    """An application that answers some calls before any other sees them."""

    def answers(self, scope: Scope) -> bool:
        """Whether it answers this call by itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer it."""


class Connection(WriteLimit, HttpToolsProtocol):
    """A server's side of one connection; `connection_class` gives it its limits."""

    read_timeout_s: ClassVar[float]

    @staticmethod
    def first_app() -> First | None:
        """Return what answers some calls before the rest of the application is asked, if that is known yet."""
        return None

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*arguments, **options)
        #: Counts what the parser understood; while it stands still, what comes is header, trailer or nothing.
        self._steps = 0
        self._pending_bytes = 0
        self._head_too_large = False
        self._upgraded = False
        self._may_upgrade = True
        self._in_message = False
        self._reading: asyncio.TimerHandle | None = None
        self._running: Cycle | None = None
        #: Since when nothing is asked, by the loop's clock; None while something is.
        self._resting_since: float | None = None
        #: Of the body that is being parsed: what is missing, if its length is known.
        self._missing_bytes = 0
        #: Of the body that is not parsed.
        self._plain_bytes = 0
        #: The head of the last call whose body was not, and what it says.
        self._head = b""
        self._said: _Said | None = None
        self._parser_waits = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Wait for the first request."""
        super().connection_made(transport)
        self._reading = self.loop.call_later(self.read_timeout_s, self._give_up_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and tell the calls."""
        self._stop_reading_timer()
        super()._unset_keepalive_if_required()
        super().connection_lost(exc)
        for cycle in (self._running, self.cycle):  # the latter may wait behind the former
            if isinstance(cycle, Cycle):
                cycle.lose()
        self._running = None

    # ------------------------------------------------------------ what comes

    def data_received(self, data: bytes) -> None:
        """Parse `data`, and see to it that the client gets on."""
        rest: Piece = data
        if not self._plain_bytes and not self._in_message and len(data) > PLAIN_BYTES:
            end = data.find(b"\r\n\r\n", 0, HEAD_BYTES) + 4
            if end > 3:  # so that a body which follows may be taken without a parser
                self._take_head(data[:end])
                rest = memoryview(data)[end:]
        if self._plain_bytes:
            rest = self._take_plain(rest)
        if rest and not self._upgraded and not self.transport.is_closing():
            self._parse(rest)
        if not self._upgraded:
            self._await_client()

    def _take_head(self, head: bytes) -> None:
        if self._said is not None and head == self._head and self._idle():
            self._repeat(self._said)
            return
        self._parse(head)
        if self._plain_bytes and self._running is self.cycle:
            cycle, scope = self._cycle, cast("dict[str, Any]", self.scope)
            kept = {name: value for name, value in scope.items() if name not in {"extensions", "headers", "state"}}
            self._head = head
            self._said = _Said(kept, tuple(self.headers), self.url, self._plain_bytes, cycle.keep_alive)
            if self.expect_100_continue:
                self._said = None

    def _repeat(self, said: _Said) -> None:
        """Begin a call as the one before."""
        self._unset_keepalive_if_required()
        self._steps += 1
        self._pending_bytes = 0
        self._in_message = True
        self.url, self.headers, self.expect_100_continue = said.url, list(said.headers), False
        scope = {**said.scope, "headers": self.headers, "state": self.app_state.copy()}
        self.scope = cast("HTTPScope", scope)
        self._plain_bytes = said.body_bytes
        self._begin_call(keep_alive=said.keep_alive)

    def _parse(self, data: Piece) -> None:
        steps = self._steps
        super().data_received(cast("bytes", data))
        if self._upgraded or self.transport.is_closing():  # refused, perhaps half-way
            return
        if self._steps != steps:
            self._pending_bytes = 0
            if self._missing_bytes > PLAIN_BYTES:
                self._plain_bytes, self._missing_bytes = self._missing_bytes, 0
                self._parser_waits = True
        else:
            self._pending_bytes += len(data)
            if self._pending_bytes > HEAD_BYTES and not self.transport.is_closing():
                self._refuse_head()

    def _take_plain(self, data: Piece) -> Piece:
        """Take what belongs to the body, and return what follows it."""
        self._unset_keepalive_if_required()
        size = min(len(data), self._plain_bytes)
        self._plain_bytes -= size
        unread = self.cycle.response_complete  # it was answered without its body
        if size and not unread:
            self._cycle.come(data if size == len(data) else memoryview(data)[:size])
        if not self._plain_bytes:
            self._in_message = False
            if self._parser_waits:  # for the body
                self._parser_waits = False
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            if not unread:
                self._cycle.end()
        return memoryview(data)[size:]

    @property
    def _cycle(self) -> Cycle:
        return cast("Cycle", self.cycle)

    def _await_client(self) -> None:
        """Let a timer run while it is the client's turn."""
        if not self._idle():
            if self._reading is not None:
                self._stop_reading_timer()
        elif self._reading is None:
            self._reading = self.loop.call_later(self.read_timeout_s, self._give_up_reading)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._steps += 1
        self._in_message = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Run the application, unless the headers are too large. As uvicorn's, but for our `Cycle`."""
        self._steps += 1
        size, length = len(self.url), b"0"
        for name, value in self.headers:
            size += len(name) + len(value)
            if name == b"content-length":
                length = value
        if size > HEAD_BYTES:
            self._head_too_large = True
            raise HeadTooLarge  # the parser stops, and `send_400_response` is called
        parser, scope = self.parser, cast("dict[str, Any]", self.scope)
        version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        if version != "1.1":
            scope["http_version"] = version
        upgrade = parser.should_upgrade()
        if upgrade:
            self._may_upgrade = self._idle()
            if self._should_upgrade():
                return
        self._note_path(scope)
        self._begin_call(keep_alive=version != "1.0" and parser.should_keep_alive())
        self._missing_bytes = 0 if upgrade else int(length)  # the parser has refused what is no number

    def _begin_call(self, *, keep_alive: bool) -> None:
        before = self.cycle
        cycle = self.cycle = Cycle(self, keep_alive=keep_alive)
        cast("dict[str, Any]", self.scope)["extensions"] = {CALLER: cycle}
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:  # pipelined
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _note_path(self, scope: dict[str, Any]) -> None:
        raw_path, query = self.url, b""
        if not _PLAIN_PATH.fullmatch(raw_path):
            url = httptools.parse_url(raw_path)
            raw_path, query = url.path, url.query or b""
        path = raw_path.decode("ascii")
        scope["path"] = self.root_path + (unquote(path) if "%" in path else path)
        scope["raw_path"] = self.root_path.encode("ascii") + raw_path
        scope["query_string"] = query

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Run the application for a call whose turn it is; what comes before all others is not gone round about to."""
        running = self._running = cast("Cycle", cycle)
        first = self.first_app()
        if first is not None and first.answers(cast("Scope", running.scope)):
            running.start(self.loop, cast("ASGI3Application", first), self.tasks)
        else:
            super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """A part of a body is here."""
        self._steps += 1
        self._missing_bytes -= len(body)
        if not self.cycle.response_complete and not self._is_upgrade():
            self._cycle.come(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._steps += 1
        self._in_message = False
        self._missing_bytes = 0
        if not self._is_upgrade() and not self.cycle.response_complete:
            self._cycle.end()

    def _should_upgrade(self) -> bool:
        """As uvicorn's; but behind a call whose answer is to come, it is a call as any other: nobody else may write."""
        return self._may_upgrade and super()._should_upgrade()

    def _is_upgrade(self) -> bool:
        return self.parser.should_upgrade() and self._should_upgrade()

    # ------------------------------------------------------------ between two calls

    def on_response_complete(self) -> None:
        """A call has its answer. As uvicorn's, but that one timer serves for many calls."""
        self._running = None
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._resting_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_later(self.timeout_keep_alive)

    def _look_later(self, delay_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(delay_s, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """The client sends something. The timer runs on, and looks when it goes off."""
        self._resting_since = None

    def timeout_keep_alive_handler(self) -> None:
        """Disconnect a client that has asked nothing for `timeout_keep_alive`."""
        self.timeout_keep_alive_task = None
        if self._resting_since is None:
            return
        left_s = self._resting_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._look_later(left_s)
        else:
            super().timeout_keep_alive_handler()

    # ------------------------------------------------------------ what is wrong

    def handle_websocket_upgrade(self) -> None:
        """Leave the connection to a WebSocket: nothing of it comes here any more."""
        self._upgraded = True
        self._stop_reading_timer()
        super()._unset_keepalive_if_required()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refused."""
        if self._head_too_large:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _idle(self) -> bool:
        """Whether no call is running: it is the client's turn."""
        return self.cycle is None or self.cycle.response_complete

    def _refuse_head(self) -> None:
        if self._idle():  # else another call's answer is on its way
            error = HeadTooLarge(f"The limit is {HEAD_BYTES} bytes.", limit_bytes=HEAD_BYTES)
            answer = problem_response(error, {"Connection": "close"})
            headers = [*self.server_state.default_headers, *answer.raw_headers]
            lines = [STATUS_LINE[answer.status_code], *(b"%b: %b\r\n" % header for header in headers), b"\r\n"]
            self.transport.write(b"".join([*lines, answer.body]))
        self.transport.close()

    def _give_up_reading(self) -> None:
        self._reading = None
        if self._idle():
            self.transport.close()

    def _stop_reading_timer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


def connection_class(limits: LimitsSettings, first_app: Callable[[], First | None]) -> type[Connection]:
    """Return the class for ``uvicorn.Config(http=...)``: uvicorn makes the objects, and knows nothing of `limits`.

    `first_app` returns what answers some calls before the rest of the application is asked, if that is known yet.
    """

    class Limited(Connection):
        read_timeout_s = limits.upload_timeout_ms / MS_PER_S
        send_timeout_s = limits.send_timeout_ms / MS_PER_S

    Limited.first_app = staticmethod(first_app)  # type: ignore[method-assign]
    return Limited
