"""Why a stream's model has no room, or does not come round in time: in JSON and in a sentence."""

from __future__ import annotations

from gateway.api.answers import Evidence, MemoryEvidence, SwapEvidence
from gateway.core import verdict as core
from gateway.core.types import NS_PER_MS, StreamSpec
from gateway.sizes import in_unit

_TAKE_TURNS = "Models take turns in memory where all their streams say `swapping: true`"
_REGION = "swap region"
#: Models named in one sentence; the evidence has them all.
_NAMED = 5


def memory(found: core.MemoryEvidence | None) -> MemoryEvidence | None:
    """Return the figures of memory."""
    return None if found is None else MemoryEvidence(**found.to_dict())


def swap(found: core.SwapEvidence | None) -> SwapEvidence | None:
    """Return the figures of models that take turns."""
    if found is None:
        return None
    return SwapEvidence(
        models=list(found.models),
        region=found.region,
        utilization=found.utilization,
        longest_turn_ms=found.longest_turn_ns / NS_PER_MS,
        late_ms=None if found.late_ns is None else found.late_ns / NS_PER_MS,
    )


def explain(found: Evidence, spec: StreamSpec) -> str:
    """Return in a sentence why the model of a stream has no room, or would not come round in time."""
    if found.reason == core.Reason.SWAP:
        return _explain_turns(found.swap)
    return _explain_room(found.memory, spec.model, swapping=spec.swapping)


def _explain_room(found: MemoryEvidence | None, model: str, *, swapping: bool) -> str:
    if found is None or not found.needed:
        return f"There is no room in memory for {model}: the profile does not say how much it takes."
    said = (
        f"{model} needs {in_unit(found.needed, found.unit)} of the budget of {in_unit(found.budget, found.unit)};"
        f" what has to stay leaves {in_unit(found.free, found.unit)}"
    )
    holders = [f"{name} {in_unit(value, found.unit)}" for name, value in found.held.items()]
    more = f" and {len(holders) - _NAMED} more" if len(holders) > _NAMED else ""
    said += f" ({', '.join(holders[:_NAMED])}{more})" if holders else ""
    said += f"; {in_unit(found.lost, found.unit)} are lost" if found.lost else ""
    return f"{said}. {_turns(found, swapping=swapping)}"


def _turns(found: MemoryEvidence, *, swapping: bool) -> str:
    """Return in a sentence whether it would help that models take turns, and who would have to agree."""
    if found.needed > found.budget - found.lost:
        return "It does not fit alone: only a larger budget helps."
    others = [name for name in found.held if name != _REGION]
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    named = f"{', '.join(others[:_NAMED])}{more}"
    if swapping:
        also = f": those of {named} would have to as well, and no pin may keep it" if others else ""
        return f"{_TAKE_TURNS}{also}; else only a larger budget helps."
    return f"{_TAKE_TURNS}{f': this one, and those of {named} as far as needed' if others else ''}."


def _explain_turns(found: SwapEvidence | None) -> str:
    if found is None:
        return "The models that take turns in memory would not come round in time."
    said = f"{', '.join(found.models)} would take turns in memory, up to {found.longest_turn_ms:.0f} ms each"
    if found.late_ms is None:
        return f"{said}: {100 * found.utilization:.0f} % of the time, by the longest loads and unloads of the profile."
    return f"{said}, and a window would come round {found.late_ms:.0f} ms too late in the worst case."
