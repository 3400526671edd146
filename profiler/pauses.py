"""Pauses between samples: frames of live streams come to a machine that has been idle for a while.

Back to back, caches are warm, threads awake and the processor at its speed. A frame that comes after 5 to 30 ms of
idleness finds less of that: on a machine of 2 cores the median of one execution was 6.2 ms back to back and 8.6 ms
live. Plans rest on the 99th percentile, so it is enough that one sample in ten comes after a pause: the slowest
hundredth are then among those. More pauses are made where they cost little, after long executions.
"""

from __future__ import annotations

import random

#: Idle times, in s: the periods of a few cameras with 5 to 30 frames per second between them.
SHORTEST_S, LONGEST_S = 0.005, 0.030
#: The tenth sample since the last pause comes after another, whatever that costs: a third more for 6 ms each.
AT_LEAST_EVERY = 10
#: An earlier one is made once it takes at most this share of the executions since the last.
SHARE = 0.25


class Pauses:
    """The pauses of one point. The same every time: what differs between two runs is the machine."""

    def __init__(self) -> None:
        self._random = random.Random(0)
        self._samples = 0
        self._executed_s = 0.0

    def next_s(self, last_s: float) -> float:
        """Return how long to wait before the next sample, 0 for not at all; `last_s` is what the last one took."""
        self._samples += 1
        self._executed_s += last_s
        if self._samples < AT_LEAST_EVERY and self._executed_s * SHARE < LONGEST_S:
            return 0.0
        self._samples, self._executed_s = 0, 0.0
        return self._random.uniform(SHORTEST_S, LONGEST_S)
