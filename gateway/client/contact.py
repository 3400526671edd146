"""Whether the gateway answers, as a camera sees it from what becomes of its frames."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outage:
    """A time without answers.

    Attributes:
        since_s: When it was noticed, in seconds of the wall clock.
        error: What went wrong first.
    """

    since_s: float
    error: str

    def __str__(self) -> str:
        return f"gateway unreachable since {time.strftime('%H:%M:%S', time.localtime(self.since_s))}: {self.error}"


class Contact:
    """Takes how each frame fared and knows whether the gateway can be reached now.

    Args:
        wall_s: The wall clock; for tests.

    Attributes:
        outage: The one that lasts; None while the gateway answers.
        last_error: Why the last frame without an answer has none; empty while every frame has one.
        last_refusal: Why the last frame that was not accepted was not; empty while every frame was.
    """

    def __init__(self, wall_s: Callable[[], float] = time.time) -> None:
        self.outage: Outage | None = None
        self.last_error = ""
        self.last_refusal = ""
        self._wall_s = wall_s
        self._answered_ns = 0

    def answered(self, sent_ns: int, refusal: str = "") -> None:
        """A frame that was sent at `sent_ns` has an answer, be it a refusal."""
        self.last_refusal = refusal or self.last_refusal
        self._answered_ns = max(self._answered_ns, sent_ns)
        self.outage = None

    def failed(self, sent_ns: int, error: str) -> None:
        """A frame has none. If a later one was answered before, that says nothing of the gateway as it is now."""
        self.last_error = error
        if sent_ns >= self._answered_ns and self.outage is None:
            self.outage = Outage(self._wall_s(), error)
