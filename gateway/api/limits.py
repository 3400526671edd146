"""Body limits: nothing that a client sends is kept beyond its route's limit.

Every call but one takes a small body or none. `BodyLimit` reads it before the route runs, so that an
announced length over the limit is refused before a byte is read, an unannounced one as soon as it passes
the limit, and a client that breaks off in the middle is simply forgotten. The exception is the frames
call, which stands before it: it calls `read_body` itself, with a limit of its own.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api.problems import problem_response
from gateway.errors import BodyTooLarge

#: After a refusal the connection is closed. Closing it while the client still sends would reset it, and
#: the client might lose the answer; so what comes is read and thrown away for this long, and up to this
#: much: loopback brings 2 GB/s, and reading it would take the time of others.
LINGER_S = 1.0
LINGER_BYTES = 32 << 20


def announced_length(scope: Scope) -> int | None:
    """Return the request's Content-Length, None if there is none.

    The server has refused malformed, negative and repeated ones already.
    """
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
    return None


def has_body(scope: Scope) -> bool:
    """Tell whether a body follows the headers."""
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


def check_announced(scope: Scope, limit_bytes: int) -> int | None:
    """Return the announced length.

    Raises:
        BodyTooLarge: It is over the limit.
    """
    length = announced_length(scope)
    if length is not None and length > limit_bytes:
        raise BodyTooLarge(
            f"The body is announced with {length} bytes; the limit here is {limit_bytes}.", limit_bytes=limit_bytes
        )
    return length


async def read_body(scope: Scope, receive: Receive, limit_bytes: int) -> bytes | None:
    """Read the whole body; None if the client went away before its end.

    Raises:
        BodyTooLarge: It is longer than the limit, announced or not.
    """
    check_announced(scope, limit_bytes)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit_bytes:
            raise BodyTooLarge(
                f"The body is longer than the limit here, which is {limit_bytes} bytes.", limit_bytes=limit_bytes
            )
        if not message.get("more_body", False):
            # Of a short body this is the only chunk, and no copy is made.
            chunks.append(chunk)
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.append(chunk)


async def refuse_body(error: BodyTooLarge, receive: Receive, send: Send) -> None:
    """Answer with `error`, discard what still comes, within bounds, and close the connection."""
    response = problem_response(error, {"Connection": "close"})
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    left_bytes = LINGER_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while left_bytes > 0 and (message := await receive()).get("more_body", False):
                left_bytes -= len(message["body"])
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class BodyLimit:
    """ASGI middleware: the small limit, on every path, known or not."""

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, then run the application on it."""
        if scope["type"] != "http" or not has_body(scope):
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, self._limit_bytes)
        except BodyTooLarge as error:
            await refuse_body(error, receive, send)
            return
        if body is not None:
            await self._app(scope, replay(body, receive), send)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives `body` once, then what `receive` gives."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
