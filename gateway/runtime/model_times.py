"""Limits of how long models may take to come and go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """How long models may take.

    Attributes:
        load_s: A load, until Triton has answered.
        unload_s: An unload, until the index does not list the model any more.
    """

    load_s: float
    unload_s: float

    @property
    def in_all_s(self) -> float:
        """How long whoever wants a model waits for it: another one may have to go first."""
        return self.unload_s + self.load_s
