"""What a worker that is being set up is to have in memory."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.residency import Residency


def models_to_load(residency: Residency, ready: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the models that are to be there, most important first.

    Managed: those that real-time streams need, those pinned by command or held, those that are there, those that were
    resident before the worker was lost, and those that are to be served, as far as they fit together. Models that take
    turns come when it is theirs. Unmanaged: those that are to be served. What was unloaded by command stays away.

    Args:
        residency: Of the engine.
        ready: Models that are in the worker's memory now.
        wanted: Models that are to be served, most important first.
    """
    models = residency.models
    barred = {name for name, model in models.items() if model.barred}
    if not residency.managed:
        return tuple(name for name in dict.fromkeys(wanted) if name not in barred)
    promised = residency.promised()
    order = dict.fromkeys(
        [
            *sorted(promised),
            *(name for name, model in models.items() if model.pinned),
            *(name for name, model in models.items() if model.holders),
            *ready,
            *(name for name, model in models.items() if model.stayed),
            *wanted,
        ]
    )
    room = residency.memory.room or 0
    chosen: list[str] = []
    for name in order:
        size = residency.size(name)
        if size is not None and size <= room and name not in barred and name not in residency.region_models:
            chosen.append(name)
            room -= size
    return tuple(chosen)
