"""What holds up the event loop: how late it comes to things, and how long collections of garbage take.

A frame's arrival, a window's end and Triton's answer are all handled by one thread. Whatever keeps it busy adds to the
latency of every frame, so that is measured, all the time:

- a timer of our own that is due every 50 ms, and how late it came: what anything else that was due then had to wait;
- the engine's own wake-ups, and how late each was;
- each collection of garbage, in which all threads stand still.

All three together cost some 0.1 % of a core.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry

from gateway.clock import MonotonicClock, TimerHandle
from gateway.core.types import NS_PER_S
from gateway.telemetry.buckets import BucketsCollector
from gateway.telemetry.durations import Durations

#: In seconds. Anything that holds up the loop for longer is seen by at least one of these timers.
INTERVAL_S = 0.05
_GENERATIONS = ("0", "1", "2")


class Stalls:
    """Part of `gateway.telemetry.metrics.Metrics`.

    Attributes:
        lag: Of the event loop.
        timers: How late the engine's wake-ups came; see `WatchedClock`.
        pauses: Of collections of garbage, by generation.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lag, self.timers = Durations(), Durations()
        self.pauses = {generation: Durations() for generation in _GENERATIONS}
        for name, text, series, label in (
            ("framegate_event_loop_lag_seconds", "By how much the event loop's timers are late", {"": self.lag}, ""),
            ("framegate_timer_late_seconds", "By how much the engine's wake-ups are late", {"": self.timers}, ""),
            ("framegate_gc_pause_seconds", "How long collections of garbage take", self.pauses, "generation"),
        ):
            registry.register(BucketsCollector(name, text, series, label))
        self._timer: asyncio.TimerHandle | None = None
        self._began_ns = 0

    def start(self) -> None:
        """Watch the running event loop, and all collections of the process, until `stop`."""
        self._arm(asyncio.get_running_loop())
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Watch no more. Without effect where nothing is watched."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.callbacks.remove(self._on_collection)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        # On a clock of our own: the loop's stands still while something runs, and uvloop rounds it to milliseconds.
        due_ns = time.monotonic_ns() + round(INTERVAL_S * NS_PER_S)
        self._timer = loop.call_later(INTERVAL_S, self._look, loop, due_ns)

    def _look(self, loop: asyncio.AbstractEventLoop, due_ns: int) -> None:
        self.lag.add(max(0, time.monotonic_ns() - due_ns))
        self._arm(loop)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
        else:
            self.pauses[_GENERATIONS[info["generation"]]].add(time.perf_counter_ns() - self._began_ns)


class WatchedClock(MonotonicClock):
    """A clock that says how late its callbacks came.

    Args:
        late: Told of each. A callback that was asked for too late counts from when it was asked for. Loops keep timers
            in milliseconds, so up to one is no fault of anybody.
    """

    def __init__(self, late: Durations) -> None:
        self._late = late

    def call_at(self, t_ns: int, callback: Callable[[], None]) -> TimerHandle:
        """As `MonotonicClock`."""
        return super().call_at(t_ns, partial(self._called, max(t_ns, self.now_ns()), callback))

    def _called(self, due_ns: int, callback: Callable[[], None]) -> None:
        self._late.add(max(0, self.now_ns() - due_ns))
        callback()
