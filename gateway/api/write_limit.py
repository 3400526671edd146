"""A bound on how long a client may take nothing of what is written to it."""

from __future__ import annotations

import asyncio
from typing import ClassVar


class WriteLimit(asyncio.Protocol):
    """Mixin of a protocol with a `transport`: before the protocol's own class, so that it hears of the transport first.

    A client that is slow is waited for; one that takes nothing at all for `send_timeout_s` is disconnected.
    """

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    send_timeout_s: ClassVar[float]
    _sending: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_sending_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client is slower than the answer: it must take something of it from time to time."""
        super().pause_writing()
        self._await_progress()

    def resume_writing(self) -> None:
        """The client has taken nearly all."""
        self._stop_sending_timer()
        super().resume_writing()

    def _await_progress(self) -> None:
        left_bytes = self.transport.get_write_buffer_size()
        self._sending = self.loop.call_later(self.send_timeout_s, self._check_progress, left_bytes)

    def _check_progress(self, left_bytes: int) -> None:
        if self.transport.get_write_buffer_size() < left_bytes:
            self._await_progress()
        else:
            self.transport.abort()

    def _stop_sending_timer(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
