"""Results as server-sent events, ``GET /v1/streams/{stream_id}/events``: what an ``EventSource`` of a browser reads.

Nothing is queued for a client: it follows the stream's ring of results at its own pace. One that is too slow for it
finds a gap, which it is told of, and holds nobody up; one that takes nothing is disconnected by its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.api.problems import describe
from gateway.api.requests import EventsQuery
from gateway.api.results import dump, frame_pieces, frame_result
from gateway.api.state import ApiState, State
from gateway.api.streams import find_stream
from gateway.errors import StreamNotFound, ValidationFailed
from gateway.runtime.results import StreamRecord

router = APIRouter(prefix="/v1/streams", tags=["frames"])

#: An `EventSource` whose connection broke comes back after so long.
RETRY_MS = 1_000
_MAX_SEQ = 2**63 - 1
_CONTENT = {"text/event-stream": {"schema": {"type": "string"}}}


class EventStream(StreamingResponse):
    """The results of `record` after the frame `after`, written as the client takes them, until it goes away."""

    media_type = "text/event-stream"

    def __init__(self, record: StreamRecord, after: int, state: ApiState) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_events(record, after, state), headers=headers)
        self._record = record
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the call."""
        waking = asyncio.create_task(self._wake_when_draining())
        self._state.metrics.event_streams.inc()
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._state.metrics.event_streams.dec()
            waking.cancel()

    async def _wake_when_draining(self) -> None:
        await self._state.draining.wait()
        self._record.ring.wake()


@router.get(
    "/{stream_id}/events",
    status_code=200,
    response_class=EventStream,
    responses={
        200: {"description": "Events, with a `FrameOutcome` each, until the stream is over.", "content": _CONTENT},
        204: {"description": "The stream is over, and nothing is left: do not come back."},
        **describe(StreamNotFound, ValidationFailed),
    },
)
async def get_events(
    stream_id: str,
    query: Annotated[EventsQuery, Query()],
    request: Request,
    state: State,
    last_event_id: Annotated[str | None, Header(description="Sent by an `EventSource` that comes back.")] = None,
) -> Response:
    """Follow the results of a stream, in order of `seq`, as server-sent events.

    Each event's id is the frame's `seq` and its data the frame's result. `event: gap` says that results were not kept
    for so long, `event: end` that nothing more will come. A comment comes while there is nothing to say.
    """
    record = find_stream(state, stream_id)
    after = query.after if last_event_id is None else _parse_id(last_event_id)
    if record.ended and record.ring.following(after) is None:
        return Response(status_code=204)
    return EventStream(record, after, state)


def _parse_id(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:20]) > _MAX_SEQ:
        raise ValidationFailed("Last-Event-ID is not the `seq` of a frame.", errors=[])
    return int(text)


async def _events(record: StreamRecord, after: int, state: ApiState) -> AsyncIterator[bytes]:
    yield b"retry: %d\n\n" % RETRY_MS
    first = True
    while True:
        result = record.ring.following(after)
        if result is not None:
            missed = result.seq - after - 1
            if missed and not (first and after < 0):  # who asks for all that is kept knows of no gap
                reason = "not_kept" if first else "slow_reader"
                yield _event("gap", {"from": after + 1, "to": result.seq - 1, "reason": reason})
            if missed and not first:
                state.metrics.undelivered.labels("slow_reader").inc(missed)
            first, after = False, result.seq
            yield b"id: %d\ndata: " % after
            for piece in frame_pieces(frame_result(result)):
                yield piece
                await asyncio.sleep(0)  # others get their turn
            yield b"\n\n"
        elif record.ended or state.draining.is_set():
            yield _event("end", {"reason": record.state if record.ended else "stopping"})
            return
        elif not await record.ring.wait(state.settings.server.heartbeat_s):
            yield b":\n\n"  # a comment: we are still here


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dump(data))
