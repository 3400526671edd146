"""Frames, commands and holds that wait for a model which will not be there: they are answered at once."""

from __future__ import annotations

from gateway.core.actions import Action, ModelRefused
from gateway.core.model import Model
from gateway.core.residency import Residency
from gateway.core.room import least_room, no_room
from gateway.core.types import NS_PER_MS
from gateway.core.waiting import Waiting
from gateway.core.warm_ups import WarmUp

#: Why a model is not loaded beside a swap region.
_TOO_LONG = (
    "load_too_long: models that take turns cannot wait until it is loaded, or how long that takes is not profiled"
)


class Hopeless:
    """See the module's docstring.

    Args:
        residency, waiting: The engine's.
    """

    def __init__(self, residency: Residency, waiting: Waiting) -> None:
        self._residency = residency
        self._waiting = waiting

    def end_frames(self, now_ns: int, actions: list[Action]) -> None:
        """End the frames that wait for such a model."""
        barred, residency = self._waiting.barred, self._residency
        least = least_room(residency) if residency.turns is None else 0
        for name in list(self._waiting.by_model()):
            if name in barred and (reason := self._why(residency.models[name], now_ns, least)):
                residency.fail_frames(name, reason, actions)

    def _why(self, model: Model, now_ns: int, least: int) -> str:
        """Why the frames of a model that is not there are not to wait for it; empty: they are."""
        residency = self._residency
        if model.barred:
            return "model_unloaded"
        if not residency.managed:
            return ""
        if model.failure and not model.may_be_tried(now_ns):
            return f"model_load_failed: {model.failure}"
        if model.away:
            return self._why_not_loaded(model, least)
        return ""

    def _why_not_loaded(self, model: Model, least: int) -> str:
        """Why a model is never going to be loaded for its frames; one that weighs `least` or less can be."""
        residency = self._residency
        size = residency.size(model.name)
        if size is None:
            return "not_sized: its size is not in the profile, and the memory budget is in bytes"
        if size <= least:
            return ""
        evidence = no_room(residency, model.name, size)
        if evidence is not None:
            most, budget, unit = evidence.free, evidence.budget, evidence.unit
            lost = f", as {evidence.lost} were not given back" if evidence.lost else ""
            return f"no_room: it needs {evidence.needed} {unit}, and of {budget} at most {most} can be free{lost}"
        turns = residency.turns
        if model.name in residency.region_models:
            return ""
        if turns is not None and not turns.bears(model.name) and model.name not in residency.promised():
            return _TOO_LONG
        return ""

    def refuse(self, actions: list[Action]) -> None:
        """Answer commands and holds for which there is never going to be room any more: others have to stay by now."""
        residency = self._residency
        for model in residency.models.values():
            again = model.name in residency.reloads
            if not again and not (model.away and (model.wanted or model.holders)):
                continue
            size = (residency.size(model.name) or 0) + (residency.reload_size(model.name) if again else 0)
            evidence = no_room(residency, model.name, size)
            if evidence is not None:
                model.wanted = False
                model.holders.clear()
                residency.reloads.discard(model.name)
                actions.append(ModelRefused(model.name, "no_room", evidence))

    def refuse_unwarmed(self, warm_up: WarmUp, most_ns: int, actions: list[Action]) -> None:
        """Answer those who wait for a model whose first execution, longer than `most_ns`, finds no turn."""
        model = self._residency.models[warm_up.category.model]
        mine_ms, most_ms = warm_up.table[0] / NS_PER_MS, most_ns / NS_PER_MS
        words = f"its first execution takes {mine_ms:.1f} ms, promised work can wait for {most_ms:.1f} ms at most"
        model.wanted = False
        model.holders.clear()
        actions.append(ModelRefused(model.name, f"failed: too_long: {words}"))
