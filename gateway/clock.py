"""Time as the drivers see it: nanoseconds on one monotonic clock, and a way to be called back.

The engine is handed ``now_ns`` and never asks; whoever drives it holds a `Clock`. The live gateway uses
`MonotonicClock`; simulation and tests use a virtual one with the same interface.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Protocol

NS_PER_MS = 1_000_000
_MS_PER_S = 1_000


class TimerHandle(Protocol):
    """A call that has not happened yet."""

    def cancel(self) -> None:
        """Make sure that it does not happen. Without effect once it has."""


class Clock(Protocol):
    """What a driver needs to know about time."""

    def now_ns(self) -> int:
        """Return the present instant. Never decreases; its zero means nothing."""

    def call_at(self, t_ns: int, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once, at `t_ns` or as soon after it as the clock can."""


class MonotonicClock:
    """``CLOCK_MONOTONIC``, with callbacks on the running event loop.

    Event loops keep timers in milliseconds, so delays are rounded up: a callback comes about 1 ms after its
    instant (median 0.8 ms, asyncio and uvloop alike, on a busy machine of two cores). uvloop can be some 0.1 ms
    early by its own rounding; the engine then asks to be called again. Steps of the wall clock have no effect.
    """

    def now_ns(self) -> int:
        """Return ``CLOCK_MONOTONIC`` in nanoseconds."""
        return time.monotonic_ns()

    def call_at(self, t_ns: int, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` on the running loop at `t_ns`, rounded up to the loop's millisecond."""
        delay_ms = math.ceil((t_ns - time.monotonic_ns()) / NS_PER_MS)
        return asyncio.get_running_loop().call_later(max(0, delay_ms) / _MS_PER_S, callback)
