"""What a run of a load generator found, whichever it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Of the calls; what is cut off at the end of a run is not among them.
_MOST_FAULTS = 0.001


class LoadError(Exception):
    """The server did not take the load, or the generator did not work."""


@dataclass(frozen=True)
class Load:
    """One run.

    Attributes:
        frames: Answered with a result within `seconds`.
        faults: What else came of calls, by kind.
    """

    frames: int
    seconds: float
    p50_ms: float
    p99_ms: float
    faults: Mapping[str, int]

    @property
    def frames_per_s(self) -> float:
        """The rate."""
        return self.frames / self.seconds

    def checked(self) -> Load:
        """Return it, unless it stands for something else than frames that were served. Raises `LoadError`."""
        faults = sum(self.faults.values())
        if not self.frames or faults > _MOST_FAULTS * self.frames:
            raise LoadError(f"{self.frames} frames were answered, and {dict(self.faults)}")
        return self
