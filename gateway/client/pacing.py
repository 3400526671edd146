"""When a camera sends: an absolute schedule that neither drifts nor bursts.

Pure: the caller says what time it is and does the waiting, so tests need no clock. Times are integers of
nanoseconds on a monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

NS_PER_S = 1_000_000_000
#: By how much of a period a tick may be late and still be sent: the jitter that such a camera has to declare.
TOLERANCE = 0.25


@dataclass
class Schedule:
    """Ticks at ``start_ns + k / fps``, each used at most once.

    A tick that is late by up to a quarter of a period is still sent (that is scheduling noise, and the next
    one comes on time); one that is later is skipped, as a camera whose sensor has moved on would: sending it
    would put two frames into one period, which the stream's contract does not cover.

    Attributes:
        start_ns: Instant of tick 0.
        fps: Ticks per second; need not divide a second.
        skipped: Ticks that were passed over so far.
    """

    start_ns: int
    fps: float
    skipped: int = 0
    _next: int = 0

    def at_ns(self, tick: int) -> int:
        """Return the instant of `tick`; computed from the start, so that errors do not add up."""
        return self.start_ns + round(tick * NS_PER_S / self.fps)

    def upcoming(self, now_ns: int) -> int:
        """Return the tick to send next: the first that is not used and not too late at `now_ns`."""
        tolerance_ns = round(TOLERANCE * NS_PER_S / self.fps)
        tick = self._next
        if now_ns > self.at_ns(tick) + tolerance_ns:
            tick = max(tick, int((now_ns - tolerance_ns - self.start_ns) * self.fps // NS_PER_S))
            while self.at_ns(tick) + tolerance_ns < now_ns:
                tick += 1
        return tick

    def pass_over(self, tick: int) -> int:
        """Skip what is left before `tick`; return how many that are."""
        passed = max(0, tick - self._next)
        self.skipped += passed
        self._next += passed
        return passed

    def use(self, tick: int) -> int:
        """Mark `tick` as used: it and every earlier one are past; return how many were passed over.

        Raises:
            ValueError: It was used before.
        """
        if tick < self._next:
            raise ValueError(f"tick {tick} is past; the next one is {self._next}")
        passed = self.pass_over(tick)
        self._next = tick + 1
        return passed
