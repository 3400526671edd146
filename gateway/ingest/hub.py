"""What all ingest processes share on the scheduler's side: the gateway, and who has to hear of a stream's end."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any, Protocol

import orjson

from gateway.api.state import ApiState
from gateway.errors import StreamNotFound
from gateway.ingest import wire
from gateway.ingest.figures import IngestCollector
from gateway.runtime.bodies import Piece
from gateway.runtime.results import StreamRecord


class Link(Protocol):
    """Part of `gateway.ingest.scheduler_link.SchedulerLink`."""

    def say(self, *messages: Piece) -> None:
        """Send these."""


class Hub:
    """See the module's docstring.

    Args:
        state: Of the scheduler's application.
        collector: Where figures are shown.

    Attributes:
        links: To the processes that are connected.
    """

    def __init__(self, state: ApiState, collector: IngestCollector) -> None:
        self.state = state
        self.gateway = state.gateway
        self.handover = collector.handover
        self.links: set[Link] = set()
        self._watched: dict[str, asyncio.Task[None]] = {}

    def facts(self, stream_id: str) -> bytes:
        """Return what an ingest process has to know of a stream, pickled; nothing if there is none.

        Whoever asks hears of its end.
        """
        try:
            record = self.gateway.stream(stream_id)
        except StreamNotFound:
            return b""
        if not record.ended and stream_id not in self._watched:
            self._watched[stream_id] = asyncio.create_task(self._watch(record))
        facts: dict[str, Any] = {
            "spec": record.spec,
            "frame_bytes": record.frame_bytes,
            "state": record.state,
            "close_reason": record.close_reason,
            "accepted": record.accepted,
        }
        return pickle.dumps(facts, pickle.HIGHEST_PROTOCOL)

    async def _watch(self, record: StreamRecord) -> None:
        await record.over.wait()
        del self._watched[record.stream_id]
        said = {"stream_id": record.stream_id, "state": record.state, "close_reason": record.close_reason}
        self.tell(wire.message(bytes((wire.OVER,)), orjson.dumps(said)))

    def tell(self, message: bytes) -> None:
        """Say something to all of them."""
        for link in self.links:
            link.say(message)

    def close(self) -> None:
        """Watch no stream any more."""
        for task in self._watched.values():
            task.cancel()
        self._watched.clear()
