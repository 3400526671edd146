"""Frames in, results out: the hot path of the HTTP side."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request, Response
from starlette.types import Receive, Scope, Send

from gateway.api.answers import ResultsPage
from gateway.api.binary_results import BINARY_CONTENT, BINARY_HEADERS, BinaryAnswer, wants_binary
from gateway.api.caller import caller_of
from gateway.api.limits import refuse
from gateway.api.post import PostCalls
from gateway.api.problems import describe
from gateway.api.requests import ResultsQuery
from gateway.api.results import PagedAnswer, dump, error_of, frame_result, is_large
from gateway.api.state import State, while_wanted
from gateway.api.streams import find_stream
from gateway.api.uploads import check_announced
from gateway.errors import (
    BestEffortFull,
    BodyTooLarge,
    FramegateError,
    FrameSizeMismatch,
    FrameSurplus,
    StreamClosed,
    StreamFinished,
    StreamNotFound,
    UploadsFull,
    UploadTimeout,
    ValidationFailed,
)
from gateway.runtime.bodies import Piece
from gateway.runtime.results import StreamRecord
from gateway.runtime.room import body_bytes
from gateway.runtime.tickets import FrameTicket, all_ended, results_of

router = APIRouter(prefix="/v1/streams", tags=["frames"])

_JSON = [(b"content-type", b"application/json")]
#: The sender's own time of the frames; it comes back with their results, and nothing depends on it.
TIMESTAMP_HEADER = b"framegate-timestamp-ms"
_WAIT = {"true": True, "1": True, "false": False, "0": False}


class PostFrames(PostCalls):
    """``POST /v1/streams/{stream_id}/frames``.

    The body is one or more raw frames back to back, of any content type.

    It waits until all of them have ended, unless ``?wait=false``. If the client goes away while it waits,
    its frames are cancelled; one that has been sent to Triton already runs to its end.
    """

    path = "/v1/streams/{stream_id}/frames"
    pattern = re.compile("/v1/streams/([^/]+)/frames")

    async def _post(self, found: re.Match[str], scope: Scope, receive: Receive, send: Send) -> None:
        stream_id, refused = found[1], self._state.metrics.refused
        try:
            wait = _parse_wait(scope["query_string"])
            timestamp_ms, binary = _parse_headers(scope)
            body = await self._read(stream_id, scope, receive)
        except FramegateError as error:
            refused[error.code] += 1
            limit_bytes = self._limits.max_body_bytes
            if not _ends_soon(scope, limit_bytes):
                await refuse(error, limit_bytes, receive, send)
                return
            raise
        if body is None:
            refused["client_gone"] += 1
            return
        if not wait:
            seqs = await self._hand_over(stream_id, body, timestamp_ms)
            accepted = {"seqs": seqs, "results_url": f"/v1/streams/{stream_id}/results"}
            await _answer(scope, send, 202, accepted)
            return
        tickets = self._gateway.submit(stream_id, body, timestamp_ms)  # counts what it refuses
        del body  # the frames are in the arena: a call that waits holds nothing
        if await self._until_ended(tickets, scope, receive):
            results = results_of(tickets)
            if (failure := error_of(results)) is not None:
                raise failure
            if binary:
                await BinaryAnswer(results, {})(scope, receive, send)
            elif is_large(results) and scope["http_version"] != "1.0":  # which knows no answer of unknown length
                await PagedAnswer(results, {})(scope, receive, send)
            else:
                await _answer(scope, send, 200, {"results": [frame_result(result) for result in results]})

    async def _hand_over(self, stream_id: str, body: list[Piece], timestamp_ms: float | None) -> list[int]:
        """Submit frames for which nobody waits; return their numbers."""
        return [ticket.seq for ticket in self._gateway.submit(stream_id, body, timestamp_ms)]

    async def _read(self, stream_id: str, scope: Scope, receive: Receive) -> list[Piece] | None:
        """Return the body as it came; what can be refused without it is refused before it is read."""
        self._state.check_not_stopping()
        record = find_stream(self._state, stream_id)
        limits = self._limits
        limit_bytes = min(limits.max_body_bytes, limits.max_frames_per_post * record.frame_bytes)
        announced = check_announced(scope, limit_bytes)
        if announced is not None:
            _check_size(announced, record)
        uploads, caller = self._state.uploads, caller_of(scope)
        if caller is not None and caller.complete:  # so that it holds its place for no time
            promised = 0 < caller.size <= body_bytes(record) and stream_id not in uploads.placed
            return uploads.whole(caller, limit_bytes, promised=promised)
        with uploads.place(stream_id, announced or limit_bytes, body_bytes(record)) as place:
            return await uploads.read_pieces(scope, receive, limit_bytes, promised=place > 0)

    async def _until_ended(self, tickets: Sequence[FrameTicket], scope: Scope, receive: Receive) -> bool:
        """Wait for all results; False if the client went away first, and its frames are cancelled."""
        caller = caller_of(scope)
        if caller is None:
            return await self._until_ended_or_gone(tickets, receive)
        caller.when_gone(partial(self._cancel, tickets))
        try:
            await all_ended(tickets)
        except asyncio.CancelledError:
            self._cancel(tickets)
            raise
        finally:
            caller.when_gone(None)
        return not caller.disconnected

    async def _until_ended_or_gone(self, tickets: Sequence[FrameTicket], receive: Receive) -> bool:
        """Do the same where only ASGI says that the client went away."""
        watcher = asyncio.ensure_future(self._cancel_when_gone(tickets, receive))
        try:
            await all_ended(tickets)
        except asyncio.CancelledError:
            self._cancel(tickets)
            raise
        finally:
            watcher.cancel()
        return not watcher.done()

    async def _cancel_when_gone(self, tickets: Sequence[FrameTicket], receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._cancel(tickets)

    def _cancel(self, tickets: Sequence[FrameTicket]) -> None:
        for ticket in tickets:
            if ticket.ended is None:
                self._gateway.cancel(ticket)


def _check_size(size: int, record: StreamRecord) -> None:
    if size == 0 or size % record.frame_bytes:
        raise FrameSizeMismatch(
            f"A frame of this stream has {record.frame_bytes} bytes; the body has {size}, not a multiple of it.",
            expected_bytes=record.frame_bytes,
            received_bytes=size,
        )


def _ends_soon(scope: Scope, limit_bytes: int) -> bool:
    """Tell whether what is left of an unread body is bounded, so that the connection can go on after it."""
    headers = dict(scope["headers"])  # the server has refused those that come twice, and both together
    return b"transfer-encoding" not in headers and int(headers.get(b"content-length", 0)) <= limit_bytes


def _parse_wait(query_string: bytes) -> bool:
    if not query_string:
        return True
    wait = True
    for name, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
        if name != "wait" or value not in _WAIT:
            raise ValidationFailed("The only query parameter is `wait`, true or false.", errors=[])
        wait = _WAIT[value]
    return wait


def _parse_headers(scope: Scope) -> tuple[float | None, bool]:
    """Return the sender's own time of the frames, and whether results are to be binary."""
    timestamp_ms, binary = None, False
    for name, value in scope["headers"]:
        if name == TIMESTAMP_HEADER and timestamp_ms is None:
            timestamp_ms = _parse_timestamp(value)
        elif name == b"accept":
            binary = binary or wants_binary(value)
    return timestamp_ms, binary


def _parse_timestamp(value: bytes) -> float:
    try:
        timestamp_ms = float(value)
    except ValueError:
        timestamp_ms = math.nan
    if not math.isfinite(timestamp_ms):
        raise ValidationFailed("The header Framegate-Timestamp-Ms is not a number.", errors=[])
    return timestamp_ms


async def _answer(scope: Scope, send: Send, status: int, content: object) -> None:
    body = dump(content)
    headers = [*_JSON, (b"content-length", str(len(body)).encode())]
    if (caller := caller_of(scope)) is not None:
        await caller.answer(status, headers, body)
        return
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@router.get(
    "/{stream_id}/results",
    responses={
        200: {"model": ResultsPage, "content": BINARY_CONTENT, "headers": BINARY_HEADERS},
        **describe(StreamNotFound, ValidationFailed),
    },
)
async def get_results(
    stream_id: str, query: Annotated[ResultsQuery, Query()], request: Request, state: State
) -> Response:
    """Wait for frames that ended with a `seq` above `after`. Only the newest results are kept."""
    find_stream(state, stream_id)
    timeout_ms = min(query.timeout_ms, state.settings.limits.long_poll_max_ms)
    work = state.gateway.results(stream_id, query.after, timeout_ms)
    results = await while_wanted(work, request.receive, state.draining) or []
    rest = {
        "next_after": max((result.seq for result in results), default=query.after),
        "state": find_stream(state, stream_id).state,
    }
    if any(wants_binary(value.encode("latin-1")) for value in request.headers.getlist("accept")):
        return BinaryAnswer(results, rest)
    if is_large(results) and request.scope["http_version"] != "1.0":
        return PagedAnswer(results, rest)
    page = {"results": [frame_result(result) for result in results], **rest}
    return Response(dump(page), media_type="application/json")


#: What `PostFrames` raises, for the OpenAPI document.
ERRORS = (
    FrameSizeMismatch,
    BodyTooLarge,
    UploadTimeout,
    UploadsFull,
    StreamNotFound,
    StreamClosed,
    StreamFinished,
    FrameSurplus,
    BestEffortFull,
    ValidationFailed,
)
