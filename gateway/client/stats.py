"""Running figures of one camera, or of several together."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from gateway.client.types import FrameResult

OUTCOMES = ("met", "missed", "expired", "cancelled", "failed")
#: Latencies kept for percentiles: a day at 1 fps, three hours at 8 fps.
LATENCIES_KEPT = 86_400
#: Why nothing was sent at a tick: the feed had no frame, the camera was late, too many posts were in flight.
NO_PICTURE, LATE, IN_FLIGHT = SKIPS = ("no_picture", "late", "in_flight")


class Stats:
    """What became of the frames that were sent.

    Attributes:
        sent: Frames sent; equals the outcomes, refused and lost ones, and those in flight.
        outcomes: Answered frames by outcome.
        refusals: Frames that the gateway did not accept, by the code of its answer.
        lost: Frames without an answer.
        skips: Ticks at which nothing was sent, by reason: one of `SKIPS`.
        latencies: Of the last answered frames that have one, in ms on the gateway's clock.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.lost = 0
        self.skips: Counter[str] = Counter()
        self.latencies: deque[float] = deque(maxlen=LATENCIES_KEPT)
        self._batched = 0
        self._jobs = 0.0

    @property
    def answered(self) -> int:
        """Frames that have an outcome."""
        return self.outcomes.total()

    @property
    def refused(self) -> int:
        """Frames that the gateway did not accept."""
        return self.refusals.total()

    @property
    def skipped(self) -> int:
        """Ticks at which nothing was sent."""
        return self.skips.total()

    def add(self, result: FrameResult) -> None:
        """Count one answered frame."""
        self.outcomes[result.outcome] += 1
        if result.outcome not in ("met", "missed"):
            return
        if result.latency_ms is not None:
            self.latencies.append(result.latency_ms)
        if result.batch:
            self._batched += 1
            self._jobs += 1 / result.batch

    def latency_ms(self, percent: float) -> float | None:
        """Return a percentile of the latencies; None without any."""
        return float(np.percentile(self.latencies, percent)) if self.latencies else None

    @property
    def mean_batch(self) -> float | None:
        """Frames per job. A job of n frames is seen n times, as 1/n each; exact once all its frames are counted."""
        return self._batched / self._jobs if self._jobs else None

    @classmethod
    def together(cls, parts: Iterable[Stats]) -> Stats:
        """Return the sum of several cameras' figures."""
        total = cls()
        for part in parts:
            total.sent += part.sent
            total.outcomes += part.outcomes
            total.refusals += part.refusals
            total.lost += part.lost
            total.skips += part.skips
            total.latencies.extend(part.latencies)
            total._batched += part._batched
            total._jobs += part._jobs
        return total

    def as_dict(self) -> dict[str, Any]:
        """Return the figures under the names used in every summary, rounded for people."""
        return {
            "frames": self.sent,
            **{outcome: self.outcomes[outcome] for outcome in OUTCOMES},
            "refused_frames": self.refused,
            "refused_by_code": dict(self.refusals),
            "lost": self.lost,
            "skipped": self.skipped,
            "skipped_by_reason": {reason: self.skips[reason] for reason in SKIPS},
            "p50_latency_ms": _rounded(self.latency_ms(50)),
            "p99_latency_ms": _rounded(self.latency_ms(99)),
            "mean_batch": _rounded(self.mean_batch),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
