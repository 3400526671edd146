"""Counts answers by route. Route *templates*, never paths: a caller must not be able to make series."""

from __future__ import annotations

import re

from prometheus_client import Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api.caller import caller_of
from gateway.api.state import ApiState

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "unmatched"
#: In place of a status, when the client went away before there was an answer. (nginx uses the same number.)
CLIENT_GONE = 499
#: A WebSocket's handshake was accepted.
SWITCHING = 101


class CountAnswers:
    """ASGI middleware around everything else; `frames` says which calls are answered without FastAPI."""

    def __init__(self, app: ASGIApp, state: ApiState, frames: re.Pattern[str]) -> None:
        self._app = app
        self._frames = frames
        metrics = state.metrics
        state.outermost = self
        self._responses = metrics.responses
        self._children: dict[tuple[str, str, int], Counter] = {}

    def answers(self, scope: Scope) -> bool:
        """Whether a call is answered before FastAPI sees it, so that it may come here at once."""
        return scope["method"] == "POST" and self._frames.fullmatch(scope["path"]) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application and count its answer."""
        if scope["type"] == "websocket":
            await self._count_handshake(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = caller_of(scope)
        if caller is not None:  # it knows, and nothing need stand between
            await self._app(scope, receive, send)
            self._count_call(scope, caller.status or CLIENT_GONE)
            return
        status = CLIENT_GONE

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        await self._app(scope, receive, watched)
        self._count_call(scope, status)

    async def _count_handshake(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the answer to a WebSocket's handshake, when it is given: the rest may take days."""

        async def watched(message: Message) -> None:
            if message["type"] == "websocket.accept":
                self._count("GET", scope, SWITCHING)
            elif message["type"] == "websocket.http.response.start":
                self._count("GET", scope, message["status"])
            await send(message)

        await self._app(scope, receive, watched)

    def _count_call(self, scope: Scope, status: int) -> None:
        self._count(scope["method"] if scope["method"] in METHODS else "other", scope, status)

    def _count(self, method: str, scope: Scope, status: int) -> None:
        key = (method, _route(scope), status)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._responses.labels(*map(str, key))
        child.inc()


def _route(scope: Scope) -> str:
    """Return the template of the route that the router found; the bare endpoint of frames carries its own."""
    route = scope.get("route") or scope.get("endpoint")
    path = getattr(route, "path", None)
    return path if isinstance(path, str) else UNMATCHED
