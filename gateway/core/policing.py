"""Policing: which frames of a stream are within its contract.

GCRA, the generic cell rate algorithm (ITU-T I.371, annex A, virtual scheduling), for groups: a stream of `burst`
frames in a period has so many clocks, which its frames use in turn. A frame conforms if it comes no earlier than its
clock less the jitter; the clock is then one period past the later of itself and the frame.

So in any half-open interval of length L at most ``burst * ceil((L + jitter) / period)`` frames conform, which is the
very curve that admission counts (`gateway.core.arrival_curve`), and every sequence of arrivals that some contract grid
explains conforms, whatever its phase, its delays within the jitter and the frames that are missing from it. The clocks
start with the first frames: where the grid lies is the camera's affair.
"""

from __future__ import annotations

#: A clock that has not started: earlier than any instant.
_FREE_NS = -(2**62)


class Policer:
    """The clocks of one stream. Clocks never lie behind one another in turn, so the next one is the earliest.

    Args:
        period_ns, burst, jitter_ns: Of the contract.
    """

    __slots__ = ("_clocks", "_jitter_ns", "_period_ns", "_turn")

    def __init__(self, period_ns: int, burst: int, jitter_ns: int) -> None:
        self._period_ns = period_ns
        self._jitter_ns = jitter_ns
        self._clocks = [_FREE_NS] * burst
        self._turn = 0

    @property
    def earliest_ns(self) -> int | None:
        """The earliest instant at which the next frame conforms; None: any."""
        clock_ns = self._clocks[self._turn]
        return None if clock_ns == _FREE_NS else clock_ns - self._jitter_ns

    def conforming(self, count: int, now_ns: int) -> int:
        """Return how many of `count` frames that come together now conform: the first ones. Nothing changes."""
        if self._clocks[self._turn] - self._jitter_ns > now_ns:
            return 0
        for n in range(1, count):
            used, clock_ns = self._clock(n)
            if used:  # by frames before it, now
                clock_ns = max(now_ns, clock_ns)
            if clock_ns + used * self._period_ns - self._jitter_ns > now_ns:
                return n
        return count

    def retry_ns(self, count: int) -> int | None:
        """Return the earliest instant at which `count` frames conform together; None if they never do.

        More than a group conform together only if the jitter covers the periods between their groups.
        """
        if (count - 1) // len(self._clocks) * self._period_ns > self._jitter_ns:
            return None
        clocks = map(self._clock, range(count))
        return max(clock_ns + used * self._period_ns for used, clock_ns in clocks) - self._jitter_ns

    def _clock(self, n: int) -> tuple[int, int]:
        """Return how often the clock of the n-th frame from now, counted from 0, is used before it, and its time."""
        used, place = divmod(n, len(self._clocks))
        return used, self._clocks[(self._turn + place) % len(self._clocks)]

    def take(self, count: int, now_ns: int) -> None:
        """Let `count` conforming frames in."""
        clocks, period_ns = self._clocks, self._period_ns
        for _ in range(count):
            turn = self._turn
            clock_ns = clocks[turn]
            clocks[turn] = (clock_ns if clock_ns > now_ns else now_ns) + period_ns
            self._turn = turn + 1 if turn + 1 < len(clocks) else 0
