"""What the concurrency study measures (DeepRT, section 2: arXiv 2105.01803).

Three questions: what do several instances of one model cost each other, what do two different models cost each other,
and which is better at equal totals, more instances or larger batches? All three are made of the same piece, a `Load`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

#: What the paper's images have.
DEFAULT_SIZE = (224, 224)


@dataclass(frozen=True, slots=True, order=True)
class Load:
    """One model at work: each of its instances has its own client, which always has one request underway.

    Attributes:
        model: Its name.
        instances: Of the model, and clients.
        batch: Frames in each request.
    """

    model: str
    instances: int = 1
    batch: int = 1

    def __str__(self) -> str:
        return f"{self.model} {self.instances}x{self.batch}"


@dataclass(frozen=True, slots=True)
class Point:
    """What is measured at a time.

    Attributes:
        load: Whose requests are timed.
        beside: What runs from before the first to after the last of them; None: nothing.
    """

    load: Load
    beside: Load | None = None

    @property
    def loads(self) -> tuple[Load, ...]:
        """All that runs."""
        return (self.load,) if self.beside is None else (self.load, self.beside)

    def __str__(self) -> str:
        return " beside ".join(map(str, self.loads))


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """What to measure, and for how long.

    Attributes:
        models: Names of models.
        instances: One model is measured with 1, 2, ... this many instances, one frame in each request.
        total: Frames underway in the comparison of instances x batch; 0 leaves that out.
        pairs: Whether to measure each of `models` beside each other one.
        size: For the free axes of models that `sizes` does not name.
        sizes: Model -> for its free axes, or its whole shape.
        seconds: Of load per point.
        point_limit_s: A point that takes longer is given up.
        connect_limit_s: How long to wait for Triton to answer.
        load_limit_s: Of one model's load.
    """

    models: tuple[str, ...]
    instances: int = 4
    total: int = 8
    pairs: bool = True
    size: tuple[int, ...] = DEFAULT_SIZE
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    seconds: float = 6.0
    point_limit_s: float = 60.0
    connect_limit_s: float = 15.0
    load_limit_s: float = 180.0

    def points(self) -> tuple[Point, ...]:
        """Return every point once, in an order in which instances are only added.

        Triton adds instances in a fraction of a second and takes a second for each that it takes away. So the pairs,
        one instance each, come first; then model by model, by number of instances.
        """
        pairs = itertools.combinations(self.models, 2) if self.pairs else ()
        beside = [Point(Load(a), Load(b)) for pair in pairs for a, b in (pair, pair[::-1])]
        alone = [Point(load) for model in self.models for load in self._of_one(model)]
        return (*beside, *alone)

    def splits(self) -> tuple[tuple[int, int], ...]:
        """Return (instances, batch) with the product `total`, most instances first; empty for a total of 0."""
        return tuple((n, self.total // n) for n in range(self.total, 0, -1) if self.total % n == 0)

    def _of_one(self, model: str) -> list[Load]:
        counts = {(n, 1) for n in range(1, self.instances + 1)}
        return [Load(model, n, batch) for n, batch in sorted(counts | set(self.splits()))]


def parse_sizes(texts: list[str]) -> tuple[tuple[int, ...] | None, dict[str, tuple[int, ...]]]:
    """Return the size for all models, None if none is given, and the sizes of single ones.

    Args:
        texts: Each ``HxW`` or ``model=HxW``, or with all axes of a shape.

    Raises:
        ValueError: One is written otherwise, or two are for all models.
    """
    common, own = None, {}
    for text in texts:
        model, named, size = text.rpartition("=")
        if named:
            own[model] = _size(size, text)
        elif common is None:
            common = _size(size, text)
        else:
            raise ValueError(f"one shape for all models, others as model=HxW: {text!r} is a second one for all")
    return common, own


def _size(text: str, whole: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ValueError(f"a shape is written like 480x640 (height x width) or centerface=480x640, not {whole!r}")
    return sizes
