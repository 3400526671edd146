"""What one client of a WebSocket sends and gets, after the handshake.

::

    socket ──────────┐                             ┌────────────────────> socket
    receive ─> text ─┴> _take ─> Gateway.submit ─> tickets ─> outbox ─> send
                          │ refused                  ^
                          └── problem document ──────┘

A binary message is the body of a frames call: one or more frames, taken whole or not at all. Each of its frames is
answered by a text message of its own when it has ended, in the order in which frames end; a message that is refused is
answered by one problem document.

A client that has too many messages unanswered is not read from until it has taken an answer. What it does not take is
bounded by `gateway.api.unread`; the connection's own bounds are in `gateway.api.ws_connection`.

Between a connection of ours (`gateway.api.ws_socket`) and the gateway nothing is queued while nothing need be: a
message is taken as its last byte comes, and an answer written as its frame ends. All else goes through tasks.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
from starlette.types import Receive, Send

from gateway.api.problems import document
from gateway.api.results import dump, frame_pieces, frame_result, is_large
from gateway.api.state import MS_PER_S, ApiState
from gateway.api.unread import Share
from gateway.api.ws_socket import BODY, Socket
from gateway.core.types import StreamSpec
from gateway.errors import FramegateError, ValidationFailed
from gateway.runtime.bodies import Body
from gateway.runtime.results import FrameResult, StreamRecord
from gateway.runtime.tickets import FrameTicket

#: Codes of our close frames.
DONE, RESTARTING = 1000, 1012
#: Messages without an answer, however many a contract lets be under way: each takes about 1 kB.
_MOST_UNANSWERED = 65_536
#: A label is a number in braces.
_LABEL_CHARS = 200


@dataclass(eq=False, slots=True)
class _Message:
    """A message that is not answered in full.

    Attributes:
        index: Which of the client's binary messages, from 0; None: text.
        tickets: Its frames; none if it was refused.
        left: Answers that the client has not taken.
    """

    index: int | None
    tickets: list[FrameTicket] = field(default_factory=list)
    left: int = 1


class Exchange:
    """One client, after the handshake; `socket` is None if the server is not ours."""

    def __init__(
        self, state: ApiState, record: StreamRecord, receive: Receive, send: Send, socket: Socket | None = None
    ) -> None:
        self._state = state
        self._socket = socket
        self._limit = max_unanswered(state.settings.limits.max_unanswered, record.spec)
        self._record = record
        self._receive = receive
        self._send = send
        self._count = 0
        self._timestamp_ms: float | None = None
        self._unanswered: set[_Message] = set()
        self._waiting = 0
        self._outbox: deque[tuple[_Message, FrameResult | FramegateError, int]] = deque()
        self._share = Share(self._cut_off)
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._ending: tuple[int, str] | None = None
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = False
        self._writing = False

    async def serve(self) -> None:
        """Serve until the client goes away, the stream is over or the server goes down."""
        if self._socket is not None:
            self._socket.deliver_to(self._take_now)
        reading = asyncio.create_task(self._read())
        writing = asyncio.create_task(self._write())
        ends = [asyncio.create_task(self._until_over()), asyncio.create_task(self._until_draining())]
        try:
            await asyncio.wait((reading, writing, self._fault), return_when=asyncio.FIRST_COMPLETED)
            if self._fault.done():
                self._fault.result()
            elif reading.done():
                reading.result()  # it is the client who ended it, unless this raises
            elif writing.result() and self._ending is not None:
                code, reason = self._ending
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
        except OSError:
            pass  # gone between its last result and the close
        finally:
            for task in (reading, writing, *ends):
                task.cancel()
            self._leave()
            await asyncio.gather(reading, writing, *ends, return_exceptions=True)

    def _leave(self) -> None:
        """Nobody waits any more: frames that have not been sent to Triton are cancelled."""
        self._over = True
        if self._socket is not None:
            self._socket.deliver_to(None)
        self._state.unread.forget(self._share)
        lost = sum(isinstance(answer, FrameResult) for _, answer, _ in self._outbox)
        if lost:
            self._state.metrics.undelivered.labels("client_gone").inc(lost)
        self._outbox.clear()
        for message in self._unanswered:
            for ticket in message.tickets:
                if ticket.ended is None:
                    self._state.gateway.cancel(ticket)
        self._unanswered.clear()

    async def _until_over(self) -> None:
        await self._record.over.wait()
        self._end(DONE, self._record.state)

    async def _until_draining(self) -> None:
        await self._state.draining.wait()
        self._end(RESTARTING, "stopping")

    def _end(self, code: int, reason: str) -> None:
        """Close once what is on its way has been answered."""
        if self._ending is None:
            self._ending = code, reason
            self._changed.set()

    def _cut_off(self) -> None:
        """Too much waits for this client."""
        self._state.metrics.undelivered.labels("slow_reader").inc(len(self._outbox))
        self._outbox.clear()
        self._over = True
        self._changed.set()

    # ------------------------------------------------------------ in

    async def _read(self) -> None:
        """Take messages until the client is gone."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            while len(self._unanswered) >= self._limit:
                self._room.clear()
                await self._room.wait()
            if self._too_late:
                continue
            if message.get("text") is not None:
                self._label(message["text"])
                await asyncio.sleep(0)  # there may be thousands of them in one packet
            else:
                self._take(message[BODY] if BODY in message else message["bytes"])

    def _take_now(self, body: Body) -> bool:
        """Take a message that has just come, unless the client has to wait."""
        if len(self._unanswered) >= self._limit:
            return False
        if not self._too_late:
            try:
                self._take(body)
            except Exception as error:  # noqa: BLE001 - the transport would only hang up
                self._fail(error)
        return True

    def _fail(self, error: Exception) -> None:
        """Have `serve` raise a fault of ours that came up where no task of its own could."""
        if self._socket is not None:
            self._socket.deliver_to(None)
        if not self._fault.done():
            self._fault.set_exception(error)

    @property
    def _too_late(self) -> bool:
        """Whether the close is on its way."""
        return self._ending is not None and self._waiting == 0

    def _label(self, text: str) -> None:
        """Take ``{"timestamp_ms": 1.5}``: a label of the next binary message."""
        try:
            label = orjson.loads(text) if len(text) <= _LABEL_CHARS else None
        except orjson.JSONDecodeError:
            label = None
        value = label.get("timestamp_ms") if isinstance(label, dict) and len(label) == 1 else None
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            self._timestamp_ms = float(value)
        else:
            error = ValidationFailed('The only text is {"timestamp_ms": number}, before its binary message.', errors=[])
            message = _Message(None)
            self._unanswered.add(message)
            self._answer(message, error)

    def _take(self, body: bytes | Body) -> None:
        message = _Message(self._count)
        self._count += 1
        timestamp_ms, self._timestamp_ms = self._timestamp_ms, None
        self._unanswered.add(message)
        try:
            self._state.check_not_stopping()
            message.tickets = self._state.gateway.submit(self._record.stream_id, body, timestamp_ms)
        except FramegateError as error:
            self._answer(message, error)
            return
        message.left = len(message.tickets)
        self._waiting += len(message.tickets)
        for ticket in message.tickets:
            ticket.watch(partial(self._ended, message))

    # ------------------------------------------------------------ out

    def _ended(self, message: _Message, ticket: FrameTicket) -> None:
        """One of its frames has ended."""
        self._waiting -= 1
        assert ticket.ended is not None
        try:
            self._answer(message, ticket.ended)
        except Exception as error:  # noqa: BLE001 - the event loop would only log it
            self._fail(error)

    def _answer(self, message: _Message, answer: FrameResult | FramegateError) -> None:
        if self._over or self._write_now(message, answer):
            return
        size = self._state.unread.hold(self._share, answer) if isinstance(answer, FrameResult) else 0
        if not self._over:  # it may have been one too much
            self._outbox.append((message, answer, size))
        self._changed.set()

    def _write_now(self, message: _Message, answer: FrameResult | FramegateError) -> bool:
        """Write an answer that need not wait for another, nor for the client, nor give others their turn."""
        if self._socket is None or self._writing or self._outbox:
            return False
        if isinstance(answer, FrameResult) and is_large((answer,)):
            return False
        if not self._socket.write_text(_at_once(message, answer)):
            return False
        self._taken(message)
        if self._ending is not None:
            self._changed.set()
        return True

    async def _write(self) -> bool:
        """Send what there is; return whether all was sent, and nothing will come."""
        while True:
            self._changed.clear()
            self._writing = True
            while self._outbox:
                message, answer, size = self._outbox.popleft()
                try:
                    await self._send({"type": "websocket.send", "text": await _text(message, answer)})
                except OSError:
                    return False
                self._state.unread.release(self._share, size)
                self._taken(message)
            self._writing = False
            if self._over:
                return False
            if self._too_late:
                return True
            await self._changed.wait()

    def _taken(self, message: _Message) -> None:
        message.left -= 1
        if message.left == 0:
            self._unanswered.discard(message)
            self._room.set()


def max_unanswered(limit: int, spec: StreamSpec) -> int:
    """Return how many messages may be unanswered: `limit`, or more if the contract lets more frames be under way.

    A camera must never be held up as long as it keeps to its contract.
    """
    periods = 1 + math.ceil((spec.deadline_ns + spec.jitter_ns) / spec.period_ns)
    return max(limit, min(spec.burst * periods, _MOST_UNANSWERED))


def _at_once(message: _Message, answer: FrameResult | FramegateError) -> bytes:
    """Return an answer as JSON."""
    if isinstance(answer, FrameResult):
        fields = frame_result(answer)
        fields["message"] = message.index
        return dump(fields)
    problem: dict[str, Any] = document(answer)
    if answer.retry_after_s is not None:
        problem.setdefault("retry_after_ms", answer.retry_after_s * MS_PER_S)
    return orjson.dumps({"error": problem, "message": message.index}, option=orjson.OPT_SERIALIZE_NUMPY, default=str)


async def _text(message: _Message, answer: FrameResult | FramegateError) -> str:
    """Return the same; others get their turn while a large one is written."""
    if not isinstance(answer, FrameResult) or not is_large((answer,)):
        return _at_once(message, answer).decode()
    parts = []
    for piece in frame_pieces({**frame_result(answer), "message": message.index}):
        parts.append(piece)
        await asyncio.sleep(0)
    return b"".join(parts).decode()
