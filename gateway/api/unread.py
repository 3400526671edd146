"""Outputs that wait for clients of WebSockets: bounded together, at the cost of whoever reads slowest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.runtime.kept import size_of
from gateway.runtime.results import FrameResult


class Share:
    """What waits for one client.

    Args:
        cut_off: Ends it; called at most once, and everything is released before.
    """

    def __init__(self, cut_off: Callable[[], None]) -> None:
        self.cut_off = cut_off
        self.bytes = 0
        self.since = 0.0


class Unread:
    """All that waits.

    A client is slow in the order in which the clients last took something. So one that takes what it gets is never
    cut off for another.

    Args:
        limit_bytes: Of all clients together.

    Attributes:
        bytes: What waits now.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.bytes = 0
        self._limit_bytes = limit_bytes
        self._waiting: set[Share] = set()

    def hold(self, share: Share, result: FrameResult) -> int:
        """Let the outputs of `result` wait; return their size, which is to be released."""
        size = size_of(result)
        if size == 0:
            return 0
        if share.bytes == 0:
            share.since = asyncio.get_running_loop().time()
            self._waiting.add(share)
        share.bytes += size
        self.bytes += size
        while self.bytes > self._limit_bytes:
            slowest = min(self._waiting, key=lambda waiting: waiting.since)
            self.forget(slowest)
            slowest.cut_off()
        return size

    def release(self, share: Share, size: int) -> None:
        """The client has taken so much."""
        if share.bytes == 0:  # it was cut off meanwhile
            return
        share.since = asyncio.get_running_loop().time()
        share.bytes -= size
        self.bytes -= size
        if share.bytes == 0:
            self._waiting.discard(share)

    def forget(self, share: Share) -> None:
        """The client is gone."""
        self.bytes -= share.bytes
        share.bytes = 0
        self._waiting.discard(share)
