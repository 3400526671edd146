"""The calls that an ingest process answers itself: those of `gateway.api` that bring frames."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from gateway.api.frames import PostFrames
from gateway.api.ws import TakeFrames
from gateway.api.ws_exchange import Exchange
from gateway.errors import FramegateError
from gateway.ingest.remote import RemoteGateway, RemoteTicket
from gateway.runtime.bodies import Piece
from gateway.runtime.tickets import FrameTicket


class HotPost(PostFrames):
    """Frames over HTTP."""

    async def _hand_over(self, stream_id: str, body: list[Piece], timestamp_ms: float | None) -> list[int]:
        return await cast("RemoteGateway", self._gateway).hand_over(stream_id, body, timestamp_ms)


class HotExchange(Exchange):
    """Frames over a WebSocket. A message that is refused is answered once, however many frames it has."""

    def _ended(self, message: Any, ticket: FrameTicket) -> None:  # noqa: ANN401 - as the base's
        error = ticket.ended
        tickets = cast("list[RemoteTicket]", message.tickets)
        if not isinstance(error, FramegateError) or (tickets and not tickets[0].refused):
            super()._ended(message, ticket)
            return
        self._waiting -= 1
        if tickets:
            message.tickets, message.left = [], 1
            self._answer(message, error)
        elif self._ending is not None:
            self._changed.set()  # it may have been the last that was waited for


class HotSocket(TakeFrames):
    """WebSockets."""

    exchange: ClassVar[type[Exchange]] = HotExchange
