"""One WebSocket connection: uvicorn's, with bounds where uvicorn trusts its clients.

====================================  ===================================================================
a client that                         is
====================================  ===================================================================
sends a message over the limit        closed with 1009 before the message is read
sends it in very many fragments       closed with 1009
does not finish a message             closed with 1008 `read_timeout_s` after its first byte
sends while bodies take all memory    closed with 1013
answers neither ping nor otherwise    closed with 1011
takes nothing of what it is sent      not read from any more; disconnected after `send_timeout_s`
does not answer a closing handshake   disconnected after `CLOSE_S`
====================================  ===================================================================

What a message holds counts beside the bodies of HTTP calls (`gateway.api.uploads`), until the application has taken it.
But for the first and the last two, a problem document says why before the close.

An application that asks for it (`gateway.api.ws_socket`) gets binary messages as they came, and at once. The
`websockets` library does not see them then (`gateway.api.ws_splitter`); it sees everything else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.protocol import State

from gateway.api.problems import document
from gateway.api.results import dump
from gateway.api.state import MS_PER_S, ApiState
from gateway.api.uploads import Uploads
from gateway.api.write_limit import WriteLimit
from gateway.api.ws_intake import Intake
from gateway.api.ws_socket import BODY, SOCKET, text_header
from gateway.api.ws_splitter import Splitter
from gateway.errors import BodyTooLarge, FramegateError, UploadsFull, UploadTimeout
from gateway.runtime.bodies import Body, MaskedBody, Piece

#: The other side of a close has this long to answer it, and to take what was written before.
CLOSE_S = 2.0
#: A fragment may be empty and still takes memory. The largest message in these is 16 KiB a fragment.
MAX_FRAGMENTS = 4_096
_NO_TEXT = "the text is not UTF-8"


class SocketConnection(WriteLimit, WebSocketsSansIOProtocol):
    """A server's side of one WebSocket; `socket_class` gives it its limits. Implements `Socket`."""

    state: ClassVar[ApiState]
    uploads: ClassVar[Uploads]
    read_timeout_s: ClassVar[float]

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*arguments, **options)
        self.close_timeout = CLOSE_S
        self._part_bytes = 0
        self._part_since = 0.0
        self._message_since = 0.0
        self._splitter: Splitter | None = None
        self._consumer: Callable[[Body], bool] | None = None
        self._queued: deque[int] = deque()
        self._queued_bytes = self._in_hand_bytes = 0
        self._place_bytes = 0
        self._held = {True: 0, False: 0}  # with a place of its own, and without
        self._came = False
        self._heard = False
        self._lingers = False
        self._limit_bytes = self.config.ws_max_size
        self._reading: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------ life

    def handle_connect(self, event: Request) -> None:
        """Take the handshake, and offer the application to lower the limit of a message."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions = cast("dict[str, Any]", self.scope["extensions"])
            extensions[SOCKET] = self

    def limit_messages(self, limit_bytes: int, place_bytes: int) -> None:
        """See `Socket`."""
        self.conn.max_message_size = self._limit_bytes = limit_bytes
        self._place_bytes = place_bytes

    def deliver_to(self, consumer: Callable[[Body], bool] | None) -> None:
        """See `Socket`."""
        self._consumer = consumer
        if consumer is not None and self._splitter is None and not self._came:
            self._splitter = Splitter(self._limit_bytes)
            if not self.transport.is_closing():
                self.transport.set_protocol(Intake(self))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and hold nothing."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._queued.clear()
        self._splitter = self._consumer = None
        self._part_bytes = self._queued_bytes = self._in_hand_bytes = 0
        self._count_held()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server is going down. The application closes what is open, once it has sent what there is to send."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()

    def handle_close(self, event: Frame) -> None:
        """The client closes, or answers our close."""
        super().handle_close(event)
        self._cut_off_later()

    def handle_parser_exception(self) -> None:
        """What came is no WebSocket's, or over the limit: websockets has closed already."""
        close = self.conn.close_sent
        if close is None or self.close_sent or self.transport.is_closing():
            super().handle_parser_exception()
            return
        if close.code == CloseCode.MESSAGE_TOO_BIG:
            self.state.metrics.refused[BodyTooLarge.code] += 1
        self._linger(close.code, close.reason)

    async def send(self, message: ASGISendEvent) -> None:
        """Do as uvicorn, but wait for no client without end."""
        await super().send(message)
        if message["type"] == "websocket.close":
            self._cut_off_later()
        elif message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # refused; uvicorn would log each refusal as an error of ours

    def _cut_off_later(self) -> None:
        """Closing a transport waits until all that was written has been taken: for ever, if need be."""
        self.loop.call_later(CLOSE_S, self.transport.abort)

    def _fail(self, error: FramegateError, code: CloseCode) -> None:
        """Say what is wrong, and close at once."""
        if self.close_sent or not self.handshake_complete or self.transport.is_closing():
            return
        if self.conn.state is not State.OPEN:  # it has closed; nothing can be said any more
            return
        self.state.metrics.refused[error.code] += 1
        self.conn.send_text(dump({"error": document(error), "message": None}))
        self.conn.fail(code, error.code)
        self._linger(int(code), error.code)

    def _linger(self, code: int, reason: str) -> None:
        """Send what is to be sent, and end. What the client still sends is thrown away for a while.

        Closed with bytes unread, the connection would be reset, and the client might never see why.
        """
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        self.close_sent = self._lingers = True
        self.close_timer = self.loop.call_later(CLOSE_S, self.transport.abort)
        self.frames = []
        self.conn.reader.buffer.clear()
        self._splitter = None
        self._part_bytes = 0
        self._count_held()
        if self.read_paused or not self.writable.is_set():
            self.transport.resume_reading()

    # ------------------------------------------------------------ reading

    def data_received(self, data: bytes) -> None:
        """Take messages out of `data`, and parse the rest; what is left is the beginning of a message."""
        if self._lingers:
            return
        self._heard = True
        if self._splitter is None:
            self._came = self.handshake_initiated  # before the application could ask for messages as they come
            self._parse(data)
        else:
            self._split(self._splitter, data)
        self._count_held()
        if self._unfinished_bytes and self._reading is None:
            self._reading = self.loop.call_later(self.read_timeout_s, self._check_reading)

    def take_whole(self, data: memoryview) -> bool:
        """See `gateway.api.ws_intake.Receiver`: take a binary message that has come in one piece, if it need not wait.

        That is how a camera's come.
        """
        splitter, consumer = self._splitter, self._consumer
        if splitter is None or consumer is None or self._part_bytes or self._queued_bytes or self._in_hand_bytes:
            return False
        if self._lingers or self.close_sent or self.conn.state is not State.OPEN or not self.queue.empty():
            return False
        body = splitter.whole(data)
        if body is None:
            return False
        self._heard = True
        return consumer(body)

    def _split(self, splitter: Splitter, data: bytes) -> None:
        """Deliver the messages of `data`, and let the library look at what is between them."""
        fresh = not splitter.held
        for part in splitter.feed(data):
            if isinstance(part, MaskedBody):
                self._deliver(part)
                fresh = True
            else:
                self._parse(part)
            if self._lingers:
                return
        if fresh and splitter.held:
            self._message_since = self.loop.time()

    @property
    def _unfinished_bytes(self) -> int:
        """What has come of a message, or of two, if one is in fragments."""
        return self._part_bytes + (0 if self._splitter is None else self._splitter.held)

    def _parse(self, data: Piece) -> None:
        """Let the library look at `data`."""
        if self._part_bytes == 0:
            self._part_since = self.loop.time()
        self._part_bytes += len(data)
        super().data_received(data)  # type: ignore[arg-type]  # it is appended to a bytearray
        if len(self.frames) > MAX_FRAGMENTS:
            error = BodyTooLarge(f"The message has over {MAX_FRAGMENTS} fragments.", limit_bytes=self._limit_bytes)
            self._fail(error, CloseCode.MESSAGE_TOO_BIG)
        elif not self.frames and len(self.conn.reader.buffer) < self._part_bytes:
            # what is left behind whole frames, which may have been pings
            self._part_bytes, self._part_since = len(self.conn.reader.buffer), self.loop.time()

    def _deliver(self, body: MaskedBody) -> None:
        """A binary message is complete."""
        if self.close_sent or self.conn.state is not State.OPEN:
            return
        if self._consumer is not None and self.queue.empty() and self._consumer(body):
            return
        self._queued.append(body.size)
        self._queued_bytes += body.size
        self.queue.put_nowait(cast("ASGIReceiveEvent", {"type": "websocket.receive", BODY: body}))
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def send_receive_event_to_app(self) -> None:
        """A message is complete."""
        if not self.close_sent:
            size = sum(map(len, self.frames))
            self._queued.append(size)
            self._queued_bytes += size
        # if something follows, it is of the next
        self._part_bytes, self._part_since = len(self.conn.reader.buffer), self.loop.time()
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_text(self.frames):
            self._refuse_text()
        else:
            super().send_receive_event_to_app()

    def _refuse_text(self) -> None:
        """Close. uvicorn would, too, but log the client's mistake as an error of ours."""
        self._queued_bytes -= self._queued.pop()
        self.frames = []
        if self.conn.state is State.OPEN:  # else the client's own close follows in the same packet
            self.conn.fail(CloseCode.INVALID_DATA, _NO_TEXT)
            self._linger(int(CloseCode.INVALID_DATA), _NO_TEXT)

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next event. While there is one that is not done with, nothing more is read."""
        if self._in_hand_bytes:
            self._queued_bytes -= self._in_hand_bytes
            self._in_hand_bytes = 0
            self._count_held()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._part_since = self._message_since = self.loop.time()
            if self.writable.is_set() and not self.transport.is_closing():
                self.transport.resume_reading()
        message = await self.queue.get()
        if message["type"] == "websocket.receive" and self._queued:  # else the connection is gone
            self._in_hand_bytes = self._queued.popleft()
        return message

    def _count_held(self) -> None:
        size = self._unfinished_bytes + self._queued_bytes
        placed = min(size, self._place_bytes)
        for promised, wanted in ((True, placed), (False, size - placed)):
            more = wanted - self._held[promised]
            if more > 0:
                try:
                    self.uploads.hold(more, promised=promised)
                except UploadsFull as error:
                    self._fail(error, CloseCode.TRY_AGAIN_LATER)
                    return
            elif more < 0:
                self.uploads.release(-more, promised=promised)
            self._held[promised] = wanted

    def _check_reading(self) -> None:
        """Give up a client that does not finish its message."""
        self._reading = None
        size = self._unfinished_bytes
        if size == 0:
            return
        since = self._part_since if self._part_bytes else self._message_since
        left_s = since + self.read_timeout_s - self.loop.time()
        if self.read_paused or not self.writable.is_set():  # it is not the client who is slow
            left_s = self.read_timeout_s
        if left_s > 0:
            self._reading = self.loop.call_later(left_s, self._check_reading)
            return
        text = f"After {self.read_timeout_s:g} s there are {size} bytes of the message."
        self._fail(UploadTimeout(text), CloseCode.POLICY_VIOLATION)

    def keepalive_timeout(self) -> None:
        """The ping was not answered. Whoever has sent something else is there: a pong waits behind a long message."""
        if self._heard or self.read_paused or not self.writable.is_set():
            self.pong_timer = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()
            self._cut_off_later()

    def send_keepalive_ping(self) -> None:
        """Ask whether the client is still there."""
        self._heard = False
        super().send_keepalive_ping()

    # ------------------------------------------------------------ writing

    def write_text(self, text: bytes) -> bool:
        """See `Socket`."""
        if self.close_sent or self.conn.state is not State.OPEN or not self.writable.is_set() or self.disconnected:
            return False
        if self.transport.is_closing():
            return False
        self.transport.write(text_header(len(text)) + text)
        return True

    def pause_writing(self) -> None:
        """The client takes nothing: nothing more is read of it, or its pings would be answered without end."""
        super().pause_writing()
        if not self.read_paused:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has taken nearly all."""
        super().resume_writing()
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()


def _is_text(parts: list[bytes]) -> bool:
    try:
        b"".join(parts).decode()
    except UnicodeDecodeError:
        return False
    return True


def socket_class(state: ApiState) -> type[SocketConnection]:
    """Return the class for ``uvicorn.Config(ws=...)``: uvicorn makes the objects, and knows nothing of `state`."""
    limits = state.settings.limits

    class Limited(SocketConnection):
        uploads = state.uploads
        read_timeout_s = limits.upload_timeout_ms / MS_PER_S
        send_timeout_s = limits.send_timeout_ms / MS_PER_S

    Limited.state = state
    return Limited


def config_options(state: ApiState) -> Mapping[str, Any]:
    """Return the WebSocket's share of ``uvicorn.Config``."""
    heartbeat_s = state.settings.server.heartbeat_s
    return {
        "ws": socket_class(state),
        "ws_max_size": state.settings.limits.max_body_bytes,
        "ws_ping_interval": heartbeat_s,
        "ws_ping_timeout": heartbeat_s,
        "ws_per_message_deflate": False,  # pixels hardly shrink, and a small message could unfold to a large one
    }
