"""Whose turn it is at the device: jobs, of which the engine sends one ahead of the end of another, or one warm-up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CallTurns:
    """First come, first served; jobs that come one after the other go side by side, for it is Triton that orders them.

    A warm-up that the engine does not know of (`gateway.runtime.warm_ups`) is alone.
    """

    def __init__(self) -> None:
        self._jobs = 0
        self._alone = False
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    def take_now(self, *, alone: bool = False) -> bool:
        """Take a turn if that needs no waiting; return whether it was taken. Then `leave` has to be called."""
        if self._waiting or not self._free(alone=alone):
            return False
        self._enter(alone=alone)
        return True

    def leave(self, *, alone: bool = False) -> None:
        """Give up a turn; whoever waited for that has his."""
        if alone:
            self._alone = False
        else:
            self._jobs -= 1
        self._let_in()

    @asynccontextmanager
    async def take(self, *, alone: bool = False) -> AsyncIterator[None]:
        """Wait for a turn, and have it within."""
        if not self.take_now(alone=alone):
            await self._wait(alone=alone)
        try:
            yield
        finally:
            self.leave(alone=alone)

    async def _wait(self, *, alone: bool) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((alone, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._let_in()  # others may have waited behind it
            else:
                self.leave(alone=alone)  # it was given the turn at that moment
            raise

    def _free(self, *, alone: bool) -> bool:
        return not self._alone and not (alone and self._jobs)

    def _enter(self, *, alone: bool) -> None:
        if alone:
            self._alone = True
        else:
            self._jobs += 1

    def _let_in(self) -> None:
        while self._waiting:
            alone, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._free(alone=alone):
                    return
                self._enter(alone=alone)
                turn.set_result(None)
            self._waiting.popleft()
