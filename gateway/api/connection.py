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

Bodies that are wanted are `gateway.api.uploads`' affair.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.api.problems import problem_response
from gateway.api.write_limit import WriteLimit
from gateway.errors import HeadTooLarge
from gateway.settings import LimitsSettings

#: Of the request line and the headers together. Servers commonly take 8 to 64 KiB; ours needs 1.
HEAD_BYTES = 64 << 10
MS_PER_S = 1_000


class Connection(WriteLimit, HttpToolsProtocol):
    """A server's side of one connection; `connection_class` gives it its limits."""

    read_timeout_s: ClassVar[float]

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*arguments, **options)
        #: Counts what the parser understood; while it stands still, what comes is header, trailer or nothing.
        self._steps = 0
        self._pending_bytes = 0
        self._head_too_large = False
        self._upgraded = False
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Wait for the first request."""
        super().connection_made(transport)
        self._reading = self.loop.call_later(self.read_timeout_s, self._give_up_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_reading_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse `data`, and see to it that the client gets on."""
        steps = self._steps
        super().data_received(data)
        if self._upgraded:
            return
        if self._steps != steps:
            self._pending_bytes = 0
        else:
            self._pending_bytes += len(data)
            if self._pending_bytes > HEAD_BYTES and not self.transport.is_closing():
                self._refuse_head()
        if not self._idle():
            if self._reading is not None:
                self._stop_reading_timer()
        elif self._reading is None:
            self._reading = self.loop.call_later(self.read_timeout_s, self._give_up_reading)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._steps += 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Run the application, unless the headers are too large."""
        self._steps += 1
        if len(self.url) + sum(map(len, chain.from_iterable(self.headers))) > HEAD_BYTES:
            self._head_too_large = True
            raise HeadTooLarge  # the parser stops, and `send_400_response` is called
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body is here."""
        self._steps += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._steps += 1
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """Leave the connection to a WebSocket: nothing of it comes here any more."""
        self._upgraded = True
        self._stop_reading_timer()
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


def connection_class(limits: LimitsSettings) -> type[Connection]:
    """Return the class for ``uvicorn.Config(http=...)``: uvicorn makes the objects, and knows nothing of `limits`."""

    class Limited(Connection):
        read_timeout_s = limits.upload_timeout_ms / MS_PER_S
        send_timeout_s = limits.send_timeout_ms / MS_PER_S

    return Limited
