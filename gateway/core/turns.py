"""What the residency of models knows of the swap region: a port, behind it `gateway.core.swap_region`."""

from __future__ import annotations

from typing import Protocol

from gateway.core.actions import Action
from gateway.core.types import Category


class Turns(Protocol):
    """Moves models through the swap region, by `Residency.load` and `Residency.unload`; told what becomes of them."""

    @property
    def idle(self) -> bool:
        """Whether no turn is under way or waits, so that models elsewhere may be loaded and unloaded, one at a time."""

    @property
    def over(self) -> bool:
        """Whether all that the turn under way was for has ended or gone."""

    def bears(self, model: str) -> bool:
        """Whether turns can wait while a model elsewhere is loaded or unloaded."""

    def warm_ups(self, model: str) -> list[tuple[Category, int, int]]:
        """Return category, batch and planned time in ns of each first execution of a model of the region."""

    def plan(self, now_ns: int, actions: list[Action]) -> None:
        """Begin what can be begun; called before models elsewhere are looked at."""

    def due_ns(self, model: str, now_ns: int) -> int | None:
        """Return when the first executions of a model are due that is loaded now; None: no turn waits for them."""

    def ready(self) -> None:
        """A model is loaded and warmed."""

    def missed(self, model: str) -> None:
        """A model is not there any more, could not be loaded, or, if it is still resident, not be unloaded."""

    def lost(self) -> None:
        """The worker is gone, and all calls with it."""
