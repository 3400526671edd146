"""The gateway as an ingest process knows it: what `gateway.api` needs of one for frames, by way of the scheduler.

A frame is submitted without waiting for the scheduler's answer: its ticket is there at once, and a refusal comes as the
end of it. All messages of one turn of the event loop are sent together.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import orjson

from gateway.core.verdict import Verdict
from gateway.errors import ArenaFull, FramegateError, StreamNotFound
from gateway.ingest import wire
from gateway.ingest.staging import Staging
from gateway.runtime.bodies import Body, Data, body_of
from gateway.runtime.kept import KeptOutputs
from gateway.runtime.results import FrameResult, ResultRing, StreamRecord
from gateway.runtime.room import body_bytes
from gateway.runtime.tickets import FrameTicket, Telling

#: Streams that are over and are still known here.
_MOST_ENDED = 256
#: The scheduler takes a body within milliseconds.
_RETRY_AFTER_S = 1.0
_POLL_S = 0.02


class RemoteTicket(FrameTicket):
    """One frame that was handed to the scheduler. Its `seq` is negative until it is taken, and stays so if it is not.

    Attributes:
        call: Number of what was submitted together.
        index: Which frame of that.
    """

    __slots__ = ("call", "index")

    def __init__(
        self,
        stream_id: str,
        timestamp_ms: float | None,
        nobody_waits: Callable[[FrameTicket], None],
        call: int,
        index: int,
    ) -> None:
        super().__init__(stream_id, -1, timestamp_ms, nobody_waits)
        self.call = call
        self.index = index

    @property
    def refused(self) -> bool:
        """Whether the frame was not taken."""
        return self.seq < 0 and self.ended is not None


class RemoteGateway:
    """See the module's docstring.

    Args:
        staging: Where bodies are put down for the scheduler.
        refused: What is refused here is counted in it, by reason.

    Attributes:
        ready: As of `Gateway`; clients that are here can be served.
    """

    ready = True

    def __init__(self, staging: Staging, refused: Counter[str]) -> None:
        self._staging = staging
        self._refused = refused
        self._transport: asyncio.Transport | None = None
        self._outbox: list[bytes] = []
        self._numbers = count()
        self._records: dict[str, StreamRecord] = {}
        self._ended: OrderedDict[str, StreamRecord] = OrderedDict()
        self._calls: dict[int, list[RemoteTicket]] = {}
        self._left: dict[int, int] = {}
        self._accepting: dict[int, asyncio.Future[list[int]]] = {}
        self._questions: dict[int, tuple[str, asyncio.Future[None]]] = {}
        self._stopped = asyncio.Event()
        self._telling = Telling()

    # ------------------------------------------------------------ life

    def connect(self, transport: asyncio.Transport) -> None:
        """Say where the scheduler is."""
        self._transport = transport

    async def start(self) -> None:
        """Do nothing: the scheduler starts its gateway."""

    async def stop(self) -> None:
        """Return once all frames have ended: the scheduler ends them when it stops, and ends us if that takes long."""
        while self._calls and not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._stopped.wait()

    @property
    def promised_body_bytes(self) -> int:
        """See `Gateway`; of the streams whose cameras are connected here."""
        return sum(map(body_bytes, self._records.values()))

    # ------------------------------------------------------------ streams

    def stream(self, stream_id: str) -> StreamRecord:
        """Return what is known of a stream that was asked for by `learn`. Raises `StreamNotFound`."""
        record = self._records.get(stream_id) or self._ended.get(stream_id)
        if record is None:
            raise StreamNotFound(f"There is no stream {stream_id!r}.", stream_id=stream_id)
        return record

    async def learn(self, stream_id: str, *, anew: bool = False) -> None:
        """Ask the scheduler for a stream, unless it is known and not over. `anew`: ask all the same."""
        if stream_id in self._records and not anew:
            return
        number = next(self._numbers)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._questions[number] = stream_id, answer
        self.say(wire.message(wire.QUESTION.pack(wire.ASK, number), stream_id.encode("ascii")))
        await answer

    def on_stream(self, message: memoryview) -> None:
        """An answer to `learn` has come."""
        _, number = wire.QUESTION.unpack_from(message)
        stream_id, answer = self._questions.pop(number)
        self._note(stream_id, message[wire.QUESTION.size :])
        if not answer.done():
            answer.set_result(None)

    def _note(self, stream_id: str, pickled: memoryview) -> None:
        if not pickled:
            self._records.pop(stream_id, None)
            self._ended.pop(stream_id, None)
            return
        facts: dict[str, Any] = pickle.loads(pickled)
        record = self._records.get(stream_id)  # whoever serves it keeps it, so it stays the same
        if record is None:
            record = self._records[stream_id] = _record(stream_id, facts)
        self._change(record, facts)

    def _change(self, record: StreamRecord, facts: dict[str, Any]) -> None:
        record.state, record.close_reason = facts["state"], facts["close_reason"]
        record.accepted = facts.get("accepted", record.accepted)
        if not record.ended:
            return
        record.over.set()
        self._ended[record.stream_id] = self._records.pop(record.stream_id)
        if len(self._ended) > _MOST_ENDED:
            self._ended.popitem(last=False)

    def on_over(self, message: memoryview) -> None:
        """A stream is over."""
        facts = orjson.loads(message[1:])
        record = self._records.get(facts["stream_id"])
        if record is not None:
            self._change(record, facts)

    # ------------------------------------------------------------ frames

    def submit(
        self, stream_id: str, body: Data, timestamp_ms: float | None = None, deadline_ns: int | None = None
    ) -> list[RemoteTicket]:
        """As `Gateway.submit`; but only `ArenaFull` is raised, everything else that can be wrong ends the tickets."""
        taken = body_of(body)
        number = self._put_down(stream_id, taken, timestamp_ms, wanted=True)
        tickets = [
            RemoteTicket(stream_id, timestamp_ms, self.cancel, number, index)
            for index in range(self._frames_of(stream_id, taken.size))
        ]
        self._calls[number], self._left[number] = tickets, len(tickets)
        return tickets

    async def hand_over(self, stream_id: str, body: Data, timestamp_ms: float | None) -> list[int]:
        """Submit frames for which nobody waits; return their numbers. Raises as `Gateway.submit`."""
        number = self._put_down(stream_id, body_of(body), timestamp_ms, wanted=False)
        accepted: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._accepting[number] = accepted
        return await accepted

    def _frames_of(self, stream_id: str, size: int) -> int:
        try:
            return max(1, size // self.stream(stream_id).frame_bytes)
        except StreamNotFound:
            return 1

    def _put_down(self, stream_id: str, body: Body, timestamp_ms: float | None, *, wanted: bool) -> int:
        """Copy a body to the staging area, and tell the scheduler. Raises `ArenaFull`."""
        came_ns, size = time.monotonic_ns(), body.size
        offset = self._staging.put(size)
        if offset is None:
            self._refused[ArenaFull.code] += self._frames_of(stream_id, size)
            raise ArenaFull(
                f"{self._staging.used_bytes} bytes of frames wait for the scheduler; there is no room for {size} more.",
                retry_after_s=_RETRY_AFTER_S,
            )
        body.fill(self._staging.view[offset : offset + size])
        number = next(self._numbers)
        label = 0.0 if timestamp_ms is None else timestamp_ms
        head = wire.DESCRIPTOR.pack(wire.SUBMIT, number, wanted, came_ns, offset, size, timestamp_ms is not None, label)
        self.say(wire.message(head, stream_id.encode("ascii")))
        return number

    def cancel(self, ticket: FrameTicket) -> None:
        """See `Gateway.cancel`."""
        if isinstance(ticket, RemoteTicket):
            self.say(wire.message(wire.FRAME.pack(wire.CANCEL, ticket.call, ticket.index)))

    def on_taken(self, message: memoryview) -> None:
        """The scheduler has copied what was put down first, and its frames are accepted."""
        _, number, seq, size = wire.ACCEPTED.unpack_from(message)
        self._staging.taken()
        seqs = list(range(seq, seq + size))
        if self._answer_hand_over(number, seqs):
            return
        for ticket, each in zip(self._calls[number], seqs, strict=True):
            ticket.seq = each

    def on_refused(self, message: memoryview) -> None:
        """What was put down first is not taken."""
        _, number = wire.QUESTION.unpack_from(message)
        self._staging.taken()
        error: FramegateError = pickle.loads(message[wire.QUESTION.size :])
        if self._answer_hand_over(number, error):
            return
        del self._left[number]
        for ticket in self._calls.pop(number):
            self._end(ticket, error)

    def _answer_hand_over(self, number: int, outcome: list[int] | FramegateError) -> bool:
        """Answer `hand_over`; return False if the call was none."""
        accepted = self._accepting.pop(number, None)
        if accepted is None:
            return False
        if not accepted.done():
            if isinstance(outcome, list):
                accepted.set_result(outcome)
            else:
                accepted.set_exception(outcome)
        return True

    def on_result(self, message: memoryview) -> None:
        """A frame has ended."""
        number, index, result = wire.read_result(message)
        ticket = self._calls[number][index]
        result.stream_id = ticket.stream_id
        self._one_less(number)
        self._end(ticket, result)

    def on_failed(self, message: memoryview) -> None:
        """A frame has no end: the engine has failed."""
        _, number, index = wire.FRAME.unpack_from(message)
        ticket = self._calls[number][index]
        self._one_less(number)
        self._end(ticket, pickle.loads(message[wire.FRAME.size :]))

    def on_stopped(self, _message: memoryview) -> None:
        """The scheduler's gateway has been stopped: all frames have ended."""
        self._stopped.set()

    def _end(self, ticket: FrameTicket, outcome: FrameResult | FramegateError) -> None:
        if ticket.end(outcome):
            self._telling.tell_soon(ticket)

    def _one_less(self, number: int) -> None:
        self._left[number] -= 1
        if not self._left[number]:
            del self._left[number], self._calls[number]

    # ------------------------------------------------------------ to the scheduler

    def say(self, message: bytes) -> None:
        """Send a message, with all others of this turn."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(message)

    def say_now(self, message: bytes) -> None:
        """Send a message at once, as the last one."""
        self._outbox.append(message)
        self._flush()

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(outbox))


def _record(stream_id: str, facts: dict[str, Any]) -> StreamRecord:
    """Return a record that answers what `gateway.api` asks of it while it takes frames."""
    spec = facts["spec"]
    return StreamRecord(
        stream_id=stream_id,
        spec=spec,
        category=spec.category(),
        frame_bytes=facts["frame_bytes"],
        verdict=_NOT_HERE,
        admitted_ns=0,
        ring=ResultRing(0, KeptOutputs(0)),
    )


#: Why it was admitted is the scheduler's affair.
_NOT_HERE = Verdict(admitted=True, test="", phase=0)
