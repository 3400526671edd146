"""What a WebSocket's transport writes to: memory that all of them use again and again.

A transport that hands over ``bytes`` makes them anew for each piece, and copies into them what it has received. Here it
receives into one buffer of the process, in which a message that has come whole is handed over where it lies, for the
moment of one call; everything else is passed on as bytes. As there is one buffer, it stays in the processor's cache.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from gateway.api.ws_splitter import LARGE_HEAD

#: As much as uvloop reads at once.
RECEIVE_BYTES = 256 << 10
#: So that behind the header of a large message its payload begins at a multiple of 8, and is unmasked in words of that.
_SHIFT = -LARGE_HEAD % 8
_BYTES = bytearray(_SHIFT + RECEIVE_BYTES)
_VIEW = memoryview(_BYTES)[_SHIFT:]


class Receiver(Protocol):
    """A protocol of asyncio's, and one thing more."""

    def connection_lost(self, exc: Exception | None) -> None: ...  # noqa: D102 - asyncio's

    def eof_received(self) -> bool | None: ...  # noqa: D102 - asyncio's

    def pause_writing(self) -> None: ...  # noqa: D102 - asyncio's

    def resume_writing(self) -> None: ...  # noqa: D102 - asyncio's

    def data_received(self, data: bytes) -> None: ...  # noqa: D102 - asyncio's

    def take_whole(self, data: memoryview) -> bool:
        """Take what has come, if that can be done before this returns; return whether it was."""


class Intake(asyncio.BufferedProtocol):
    """One connection's; it takes the place of `receiver` at the transport."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return _VIEW

    def buffer_updated(self, count: int) -> None:
        """Pass on so many bytes."""
        if not self._receiver.take_whole(_VIEW[:count]):
            self._receiver.data_received(bytes(_VIEW[:count]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._receiver.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._receiver.eof_received()

    def pause_writing(self) -> None:
        """Pass it on."""
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._receiver.resume_writing()
