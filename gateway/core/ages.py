"""Batches that have not started, by model and age: who has waited longest for each model."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping

from gateway.core.batch import Batch, Standing
from gateway.core.edf import by_age


class Ages:
    """See the module's docstring. Ids grow, so the order in which batches come is their age."""

    def __init__(self) -> None:
        self._models: dict[str, dict[int, Batch]] = {}

    def add(self, batch: Batch) -> None:
        """Take in the youngest batch."""
        self._models.setdefault(batch.category.model, {})[batch.id] = batch

    def remove(self, batch: Batch) -> None:
        """Let go of a batch."""
        own = self._models[batch.category.model]
        del own[batch.id]
        if not own:
            del self._models[batch.category.model]

    @property
    def models(self) -> Mapping[str, Mapping[int, Batch]]:
        """Models for which batches wait, with these by id, oldest first."""
        return self._models

    def best_effort(self, barred: Collection[str]) -> Iterator[Batch]:
        """Iterate over the best-effort batches past their joint, oldest first, but for those of `barred` models."""
        runnable = [own.values() for model, own in self._models.items() if model not in barred]
        for batch in heapq.merge(*runnable, key=by_age) if len(runnable) > 1 else (b for own in runnable for b in own):
            if batch.standing is Standing.BEST_EFFORT and batch.release_ns is not None:
                yield batch
