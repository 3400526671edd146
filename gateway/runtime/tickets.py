"""Accepted frames that have not ended, and how whoever waits for one is told of its end.

A future for each frame would cost more than making its result: few who wait need one. So a ticket has a watcher, which
is told from the event loop, and makes a future only for those who ask for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from gateway.errors import FramegateError
from gateway.runtime.results import FrameResult


class FrameTicket:
    """One accepted frame.

    Args:
        nobody_waits: Told when `result` is cancelled before the frame has ended.

    Attributes:
        ended: Its result, or why there will be none; None until then.
        timestamp_ms: The sender's own time of it, if there is one.
    """

    __slots__ = ("_future", "_nobody_waits", "_watcher", "ended", "seq", "stream_id", "timestamp_ms")

    def __init__(
        self, stream_id: str, seq: int, timestamp_ms: float | None, nobody_waits: Callable[[FrameTicket], None]
    ) -> None:
        self.stream_id = stream_id
        self.seq = seq
        self.timestamp_ms = timestamp_ms
        self.ended: FrameResult | FramegateError | None = None
        self._nobody_waits = nobody_waits
        self._watcher: Callable[[FrameTicket], None] | None = None
        self._future: asyncio.Future[FrameResult] | None = None

    @property
    def result(self) -> asyncio.Future[FrameResult]:
        """The result, for those who await it. Cancelling it cancels the frame."""
        future = self._future
        if future is None:
            future = self._future = asyncio.get_running_loop().create_future()
            if self.ended is None:
                future.add_done_callback(self._seen)
            else:
                self._fill(future, self.ended)
        return future

    def watch(self, watcher: Callable[[FrameTicket], None]) -> None:
        """Call `watcher` once the frame has ended: from the event loop, never from here. There is one watcher."""
        if self.ended is None:
            self._watcher = watcher
        else:
            asyncio.get_running_loop().call_soon(watcher, self)

    def end(self, outcome: FrameResult | FramegateError) -> bool:
        """The frame has ended so. Return whether `tell` is to be called soon."""
        self.ended = outcome
        if self._future is not None and not self._future.done():
            self._fill(self._future, outcome)
        return self._watcher is not None

    def tell(self) -> None:
        """Tell the watcher."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher(self)

    def _seen(self, future: asyncio.Future[FrameResult]) -> None:
        if future.cancelled() and self.ended is None:
            self._nobody_waits(self)

    @staticmethod
    def _fill(future: asyncio.Future[FrameResult], outcome: FrameResult | FramegateError) -> None:
        if isinstance(outcome, FrameResult):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
            future.exception()  # seen: there may be nobody who looks at it


class Telling:
    """Tells the watchers of frames that have ended: all that end together in one turn of the event loop, in order."""

    def __init__(self) -> None:
        self._untold: deque[FrameTicket] = deque()

    def tell_soon(self, ticket: FrameTicket) -> None:
        """The ticket's watcher is to be told."""
        if not self._untold:
            asyncio.get_running_loop().call_soon(self._tell)
        self._untold.append(ticket)

    def _tell(self) -> None:
        """Tell all. One whose watcher raises does not hold up the others."""
        untold = self._untold
        try:
            for _ in range(len(untold)):
                untold.popleft().tell()
        finally:
            if untold:
                asyncio.get_running_loop().call_soon(self._tell)


async def all_ended(tickets: Sequence[FrameTicket]) -> None:
    """Return when all have ended, however. Cancelled, it leaves them alone."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(tickets)

    def ended(_ticket: FrameTicket) -> None:
        nonlocal left
        left -= 1
        if left == 0 and not waiter.done():
            waiter.set_result(None)

    for ticket in tickets:
        ticket.watch(ended)
    await waiter


def results_of(tickets: Sequence[FrameTicket]) -> list[FrameResult]:
    """Return the results of frames that have ended. Raises why there are none."""
    results = []
    for ticket in tickets:
        if not isinstance(ticket.ended, FrameResult):
            raise ticket.ended or RuntimeError(f"frame {ticket.seq} of {ticket.stream_id} has not ended")
        results.append(ticket.ended)
    return results
