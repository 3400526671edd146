"""Closes streams whose camera has gone: what they reserve would be kept for nobody.

A stream is idle when nothing has come of it, not even a frame that was refused, for `limit_ns`, and for two of its own
periods: a camera that keeps its contract is never idle, however slow it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.clock import Clock, TimerHandle
from gateway.core.types import NS_PER_MS
from gateway.runtime.results import StreamRecord

#: Streams are looked at so often, in parts of the limit.
_LOOKS = 10
_SHORTEST_PAUSE_NS = 50 * NS_PER_MS
_PERIODS = 2


class IdleWatch:
    """Looks at all streams again and again.

    Args:
        clock: Time.
        limit_ns: 0: streams may be idle for ever.
        streams: Gives those that are not over.
        close: Called with each that is idle.
    """

    def __init__(
        self,
        clock: Clock,
        limit_ns: int,
        streams: Callable[[], Iterable[StreamRecord]],
        close: Callable[[StreamRecord], object],
    ) -> None:
        self._clock = clock
        self._limit_ns = limit_ns
        self._streams = streams
        self._close = close
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """Begin, unless there is no limit. Needs the running event loop that `clock` needs."""
        if self._limit_ns > 0:
            pause_ns = max(_SHORTEST_PAUSE_NS, self._limit_ns // _LOOKS)
            self._timer = self._clock.call_at(self._clock.now_ns() + pause_ns, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now_ns = self._clock.now_ns()
        for record in list(self._streams()):
            if record.state == "active" and now_ns >= idle_at_ns(record, self._limit_ns):
                self._close(record)
        self.start()


def idle_at_ns(record: StreamRecord, limit_ns: int) -> int:
    """Return when the stream is idle, if nothing comes of it until then."""
    spec = record.spec
    since_ns = record.admitted_ns + spec.start_in_ns if record.seen_ns is None else record.seen_ns
    return since_ns + max(limit_ns, _PERIODS * spec.period_ns) + spec.jitter_ns
