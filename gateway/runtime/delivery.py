"""Carries out the engine's decisions about frames: bytes into the arena, results to those who wait.

Everything that the gateway knows about a stream beyond the engine's own account is here: its record, its
tickets, and the record of the last streams that ended.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from gateway.core.actions import (
    AcceptFrames,
    Action,
    Admitted,
    DeliverFrames,
    DropFrames,
    PenaltyChanged,
    RetryFrames,
    StreamEnded,
)
from gateway.core.events import Event, FrameCancelled
from gateway.core.types import NS_PER_MS, Category, Frame, Job, Outcome, StreamSpec
from gateway.errors import EngineFailed, StreamNotFound
from gateway.runtime.arena import Arena
from gateway.runtime.bodies import Body
from gateway.runtime.executor import TritonExecutor
from gateway.runtime.kept import KeptOutputs
from gateway.runtime.results import FrameResult, Penalty, ResultRing, StreamRecord
from gateway.runtime.room import PromisedRoom
from gateway.runtime.tickets import FrameTicket, Telling

_NOTHING = Body(())
#: The outcomes of frames that have a result.
_ANSWERED = frozenset({Outcome.MET, Outcome.MISSED})


class Delivery:
    """Implements `gateway.runtime.driver.Sink`.

    Args:
        promised: Told of streams that come and go.
        results_kept: Size of each stream's ring.
        results_kept_bytes: What the outputs of all that is in the rings may take.
        closed_streams_kept: How many streams are remembered after their end.

    Attributes:
        streams: Streams that are not over, by id.
        tickets: Frames that have not ended.
        kept: Outputs of frames that have, as far as they are kept.
        ended_streams: Streams that are over, by why they were closed, or ``finished``.
    """

    def __init__(
        self,
        arena: Arena,
        executor: TritonExecutor,
        promised: PromisedRoom,
        *,
        results_kept: int,
        results_kept_bytes: int,
        closed_streams_kept: int,
    ) -> None:
        self.streams: dict[str, StreamRecord] = {}
        self.tickets: dict[tuple[str, int], FrameTicket] = {}
        self.kept = KeptOutputs(results_kept_bytes)
        self.ended_streams: Counter[str] = Counter()
        self._ended: OrderedDict[str, StreamRecord] = OrderedDict()
        self._penalties: dict[Category, Penalty] = {}
        self._promised = promised
        self._arena = arena
        self._executor = executor
        self._results_kept = results_kept
        self._closed_streams_kept = closed_streams_kept
        self._body = _NOTHING
        self._split: Job | None = None
        self._timestamp_ms: float | None = None
        self._issued: list[FrameTicket] = []
        self._telling = Telling()
        self._post: Callable[[Event], object] | None = None
        self._handlers: dict[type[Any], Callable[[Any, int], None]] = {
            AcceptFrames: self._accept,
            DropFrames: self._drop,
            RetryFrames: self._retry,
            DeliverFrames: self._deliver,
            PenaltyChanged: self._note_penalty,
            StreamEnded: self._end_stream,
        }

    def connect(self, post: Callable[[Event], object]) -> None:
        """Say where the cancellation of a ticket goes."""
        self._post = post

    # ------------------------------------------------------------ streams

    def add(
        self, admitted: Admitted, spec: StreamSpec, frame_bytes: int, now_ns: int, *, follows: bool = False
    ) -> StreamRecord:
        """Keep a record of a stream that was just admitted. `follows`: it named no version."""
        record = StreamRecord(
            stream_id=admitted.stream_id,
            spec=spec,
            category=admitted.category,
            frame_bytes=frame_bytes,
            verdict=admitted.verdict,
            admitted_ns=now_ns,
            ring=ResultRing(0 if spec.internal else self._results_kept, self.kept),
            penalty=self._penalties.setdefault(admitted.category, Penalty()),
            follows=follows,
        )
        self.streams[record.stream_id] = record
        self._promised.add(record)
        return record

    def find(self, stream_id: str) -> StreamRecord:
        """Return the record of a stream, over or not. Raises `StreamNotFound`."""
        record = self.streams.get(stream_id) or self._ended.get(stream_id)
        if record is None:
            raise StreamNotFound(f"There is no stream {stream_id!r}.", stream_id=stream_id)
        return record

    def named(self, job: Job) -> list[bool]:
        """Return which frames of `job` are of streams that have named their version."""
        return [not self.streams[frame.stream_id].follows for frame in job.frames]

    def issued(self) -> list[FrameTicket]:
        """Let go of what was expected last, and return the tickets of its frames; some may have ended already."""
        self._body = _NOTHING
        return self._issued

    # ------------------------------------------------------------ actions

    def expect(self, body: Body, timestamp_ms: float | None = None) -> None:
        """The next frames that the engine accepts are these, back to back, labelled so by their sender."""
        self._body, self._timestamp_ms, self._issued = body, timestamp_ms, []

    def carry_out(self, action: Action, now_ns: int) -> None:
        """Do what the action says."""
        handler = self._handlers.get(type(action))
        if handler is not None:  # the others are answers, for whoever asked
            handler(action, now_ns)

    def _accept(self, action: AcceptFrames, _now_ns: int) -> None:
        frames, body, arena = action.frames, self._body, self._arena
        record = self.streams[frames[0].stream_id]
        for frame in frames:
            body.fill(arena.slot(frame.job))
            ticket = FrameTicket(frame.stream_id, frame.seq, self._timestamp_ms, self._nobody_waits)
            self.tickets[frame.stream_id, frame.seq] = ticket
            self._issued.append(ticket)
            record.demoted += frame.demoted
        record.accepted += len(frames)

    def _nobody_waits(self, ticket: FrameTicket) -> None:
        """A ticket that was cancelled by its holder cancels the frame."""
        if (ticket.stream_id, ticket.seq) in self.tickets and self._post is not None:
            self._post(FrameCancelled(ticket.stream_id, ticket.seq))

    def _drop(self, action: DropFrames, now_ns: int) -> None:
        for job, source, target in action.moved:
            self._arena.move(job, source, target)
        for frame in action.frames:
            self._arena.drop(frame.job)
            self._end_frame(
                frame,
                action.outcome,
                reason=action.reason,
                queue_ms=(now_ns - frame.arrival_ns) / NS_PER_MS,
                batch=self._tried_with(frame, action),
            )

    def _tried_with(self, frame: Frame, action: DropFrames) -> int:
        """Return how many frames the job of a dropped frame had; 0 if it was in none."""
        if action.outcome is not Outcome.FAILED:
            return 0
        return len(self._split.frames if self._split and self._split.id == frame.job else action.frames)

    def _retry(self, action: RetryFrames, _now_ns: int) -> None:
        """The frames stay where they are; what is left of their batch ends with the next action."""
        self._split = action.job
        self._arena.hand_over(action.job.id, [(f.job, i) for f, i in zip(action.frames, action.indices, strict=True)])

    def _deliver(self, action: DeliverFrames, _now_ns: int) -> None:
        job = action.job
        outputs = self._executor.take(job.id)
        batch, started_ns = len(job.frames), action.started_ns
        execute_ms = (action.finished_ns - started_ns) / NS_PER_MS
        for row, (frame, outcome) in enumerate(zip(job.frames, action.outcomes, strict=True)):
            self._end_frame(
                frame,
                outcome,
                queue_ms=(started_ns - frame.arrival_ns) / NS_PER_MS,
                batch=batch,
                execute_ms=execute_ms,
                outputs=outputs.row(row, batch),
                version=outputs.version,
                small=job.small,
            )
        self._arena.finish(job.id)

    def _end_frame(
        self,
        frame: Frame,
        outcome: Outcome,
        *,
        queue_ms: float,
        batch: int,
        reason: str = "",
        execute_ms: float = 0.0,
        outputs: dict[str, NDArray[Any]] | None = None,
        version: str = "",
        small: Category | None = None,
    ) -> None:
        record = self.streams[frame.stream_id]
        ticket = self.tickets.pop((frame.stream_id, frame.seq))
        latency_ms = round(queue_ms + execute_ms, 6)  # whole nanoseconds
        record.outcomes[outcome] += 1
        if outcome in _ANSWERED and (record.worst_latency_ms or 0.0) < latency_ms:
            record.worst_latency_ms = latency_ms
        result = FrameResult(
            frame.stream_id,
            frame.seq,
            outcome,
            reason,
            latency_ms,
            record.spec.deadline_ns / NS_PER_MS,
            batch,
            queue_ms,
            execute_ms,
            small is not None,
            (small or record.category).shape,
            outputs,
            frame.demoted,
            ticket.timestamp_ms,
            version,
        )
        record.ring.add(result)
        if ticket.end(result):
            self._telling.tell_soon(ticket)

    def _note_penalty(self, action: PenaltyChanged, _now_ns: int) -> None:
        penalty = self._penalties.setdefault(action.category, Penalty())
        penalty.ns, penalty.shape = action.penalty_ns, action.shape

    def give_up(self) -> None:
        """The engine has failed: nobody will ever end the frames that wait. Those who wait for them are told."""
        for ticket in self.tickets.values():
            if ticket.end(EngineFailed("The engine failed before the frame ended.")):
                self._telling.tell_soon(ticket)
        self.tickets.clear()

    def _end_stream(self, action: StreamEnded, _now_ns: int) -> None:
        record = self.streams.pop(action.stream_id)
        self._promised.remove(record)
        record.state = action.reason
        if record.spec.internal:
            return
        self.ended_streams[record.close_reason or action.reason] += 1
        self._ended[record.stream_id] = record
        while len(self._ended) > self._closed_streams_kept:
            self._ended.popitem(last=False)[1].ring.forget()
        record.ring.wake()
        record.over.set()
