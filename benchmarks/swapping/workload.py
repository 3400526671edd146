"""Simulated workloads of Computron's evaluation: independent Gamma arrivals at each model.

Rates are given as relative ones and scaled to the device: with all models resident and one frame at a time, they take
`LOAD` of its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.swapping.models import NETS, TestModel
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_S

LOAD = 0.4
CVS = (0.25, 1.0, 4.0)
RATES = ((1, 1, 1), (10, 1, 1), (10, 10, 1))
#: Fewer are the first of these.
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class ModelSet:
    """Models that share the memory.

    Attributes:
        room: How many may be resident.
        batches: Batch sizes; the last is the limit.
    """

    name: str
    models: tuple[TestModel, ...]
    room: int
    batches: tuple[int, ...]


SETS = (
    ModelSet("3 models, room for 2", NETS[:3], 2, (1, 2, 4, 8)),
    ModelSet("6 models, room for 4", NETS, 4, (1, 2, 4, 8, 16, 32)),
)


@dataclass(frozen=True)
class Cell:
    """One cell of the paper's tables."""

    models: ModelSet
    rates: tuple[int, ...]
    cv: float

    def rates_per_s(self, profile: Profile) -> list[float]:
        """Frames per second of each model; with six models the triple is repeated."""
        relative = [self.rates[n % len(self.rates)] for n in range(len(self.models.models))]
        seconds = [profile.typical(model.category)[1] / NS_PER_S for model in self.models.models]
        unit = LOAD / sum(rate * time_s for rate, time_s in zip(relative, seconds, strict=True))
        return [rate * unit for rate in relative]

    @property
    def name(self) -> str:
        """For people and files."""
        return f"{self.models.name}; rates {self.rates}; cv {self.cv:g}"


def cells() -> list[Cell]:
    """All cells, in the order of the tables."""
    return [Cell(models, rates, cv) for models in SETS for rates in RATES for cv in CVS]


def arrivals(rates_per_s: Sequence[float], cv: float, seconds: float, seed: int) -> list[tuple[float, int]]:
    """Return ``(instant in s, index of the model)`` in order of time, for `seconds` from 0 on.

    Intervals of a model are Gamma distributed, with mean ``1 / rate`` and coefficient of variation `cv`; each model has
    random numbers of its own, so that its arrivals do not depend on the others.
    """
    found: list[tuple[float, int]] = []
    for index, rate in enumerate(rates_per_s):
        random = np.random.default_rng([seed, index])
        at_s = 0.0
        while (at_s := at_s + float(random.gamma(1 / cv**2, cv**2 / rate))) < seconds:
            found.append((at_s, index))
    return sorted(found)
