"""Whether a model can ever be in memory as things are: the others that have to stay may leave too little."""

from __future__ import annotations

from gateway.core.batch import NEVER_NS
from gateway.core.residency import Residency
from gateway.core.verdict import MemoryEvidence


def no_room(residency: Residency, name: str, weight: int) -> MemoryEvidence | None:
    """Return why a model of this weight can never be there as things are; None: it can.

    Never is as long as those stay that real-time streams need or a command has pinned. A model that takes turns
    needs what was set aside for all of them, which may have been lost since.
    """
    memory = residency.memory
    if memory.budget is None or memory.room is None:
        return None
    room, inside = memory.room, name in memory.region_models
    if inside:
        room, weight = max(0, memory.budget - memory.lost), memory.region
    staying = _staying(residency)
    staying.pop(name, None)
    free = max(0, room - sum(staying.values()))
    if weight <= free:
        return None
    held = tuple(sorted(staying.items()))
    if memory.region and not inside:
        held += (("swap region", memory.region),)
    return MemoryEvidence(memory.unit, weight, memory.budget, free, held, memory.lost)


def least_room(residency: Residency) -> int:
    """Return a weight of which every model outside the swap region has room as things are."""
    room = residency.memory.room
    return NEVER_NS if room is None else room - sum(_staying(residency).values())


def _staying(residency: Residency) -> dict[str, int]:
    """What the models outside the swap region hold, or would, that have to stay, whatever others need."""
    memory, promised = residency.memory, residency.promised()
    return {
        model.name: memory.held_by(model.name) or residency.size(model.name) or 0
        for model in residency.models.values()
        if (model.pinned or model.name in promised) and not model.barred and model.name not in memory.region_models
    }
