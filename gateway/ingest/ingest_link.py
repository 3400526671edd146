"""An ingest process's end of the connection to the scheduler. Without a scheduler there is nothing to do: it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from gateway.ingest import wire
from gateway.ingest.remote import RemoteGateway

_ORPHANED_S, _POLL_S = 0.5, 0.01


class IngestLink(asyncio.Protocol):
    """See the module's docstring.

    Args:
        gateway: Told what the scheduler says.
        drain: Called when nothing new is to be taken.
        messages: May hold the beginning of one already.
        folder: Of the scheduler's Unix socket.
    """

    def __init__(
        self, gateway: RemoteGateway, drain: Callable[[], None], messages: wire.Messages, folder: Path
    ) -> None:
        self._parent = os.getppid()
        self._folder = folder
        self._gateway = gateway
        self._messages = messages
        self._handlers: dict[int, Callable[[memoryview], None]] = {
            wire.TAKEN: gateway.on_taken,
            wire.RESULT: gateway.on_result,
            wire.REFUSED: gateway.on_refused,
            wire.FAILED: gateway.on_failed,
            wire.STREAM: gateway.on_stream,
            wire.OVER: gateway.on_over,
            wire.DRAIN: lambda _message: drain(),
            wire.STOPPED: gateway.on_stopped,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The scheduler can be talked to."""
        self._gateway.connect(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        """Do what the messages say."""
        for message in self._messages.feed(data):
            self.take(message)

    def take(self, message: memoryview) -> None:
        """Do what one message says."""
        self._handlers[message[0]](message)

    def connection_lost(self, exc: Exception | None) -> None:
        """The scheduler is gone, however it went. Nobody can be answered any more."""
        self._clean_up()
        os._exit(1)

    def _clean_up(self) -> None:
        """Remove what a scheduler that was killed has left: the folder of its socket. One that lives needs it."""
        end = time.monotonic() + _ORPHANED_S  # its sockets are closed a little before it has no children any more
        while os.getppid() == self._parent:
            if time.monotonic() > end:
                return
            time.sleep(_POLL_S)
        shutil.rmtree(self._folder, ignore_errors=True)
