"""What the concurrency study found, and its file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from profiler.interference_figures import Figures
from profiler.interference_plan import Load, Point, StudyPlan

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """How the load of a point fared."""

    point: Point
    figures: Figures


@dataclass(frozen=True, slots=True)
class FailedPoint:
    """A point that could not be measured, and why."""

    point: Point
    reason: str


@dataclass(frozen=True, slots=True)
class Slowdown:
    """What a model suffers from what runs beside it, against one instance of it alone.

    Attributes:
        concurrent: Requests underway on the device, one frame each.
        beside: The other model; empty if all are the model's own.
        p50, p99: Latency, over that alone.
        throughput: Frames per second of this model, all its instances together, over those alone.
    """

    model: str
    beside: str
    concurrent: int
    p50: float
    p99: float
    throughput: float


@dataclass(frozen=True, slots=True)
class StudyReport:
    """All figures of one run.

    Attributes:
        plan: What was asked for.
        shapes: Model -> shape of one frame.
        device, triton_version: On which.
        created: ISO 8601, UTC.
        command: The command line.
        notes: What a reader should know about the run.
    """

    plan: StudyPlan
    shapes: dict[str, tuple[int, ...]]
    points: tuple[MeasuredPoint, ...]
    failures: tuple[FailedPoint, ...]
    device: str = ""
    triton_version: str = ""
    created: str = ""
    command: str = ""
    notes: tuple[str, ...] = ()

    def figures(self, load: Load, beside: Load | None = None) -> Figures | None:
        """Return how `load` fared alone or beside another; None if that was not measured."""
        wanted = Point(load, beside)
        return next((measured.figures for measured in self.points if measured.point == wanted), None)

    def beside(self, model: str, other: str) -> Figures | None:
        """Return how one instance of `model` fared beside one of `other`.

        Beside its like it is one of two instances, which share their requests and frames per second equally.
        """
        if model != other:
            return self.figures(Load(model), Load(other))
        both = self.figures(Load(model, 2))
        if both is None:
            return None
        return replace(both, count=both.count // 2, frames_per_s=both.frames_per_s / 2)

    def slowdowns(self) -> tuple[Slowdown, ...]:
        """Return the interference factors: first of each model with itself, then of each pair, both ways."""
        return (*self._with_itself(), *self._in_pairs())

    def _with_itself(self) -> Iterator[Slowdown]:
        for model in self.plan.models:
            for n in range(2, self.plan.instances + 1):
                yield from self._slowdown(model, "", n, self.figures(Load(model, n)))

    def _in_pairs(self) -> Iterator[Slowdown]:
        for model, other in itertools.permutations(self.plan.models, 2):
            yield from self._slowdown(model, other, 2, self.figures(Load(model), Load(other)))

    def _slowdown(self, model: str, beside: str, concurrent: int, found: Figures | None) -> Iterator[Slowdown]:
        """Yield one, or nothing where something is missing."""
        alone = self.figures(Load(model))
        if alone is not None and found is not None:
            yield Slowdown(
                model,
                beside,
                concurrent,
                p50=round(found.p50_ms / alone.p50_ms, 3),
                p99=round(found.p99_ms / alone.p99_ms, 3),
                throughput=round(found.frames_per_s / alone.frames_per_s, 3),
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form.

        ``{"schema": 1, "study": "interference", "device", "triton_version", "created", "command", "notes", "seconds",
        "models": [{"model", "shape"}], "points": [{"load": {"model", "instances", "batch"}, "beside": the same or null,
        "count", "p50_ms", "p99_ms", "max_ms", "frames_per_s", "stable"}], "slowdowns": [the fields of `Slowdown`],
        "failed": [{"load", "beside", "reason"}]}``
        """
        return {
            "schema": SCHEMA,
            "study": "interference",
            "device": self.device,
            "triton_version": self.triton_version,
            "created": self.created,
            "command": self.command,
            "notes": list(self.notes),
            "seconds": self.plan.seconds,
            "models": [{"model": m, "shape": list(self.shapes[m])} for m in self.plan.models if m in self.shapes],
            "points": [asdict(measured.point) | asdict(measured.figures) for measured in self.points],
            "slowdowns": [asdict(slowdown) for slowdown in self.slowdowns()],
            "failed": [asdict(failed.point) | {"reason": failed.reason} for failed in self.failures],
        }
