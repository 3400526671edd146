"""When waits are over: one timer for all, as one for each would cost more than most of what is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from itertools import takewhile
from typing import Generic, TypeVar

Wait = TypeVar("Wait", bound=Hashable)


class Ends(Generic[Wait]):
    """Says of each wait when it has lasted as long as it may.

    All may last equally long, so they are over in the order in which they began. The timer stands for the one that was
    the oldest when it was set, and looks at its successors when it goes off.

    Args:
        over: Called with the wait, once, from the event loop, unless it has ended by then.
    """

    def __init__(self, over: Callable[[Wait], object]) -> None:
        self._over = over
        #: When each is over, on the loop's clock, oldest first.
        self._waits: dict[Wait, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, wait: Wait, most_s: float) -> None:
        """It begins now and may last for `most_s`."""
        self._waits[wait] = asyncio.get_running_loop().time() + most_s
        if self._timer is None:
            self._arm()

    def end(self, wait: Wait) -> None:
        """It has ended by itself, if it had begun."""
        self._waits.pop(wait, None)

    def end_all(self) -> None:
        """All that have begun are over, now."""
        self._tell(list(self._waits))

    def stop(self) -> None:
        """Nothing is waited for any more."""
        self._waits.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Tell of those whose time is up, and set the timer for the next."""
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        try:
            self._tell([wait for wait, _ in takewhile(lambda item: item[1] <= now_s, self._waits.items())])
        finally:
            self._arm()

    def _tell(self, waits: list[Wait]) -> None:
        for wait in waits:
            if self._waits.pop(wait, None) is not None:  # else one of the others has ended it
                self._over(wait)

    def _arm(self) -> None:
        """Set the timer for the first, whoever is the last to come."""
        first_s = next(iter(self._waits.values()), None)
        if self._timer is None and first_s is not None:
            self._timer = asyncio.get_running_loop().call_at(first_s, self._look)
