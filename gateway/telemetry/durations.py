"""How long something took, or by how much it was late."""

from __future__ import annotations

from gateway.core.types import NS_PER_S
from gateway.telemetry.buckets import Buckets

#: Half a millisecond to a tenth of a second, finest around the 5 ms that the event loop may be late. Beyond that all
#: is equally bad.
BOUNDS_S = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1)


class Durations(Buckets):
    """Nanoseconds, shown in seconds."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(BOUNDS_S, NS_PER_S)
