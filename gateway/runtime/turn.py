"""Whose turn it is: like a lock of asyncio's, but taken at once, without a task, where it is free."""

from __future__ import annotations

import asyncio
from collections import deque


class Turn:
    """One at a time; who waits comes in the order of asking. Leaving passes it on to whoever has waited longest."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Take the turn if nobody has it; return whether that is so. Then `leave` has to be called."""
        if self._taken:
            return False
        self._taken = True
        return True

    def leave(self) -> None:
        """Give it up."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)  # it stays taken
                return
        self._taken = False

    async def __aenter__(self) -> None:
        if self.take_now():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # it was given the turn, and is cancelled all the same
                self.leave()
            raise

    async def __aexit__(self, *_error: object) -> None:
        self.leave()
