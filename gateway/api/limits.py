"""Body limits: nothing that a client sends is kept beyond its route's limit.

Every call but one takes a small body or none. `BodyLimit` reads it before the route runs, so that an
announced length over the limit is refused before a byte is read, an unannounced one as soon as it passes
the limit, and a client that breaks off in the middle is simply forgotten. The exception is the frames
call, which stands before it: it reads its body itself, with a limit of its own. Both read through
`gateway.api.uploads`, which bounds all bodies together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api.problems import problem_response
from gateway.api.uploads import Uploads
from gateway.errors import BodyTooLarge, FramegateError, Stopping, UploadsFull, UploadTimeout

#: After a refusal the connection is closed. Closing it while the client still sends would reset it, and a
#: client that reads only after it has written would lose the answer; so what comes is read and thrown away,
#: for as long as it keeps coming, and up to this much above the route's limit: more is no mistake of a client
#: that could be told, and reading it would take the time of others.
LINGER_BYTES = 32 << 20
#: 64 MiB in this time are 7 MB/s.
LINGER_S = 10.0
QUIET_S = 1.0

#: What is answered by `refuse`, as the body is left unread.
UNREAD = (BodyTooLarge, UploadTimeout, UploadsFull, Stopping)


async def refuse(
    error: FramegateError,
    limit_bytes: int,
    receive: Receive,
    send: Send,
    headers: Mapping[str, str] | None = None,
    *,
    path: str = "",
) -> None:
    """Answer with `error`, discard what still comes, within bounds, and close the connection.

    Args:
        error: The answer.
        limit_bytes: The route's limit of a body.
        receive: Of the call.
        send: Of the call.
        headers: Further ones of the answer.
        path: Of the call.
    """
    response = problem_response(error, {**(headers or {}), "Connection": "close"}, path=path)
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    left_bytes = limit_bytes + LINGER_BYTES
    clock = asyncio.get_running_loop().time
    end = clock() + LINGER_S
    with suppress(TimeoutError):
        async with asyncio.timeout(QUIET_S) as quiet:
            while left_bytes > 0 and (message := await receive()).get("more_body", False):
                left_bytes -= len(message["body"])
                quiet.reschedule(min(clock() + QUIET_S, end))
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class BodyLimit:
    """ASGI middleware: the small limit, on every path, known or not."""

    def __init__(self, app: ASGIApp, uploads: Uploads, limit_bytes: int) -> None:
        self._app = app
        self._uploads = uploads
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, then run the application on it."""
        if scope["type"] != "http" or not has_body(scope):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._uploads.read(scope, receive, self._limit_bytes)
        except UNREAD as error:
            await refuse(error, self._limit_bytes, receive, send, path=scope["path"])
            return
        if body is not None:
            await self._app(scope, replay(body, receive), send)


def has_body(scope: Scope) -> bool:
    """Tell whether a body follows the headers."""
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


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
