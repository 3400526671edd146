"""What is shown of models: see `gateway.core.view.ModelView`."""

from __future__ import annotations

from collections import Counter

from gateway.core.books import Ledger
from gateway.core.replacement import next_uses
from gateway.core.residency import Residency
from gateway.core.view import ModelView
from gateway.core.waiting import Waiting


def model_views(residency: Residency, ledger: Ledger, waiting: Waiting, now_ns: int) -> tuple[ModelView, ...]:
    """Return every model that something was said of, in order of name."""
    if not residency.models:
        return ()
    frames: Counter[str] = Counter()
    for batch in waiting.batches.values():
        frames[batch.category.model] += len(batch.frames)
    uses = next_uses(ledger, now_ns)
    views: list[ModelView] = []
    for name, model in sorted(residency.models.items()):
        waits = frames[name]
        paused = model.retry_ns is not None and model.retry_ns > now_ns
        view = ModelView(
            model=name,
            state=model.state,
            reason=model.reason,
            held=residency.memory.held_by(name),
            size=residency.size(name),
            pins=residency.pins(name),
            region=name in residency.region_models,
            barred=model.barred,
            waiting=waits,
            last_use_ns=model.last_use_ns,
            next_use_ns=now_ns if waits else uses.get(name),
            retry_ns=model.retry_ns if paused else None,
        )
        views.append(view)
    return tuple(views)
