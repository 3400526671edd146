"""The scheduler's end of the connection to one ingest process.

What came together is handled together, and answered in one write: there is no task, and no system call of its own, for
a frame. The bytes of a frame are copied from the staging area to its batch while it is submitted; after that nothing
of ours looks at the staging area.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from functools import partial
from typing import cast

from gateway.errors import FramegateError
from gateway.ingest import wire
from gateway.ingest.figures import Figures
from gateway.ingest.hub import Hub
from gateway.ingest.staging import Staging
from gateway.runtime.bodies import Piece
from gateway.runtime.results import FrameResult
from gateway.runtime.tickets import FrameTicket

log = logging.getLogger(__name__)

#: Of what a process has not read. One that is so far behind stands still: it is ended.
MAX_UNREAD_BYTES = 256 << 20
#: Of a message of a process. Frames are in the staging area; its figures are the longest, some kilobytes.
MAX_MESSAGE_BYTES = 1 << 20


class _Call:
    """Frames that were submitted together, while one of them has not ended."""

    __slots__ = ("left", "tickets")

    def __init__(self, tickets: list[FrameTicket]) -> None:
        self.tickets = tickets
        self.left = len(tickets)


class SchedulerLink(asyncio.Protocol):
    """See the module's docstring.

    Args:
        hub: Of all links.
        staging: Where the process puts bodies.
        figures: Of the process.

    Attributes:
        ready: Done when it listens.
        heard: How often something came of it.
        lost: Done when it is gone; its frames have been cancelled then, as those of any client that goes away.
    """

    def __init__(self, hub: Hub, staging: Staging, figures: Figures) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.heard = 0
        self._loop = loop
        self._hub = hub
        self._staging = staging
        self._figures = figures
        self._messages = wire.Messages(MAX_MESSAGE_BYTES)
        self._calls: dict[int, _Call] = {}
        self._outbox: list[Piece] = []
        self._due = False
        self._transport: asyncio.Transport | None = None
        self._handlers = {
            wire.SUBMIT: self._submit,
            wire.CANCEL: self._cancel,
            wire.ASK: self._answer,
            wire.FIGURES: self._hear,
            wire.READY: self._set_ready,
        }

    # ------------------------------------------------------------ life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process can be talked to."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)
        self._hub.links.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The process is gone: nobody waits for its frames."""
        self._hub.links.discard(self)
        self._transport = None
        calls, self._calls = self._calls, {}
        try:
            for call in calls.values():
                for ticket in call.tickets:
                    if ticket.ended is None:
                        self._hub.gateway.cancel(ticket)
        finally:  # whatever becomes of the engine, there is somebody who waits for the end of the process
            self._figures.end(self._hub.state.metrics)
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        """It does not read."""
        log.error("an ingest process has not read %d bytes and is ended", MAX_UNREAD_BYTES)
        self.abort()

    def abort(self) -> None:
        """Talk to it no more."""
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------ what it says

    def data_received(self, data: bytes) -> None:
        """Do what all messages of `data` say, then answer."""
        self.heard += 1
        try:
            for message in self._messages.feed(data):
                self._handlers[message[0]](message)
        except wire.TooLongError as error:
            log.error("an ingest process sends %s; it is ended", error)
            self.abort()
        self._flush()

    def _submit(self, message: memoryview) -> None:
        _, number, wanted, came_ns, offset, size, labelled, label = wire.DESCRIPTOR.unpack_from(message)
        stream_id = str(message[wire.DESCRIPTOR.size :], "ascii")
        body = self._staging.view[offset : offset + size]
        try:
            tickets = self._hub.gateway.submit(stream_id, body, label if labelled else None)
        except FramegateError as error:
            self._refuse(number, error)
            return
        except Exception:
            log.exception("unexpected error while frames of an ingest process were submitted")
            self._refuse(number, FramegateError("See the gateway's log."))
            return
        count = len(tickets)
        self._hub.handover.add(max(0, time.monotonic_ns() - came_ns))
        self._figures.frames += count
        self._outbox.append(wire.message(wire.ACCEPTED.pack(wire.TAKEN, number, tickets[0].seq, count)))
        if wanted:
            call = self._calls[number] = _Call(tickets)
            for index, ticket in enumerate(tickets):
                ticket.watch(partial(self._ended, number, index, call))

    def _refuse(self, number: int, error: FramegateError) -> None:
        self._outbox.append(wire.message(wire.QUESTION.pack(wire.REFUSED, number), pickle.dumps(error)))

    def _cancel(self, message: memoryview) -> None:
        _, number, index = wire.FRAME.unpack_from(message)
        call = self._calls.get(number)
        if call is not None and (ticket := call.tickets[index]).ended is None:
            self._hub.gateway.cancel(ticket)

    def _answer(self, message: memoryview) -> None:
        _, number = wire.QUESTION.unpack_from(message)
        facts = self._hub.facts(str(message[wire.QUESTION.size :], "ascii"))
        self._outbox.append(wire.message(wire.QUESTION.pack(wire.STREAM, number), facts))

    def _hear(self, message: memoryview) -> None:
        self._figures.hear(message[1:], self._hub.state.metrics)

    def _set_ready(self, _message: memoryview) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    # ------------------------------------------------------------ what it is told

    def _ended(self, number: int, index: int, call: _Call, ticket: FrameTicket) -> None:
        """A frame has ended. All of one job end together: their results are sent together."""
        call.left -= 1
        if call.left == 0:
            self._calls.pop(number, None)
        if self._transport is None:
            return
        try:
            if isinstance(ticket.ended, FrameResult):
                parts = wire.result_parts(number, index, ticket.ended)
            else:
                parts = [wire.message(wire.FRAME.pack(wire.FAILED, number, index), pickle.dumps(ticket.ended))]
        except BaseException:  # its client would wait for ever
            self.abort()
            raise
        self._outbox += parts
        self._flush_soon()

    def say(self, *messages: Piece) -> None:
        """Send these, after what is to be sent already."""
        self._outbox += messages
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._due = False
        if self._outbox and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(self._outbox)
        self._outbox = []
