"""What is held of a worker's memory budget: an account, in bytes or in models.

- A model that is loading, resident or unloading holds its weight, and so does one whose load was given up, as long as
  the worker is at it; while it is loaded anew, beside what is in use, it holds it twice.
- The swap region holds its own weight, and the models in it nothing besides, unless they are more than it was made for.
- What the worker is measured to hold beyond all that is known is *lost*: unloaded models have not given it back, or
  loaded ones have grown. It is not there to be given away.
"""

from __future__ import annotations

from gateway.core.config import EngineConfig, ResidencyConfig
from gateway.core.profile import Profile
from gateway.core.view import MemoryView


def planned(profile: Profile, config: EngineConfig) -> Profile:
    """Return the execution times that plans rest on: with the overhead, and beside loads where models come and go."""
    if _comes_and_goes(profile, config.residency):
        profile = profile.beside_loads(config.residency.interference)
    return profile.plus_overhead(config.dispatch_overhead_ns)


def _comes_and_goes(profile: Profile, config: ResidencyConfig) -> bool:
    """Whether not all that is profiled fits into the budget at once."""
    models = {entry.model for entry in profile.entries} | {entry.model for entry in profile.models}
    if config.max_models is not None:
        return len(models) > config.max_models
    if config.budget_bytes is not None:
        return sum(profile.weight(model) or 0 for model in models) > config.budget_bytes
    return False


class MemoryBooks:
    """See the module's docstring.

    Attributes:
        budget: None: there is none, and everything fits.
        headroom: What may be held beyond it while models unload.
        counts: Whether its unit is the model.
        unit: It in a word: ``models`` or ``bytes``.
        lost: See above.
        region: Weight of the swap region.
        region_models: Those that take turns in it.
    """

    def __init__(self, config: ResidencyConfig) -> None:
        self.counts = config.max_models is not None
        self.unit = "models" if self.counts else "bytes"
        self.budget = config.max_models if self.counts else config.budget_bytes
        self.headroom = config.headroom_models if self.counts else config.headroom_bytes
        self.lost = 0
        self.region = 0
        self.region_models: frozenset[str] = frozenset()
        self._weights: dict[str, int] = {}
        self._reloads: dict[str, int] = {}
        self._leaving: dict[str, None] = {}
        self._base: int | None = None

    # ------------------------------------------------------------ entries

    def hold(self, model: str, weight: int) -> None:
        """A model is about to be loaded, or is there."""
        assert model not in self._weights, f"{model} holds memory already"
        self._weights[model] = weight

    def correct(self, model: str, weight: int) -> None:
        """What a model holds is known better."""
        if model in self._weights:
            self._weights[model] = weight

    def leave(self, model: str) -> None:
        """A model is about to be unloaded: what it holds is coming free."""
        assert model in self._weights, f"{model} holds no memory"
        self._leaving[model] = None

    def stay(self, model: str) -> None:
        """A model that was to be unloaded is still there."""
        self._leaving.pop(model, None)

    def free(self, model: str) -> None:
        """A model is not there any more, or never came: all that it held is free. Without effect the second time."""
        self._weights.pop(model, None)
        self._reloads.pop(model, None)
        self._leaving.pop(model, None)

    def hold_twice(self, model: str, weight: int) -> None:
        """A model that is there is about to be loaded anew."""
        assert model not in self._reloads, f"{model} is being loaded anew already"
        self._reloads[model] = weight

    def hold_once(self, model: str) -> None:
        """That has ended, well or not."""
        self._reloads.pop(model, None)

    def clear(self) -> None:
        """The worker is gone, and with it all that was held."""
        self._weights.clear()
        self._reloads.clear()
        self._leaving.clear()
        self.lost = 0
        self._base = None

    def measured(self, used_bytes: int, *, quiet: bool = True) -> None:
        """Take note of what the worker's models hold in all. The first figure says what is held by nobody.

        `quiet`: no model comes or goes; those that do are known to hold more than they may, so that less is found lost.
        """
        if self.counts:
            return
        known = sum(self._weights.values()) + sum(self._reloads.values())
        if quiet and self._base is None:
            self._base = max(0, used_bytes - known)
        if self._base is not None:
            lost = max(0, used_bytes - self._base - known)
            self.lost = lost if quiet else max(lost, self.lost)

    # ------------------------------------------------------------ figures

    def held_by(self, model: str) -> int:
        """Return what one model holds; 0 for one that is not there."""
        return self._weights.get(model, 0) + self._reloads.get(model, 0)

    @property
    def held(self) -> int:
        """What models and the swap region hold."""
        outside = sum(weight for model, weight in self._weights.items() if model not in self.region_models)
        return outside + sum(self._reloads.values()) + max(self.region, self._inside)

    @property
    def _inside(self) -> int:
        return sum(weight for model, weight in self._weights.items() if model in self.region_models)

    @property
    def overfull(self) -> bool:
        """Whether models hold more than the swap region has: they were there before they joined it."""
        return self._inside > self.region

    @property
    def staying(self) -> int:
        """Of that, what is not coming free."""
        return self.held - sum(self._weights[model] for model in self._leaving if model not in self.region_models)

    @property
    def room(self) -> int | None:
        """What models outside the swap region may hold in all; None: there is no budget."""
        return None if self.budget is None else max(0, self.budget - self.lost - self.region)

    @property
    def region_whole(self) -> bool:
        """Whether the swap region has all its memory: it may have been made while models still held some of it."""
        return self.budget is None or self.held <= self.budget - self.lost

    def fits(self, weight: int, beside: int = 0) -> bool:
        """Whether a load of this weight may begin, with `beside` kept back for others that come first.

        Those wait for what was asked to go first, as much of it as they need. What else is going counts as staying: it
        would go for later loads, and models that come and go one after the other could keep a large one out for good.
        """
        if self.budget is None:
            return True
        most = self.budget - self.lost
        if self.staying + beside + weight > most or self.held + weight > most + self.headroom:
            return False
        return not beside or self._left_when(most + self.headroom - beside) + beside + weight <= most + self.headroom

    def _left_when(self, enough: int) -> int:
        """Return what is held once no more is than `enough`; of what is going, what was asked first goes first."""
        held = self.held
        for model in self._leaving:
            if held <= enough:
                break
            held -= 0 if model in self.region_models else self._weights[model]
        return held

    def short_of(self, weight: int) -> int:
        """Return what has to come free, beyond what is coming free already, for loads of this weight in all."""
        return 0 if self.budget is None else max(0, self.staying + weight - (self.budget - self.lost))

    def view(self) -> MemoryView:
        """Return the figures."""
        return MemoryView(
            unit=self.unit,
            budget=self.budget,
            headroom=self.headroom,
            held=self.held,
            region=self.region,
            lost=self.lost,
        )
