"""What has run since its model was loaded: first executions of a shape and batch can take a hundred times as long."""

from __future__ import annotations

from gateway.core.types import Category

_Pair = tuple[str, tuple[int, ...], str, int]


class Warmth:
    """Pairs of shape and batch, by model and version."""

    def __init__(self) -> None:
        self._pairs: dict[str, set[_Pair]] = {}

    def note(self, category: Category, frames: int) -> None:
        """So many frames of this category have run."""
        self._pairs.setdefault(category.model, set()).add(_pair(category, frames))

    def knows(self, category: Category, frames: int) -> bool:
        """Return whether they have since the model was loaded; the service class is no matter."""
        return _pair(category, frames) in self._pairs.get(category.model, ())

    def forget(self, model: str) -> None:
        """The model is loaded again."""
        self._pairs.pop(model, None)


def _pair(category: Category, frames: int) -> _Pair:
    return (category.version, category.shape, category.dtype, frames)
