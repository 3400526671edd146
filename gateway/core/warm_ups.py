"""Warm-up: the first executions of a model after its load, with blank frames, as jobs on the device.

The first execution of a shape and batch can take a hundred times as long as the next (lazy set-up, algorithm search),
so it must not hit a frame. A model that was loaded runs, for each category of it that has streams, a batch of one and
one of the largest that may come; without any, of the smallest profiled shape of its newest version.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from gateway.core.batch import Batch, Standing
from gateway.core.batcher import Batcher
from gateway.core.profile import Profile
from gateway.core.types import Category, Frame, Job, ServiceClass


class WarmUp(Batch):
    """A batch of blank frames: it has no frames to end, and is due only if it is promised.

    Attributes:
        size: How many.
        borne: By a test, what is promised now holds though it takes so long.
        urgent: A promise waits for it, or it is borne: it starts whenever nothing that was promised is ready.
    """

    __slots__ = ("borne", "size", "urgent")

    def __init__(
        self,
        job_id: int,
        category: Category,
        size: int,
        *,
        execution_ns: int,
        now_ns: int,
        deadline_ns: int | None = None,
    ) -> None:
        # Without frames it is entry 0 of its table that says how long it takes.
        super().__init__(
            job_id, category, (execution_ns,), Standing.BEST_EFFORT if deadline_ns is None else Standing.PROMISED
        )
        self.size = size
        self.urgent = self.borne = False
        self.release_ns = now_ns
        if deadline_ns is not None:
            self.deadline_ns = deadline_ns

    def job(self, frames: tuple[Frame, ...] | None = None, *, early: bool = False) -> Job:
        """Return the job that this is."""
        return replace(super().job(frames, early=early), warm_up=self.size)


def sizes_to_warm(largest: int) -> tuple[int, ...]:
    """Return the batches of a category that are run once after a load: of one frame, and the largest."""
    return (1, largest) if largest > 1 else (1,)


def warm_ups(
    model: str, batchers: Iterable[Batcher], profile: Profile, factor: float
) -> list[tuple[Category, int, int]]:
    """Return the category, batch and planned time in ns of every first execution that a model needs.

    Args:
        model: Which.
        batchers: Of all categories that have streams.
        profile: Times, and how large batches get.
        factor: How many times longer a first execution takes where that was not measured.
    """
    largest: dict[Category, int] = {}
    for batcher in batchers:
        category = replace(batcher.category, service_class=ServiceClass.REAL_TIME)
        if category.model == model and profile.has(category):
            most = len(batcher.table) - 1 if batcher.standing is Standing.PROMISED else batcher.room
            largest[category] = max(largest.get(category, 1), most)
    if not largest and (smallest := _smallest(model, profile)) is not None:
        largest[smallest] = profile.max_batch(smallest)
    return [
        (category, n, profile.warm_up_ns(category, n, factor))
        for category, most in largest.items()
        for n in sizes_to_warm(most)
    ]


def _smallest(model: str, profile: Profile) -> Category | None:
    """The smallest profiled shape of a model's newest version; None when it is not profiled."""
    versions = profile.versions(model)
    if not versions:
        return None
    entries = [entry for entry in profile.entries if (entry.model, entry.version) == (model, versions[-1])]
    smallest = min(entries, key=lambda entry: (math.prod(entry.shape), entry.shape, entry.dtype))
    return Category(model, smallest.version, smallest.shape, smallest.dtype)
