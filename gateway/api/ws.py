"""The WebSocket of a stream, ``/v1/streams/{stream_id}/ws``: who gets one, and who is refused before the upgrade.

Several clients may send frames of one stream: each gets the results of its own. `gateway.api.ws_exchange` is what comes
after the handshake.
"""

from __future__ import annotations

import re
from typing import ClassVar

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.problems import problem_response
from gateway.api.state import ApiState
from gateway.api.streams import find_stream
from gateway.api.ws_exchange import Exchange
from gateway.api.ws_socket import socket_of
from gateway.errors import FramegateError, NotFound, UpgradeRequired
from gateway.runtime.results import StreamRecord
from gateway.runtime.room import body_bytes


class TakeFrames:
    """ASGI middleware that serves the WebSocket of a stream, refuses every other, and passes on HTTP calls."""

    path = "/v1/streams/{stream_id}/ws"
    exchange: ClassVar[type[Exchange]] = Exchange
    _pattern = re.compile("/v1/streams/([^/]+)/ws")

    def __init__(self, app: ASGIApp, state: ApiState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the connection, if it is ours."""
        found = self._pattern.fullmatch(scope["path"]) if "path" in scope else None
        if scope["type"] != "websocket" and found is None:
            await self._app(scope, receive, send)
            return
        scope["endpoint"] = self  # for `CountAnswers`, as a router would
        try:
            if found is None:
                del scope["endpoint"]
                raise NotFound("There is no WebSocket here; see docs/api.md.")
            if scope["type"] == "http":
                raise UpgradeRequired("This address answers WebSocket handshakes only.")
            record = self._open_stream(found[1])
        except UpgradeRequired as error:
            await problem_response(error, {"Upgrade": "websocket"})(scope, receive, send)
        except FramegateError as error:
            await problem_response(error)(scope, receive, send)
        else:
            await self._serve(record, scope, receive, send)

    def _open_stream(self, stream_id: str) -> StreamRecord:
        """Return a stream that takes frames. Raises what a call with its next frame would."""
        self._state.check_not_stopping()
        record = find_stream(self._state, stream_id)
        record.check_frames(record.frame_bytes, 1)
        return record

    async def _serve(self, record: StreamRecord, scope: Scope, receive: Receive, send: Send) -> None:
        limits = self._state.settings.limits
        socket = socket_of(scope)
        most = body_bytes(record)
        with self._state.uploads.place(record.stream_id, most, most) as place:
            if socket is not None:
                limit_bytes = min(limits.max_body_bytes, limits.max_frames_per_post * record.frame_bytes)
                socket.limit_messages(limit_bytes, place)
            await receive()  # websocket.connect
            await send({"type": "websocket.accept"})
            self._state.metrics.sockets.inc()
            try:
                await self.exchange(self._state, record, receive, send, socket).serve()
            finally:
                self._state.metrics.sockets.dec()
