"""Which models of real-time streams stay in memory, and which take turns in the swap region.

All stay if they fit. Otherwise those of which every stream allows it (`StreamSpec.swapping`) move to the region, the
most tolerant first, that is the one with the widest windows, until what stays and the region fit: the region is as
large as the largest model in it. A model that is in the region already stays there as long as it has streams: nobody
has promised that it is loaded just now. Only one that has it to itself and is loaded leaves it, when all would fit.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.core.config import AdmissionTest
from gateway.core.plan_state import AdmissionState, MemoryState
from gateway.core.verdict import MemoryEvidence


def place(planned: AdmissionState, model: str) -> MemoryState | MemoryEvidence:
    """Return the memory of `planned` with a region in which everything fits, or why nothing does.

    Args:
        planned: The state with the candidate's window, and with a budget.
        model: The candidate's.
    """
    assert planned.memory is not None, "without a budget everything fits"
    return _Placing(planned, planned.memory, model).place()


class _Placing:
    """The figures of one decision."""

    def __init__(self, planned: AdmissionState, memory: MemoryState, model: str) -> None:
        self._memory = memory
        self._model = model
        config = planned.config
        # The exact tests do not know of turns, and no promise holds while the device stops for every load.
        turns = config.admission_test is not AdmissionTest.EXACT and not config.residency.synchronous
        widest: dict[str, int] = {}
        rigid: set[str] = set()
        for window in planned.windows:
            name = window.category.model
            widest[name] = min(widest.get(name, window.window_ns), window.window_ns)
            if not (window.swapping and turns):
                rigid.add(name)
        self._wanted = widest
        self._rigid = rigid
        better = dict(memory.sizes)
        names = {*widest, *memory.fixed}
        unit = memory.unit == "models"
        self._sizes = {name: 1 if unit else better.get(name) or planned.profile.weight(name) for name in names}

    def place(self) -> MemoryState | MemoryEvidence:
        if self._sizes[self._model] is None:
            return self._evidence(())
        before = tuple(model for model in self._memory.region if model in self._wanted)
        quiet = self._memory.turn is None and not self._memory.waiting
        alone = not before or (len(before) == 1 and before[0] in self._memory.resident and quiet)
        if alone and self._fits(()):
            return self._with(())
        if len(before) > 1 and self._rigid & set(before):
            return self._evidence(before)
        region = before
        movable = sorted(set(self._wanted) - self._rigid - set(before), key=lambda name: (-self._wanted[name], name))
        if not (len(before) == 1 and before[0] in self._rigid):
            for model in movable:
                if region and self._fits(region):
                    break
                region = (*region, model)
        if region and self._fits(region):
            return self._with(tuple(sorted(region)))
        # Alone a model shares nothing.
        return self._evidence(region if len(region) > 1 else before)

    def _weight(self, models: tuple[str, ...]) -> int:
        """Of a region of these models."""
        return max((self._sizes[model] or 0 for model in models), default=0)

    def _held(self, region: tuple[str, ...]) -> dict[str, int]:
        """What has to be in memory beside the region."""
        names = [*self._wanted, *(name for name in self._memory.fixed if name not in self._wanted)]
        return {name: self._sizes[name] or 0 for name in names if name not in region}

    def _fits(self, region: tuple[str, ...]) -> bool:
        memory = self._memory
        return sum(self._held(region).values()) + self._weight(region) <= memory.budget - memory.lost

    def _with(self, region: tuple[str, ...]) -> MemoryState:
        memory = self._memory
        weight = self._weight(region)
        moved = (set(region), weight) != (set(memory.region), memory.weight) and bool(region)
        joined = tuple(model for model in region if model not in memory.region)
        return replace(memory, region=region, weight=weight, moved=moved, joined=joined)

    def _evidence(self, region: tuple[str, ...]) -> MemoryEvidence:
        """Say what is in the way of the candidate's model, if as many models as can take turns do."""
        memory = self._memory
        others = {name: size for name, size in self._held(region).items() if name != self._model}
        held = sorted(others.items())
        rest = tuple(name for name in region if name != self._model)
        if rest:
            held.append(("swap region", self._weight(rest)))
        return MemoryEvidence(
            unit=memory.unit,
            needed=self._sizes[self._model] or 0,
            budget=memory.budget,
            free=max(0, memory.budget - memory.lost - sum(size for _, size in held)),
            held=tuple(held),
            lost=memory.lost,
        )
