"""The application of an ingest process.

::

    uvicorn ─┬─ frames, WebSockets ─> CountAnswers ─> LastHandler ─> HotSocket ─> HotPost ─> RemoteGateway
             └─ everything else ────> LastHandler ─> Proxy ─> the scheduler's application
"""

from __future__ import annotations

import re
from types import SimpleNamespace

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.access import CountAnswers
from gateway.api.problems import LastHandler
from gateway.api.state import ApiState
from gateway.api.streams import STREAM_ID
from gateway.ingest.hot import HotPost, HotSocket
from gateway.ingest.proxy import Proxy
from gateway.ingest.remote import RemoteGateway

_HOT = re.compile("/v1/streams/([^/]+)/(frames|ws)")


class IngestApp:
    """See the module's docstring.

    Attributes:
        state: As of a FastAPI application, for `gateway.api.server.Server`.
    """

    def __init__(self, state: ApiState, remote: RemoteGateway, proxy: Proxy) -> None:
        self.state = SimpleNamespace(api=state)
        self._api = state
        self._remote = remote
        self._proxy: ASGIApp = LastHandler(proxy)
        self._hot: ASGIApp = CountAnswers(
            LastHandler(HotSocket(HotPost(proxy, state), state)),
            state,
            HotPost.pattern,
        )
        state.outermost = self  # not `CountAnswers`: streams are learnt first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        found = _HOT.fullmatch(scope["path"])
        if found is None and scope["type"] != "websocket":
            await self._proxy(scope, receive, send)
            return
        if found is not None and not self._api.draining.is_set():
            await self._learn(found[1], found[2], scope)
        await self._hot(scope, receive, send)

    def answers(self, scope: Scope) -> bool:
        """Whether a call may come here at once: all may, as there is nothing before this."""
        return True

    async def _learn(self, stream_id: str, kind: str, scope: Scope) -> None:
        """Know the stream of a call before the call is looked at; how it stands is asked anew for each WebSocket."""
        anew = scope["type"] == "websocket"
        if STREAM_ID.fullmatch(stream_id) is not None and (anew or (kind == "frames" and scope["method"] == "POST")):
            await self._remote.learn(stream_id, anew=anew)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._api.start_gateway()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._api.stop_gateway()
        await send({"type": "lifespan.shutdown.complete"})
