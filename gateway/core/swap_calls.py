"""Loads and unloads of the models that take turns: one call at a time, and nothing else beside it.

While no turn waits, a model is loaded ahead for the oldest batch that waits for one.
"""

from __future__ import annotations

from gateway.core.actions import Action
from gateway.core.batch import Batch, Standing
from gateway.core.model import Model
from gateway.core.residency import Residency
from gateway.core.waiting import Waiting


class SwapCalls:
    """See the module's docstring.

    Args:
        residency: Carries them out.
        waiting: The engine's batches.
        prefetch: Whether windows that are open have their model loaded ahead.

    Attributes:
        since_ns: When the last one began.
    """

    def __init__(self, residency: Residency, waiting: Waiting, *, prefetch: bool) -> None:
        self.since_ns = 0
        self._residency = residency
        self._waiting = waiting
        self._prefetch = prefetch

    def make_way(self, model: Model, reason: str, now_ns: int, actions: list[Action]) -> None:
        """Unload what is in the way of a model, one at a time, then load it."""
        residency = self._residency
        lingering = any(each.lingers for each in residency.models.values() if each.name in residency.region_models)
        if residency.calling or lingering or not model.may_be_tried(now_ns):
            return
        there = self.there()
        mine = [each for each in there if each.name in residency.region_models]
        if mine:
            self.unload(mine[0], "swap", now_ns, actions)
        elif residency.memory.region_whole:
            residency.load(model.name, reason, actions)
            self.since_ns = now_ns
        elif others := [m for m in there if residency.idle(m) and (m.barred or not residency.pinned(m.name))]:
            first = min(others, key=lambda m: not m.barred)
            self.unload(first, "command" if first.barred else "eviction", now_ns, actions)

    def there(self) -> list[Model]:
        """Return the models that hold memory, those that were used last at the end."""
        there = [model for model in self._residency.models.values() if not model.away]
        return sorted(there, key=lambda model: -1 if model.last_use_ns is None else model.last_use_ns)

    def unload(self, model: Model, reason: str, now_ns: int, actions: list[Action]) -> None:
        """Unload a model if it is idle, and the pause after an unload that did not come is over."""
        if self._residency.idle(model) and model.may_be_tried(now_ns):
            self._residency.unload(model.name, reason, actions)
            self.since_ns = now_ns

    def load_ahead(self, now_ns: int, actions: list[Action]) -> None:
        """Load a model for the oldest batch of the region, if none elsewhere is older.

        Models that have to stay, and are not there, come first.
        """
        residency = self._residency
        models = residency.region_models
        if residency.calling:
            return
        # Others may need what the models hold that were there when they joined, and are more than the region is for.
        there = [each for each in self.there() if each.name in models]
        if len(there) > 1 and residency.memory.overfull:
            self.unload(there[0], "swap", now_ns, actions)
            return
        waits = [batch for batch in self._waiting.batches.values() if self._asks(batch)]
        if not waits or residency.promised() & self._waiting.barred:
            return
        first = min(waits, key=lambda batch: batch.id)
        model = residency.know(first.category.model)
        if model.name in models and model.away and not model.barred:
            self.make_way(model, "prefetch" if first.standing is Standing.PROMISED else "demand", now_ns, actions)

    def _asks(self, batch: Batch) -> bool:
        """Whether a model is to be loaded for a batch ahead of its turn, or elsewhere."""
        name = batch.category.model
        if name not in self._residency.region_models:
            return name in self._waiting.barred
        return self._prefetch or batch.standing is not Standing.PROMISED
