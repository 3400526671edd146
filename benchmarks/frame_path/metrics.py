"""What the gateway says about itself at ``/metrics``: differences between two looks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.frame_path.processes import get


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        totals: Of each sample, over all its labels.
        buckets: Of each histogram, over all its other labels: how many were at most so large.
        labelled: Of each sample, by its labels.
    """

    totals: Mapping[str, float]
    buckets: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    labelled: Mapping[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)

    def since(self, before: Page) -> Page:
        """What came after `before`."""
        return Page(
            {name: value - before.totals.get(name, 0.0) for name, value in self.totals.items()},
            {
                name: {edge: n - before.buckets.get(name, {}).get(edge, 0.0) for edge, n in edges.items()}
                for name, edges in self.buckets.items()
            },
            {key: value - before.labelled.get(key, 0.0) for key, value in self.labelled.items()},
        )

    def total(self, name: str) -> float:
        """A sample over all its labels; 0 if there is none."""
        return self.totals.get(name, 0.0)

    def by(self, name: str, label: str) -> dict[str, float]:
        """A sample by one of its labels."""
        found: dict[str, float] = {}
        for (sample, labels), value in self.labelled.items():
            if sample == name and (key := dict(labels).get(label)) is not None:
                found[key] = found.get(key, 0.0) + value
        return found

    def mean(self, histogram: str) -> float:
        """Of a histogram or summary; NaN without observations."""
        count = self.total(f"{histogram}_count")
        return self.total(f"{histogram}_sum") / count if count else math.nan

    def quantile(self, histogram: str, share: float) -> float:
        """An upper bound: the edge of the bucket in which it lies; NaN without observations."""
        edges = sorted(self.buckets.get(histogram, {}).items())
        if not edges or not edges[-1][1]:
            return math.nan
        return next(edge for edge, below in edges if below >= share * edges[-1][1])

    def above(self, histogram: str) -> dict[float, float]:
        """How many observations were larger than each edge."""
        edges = self.buckets.get(histogram, {})
        count = max(edges.values(), default=0.0)
        return {edge: count - below for edge, below in sorted(edges.items()) if math.isfinite(edge)}


def parse(text: str) -> Page:
    """Return the page of `text`."""
    totals: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    labelled: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                edges = buckets.setdefault(family.name, {})
                edge = float(sample.labels["le"])
                edges[edge] = edges.get(edge, 0.0) + sample.value
            else:
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
                labelled[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return Page(totals, buckets, labelled)


def fetch(port: int) -> Page:
    """Return the page of the gateway that listens at `port`."""
    return parse(get(port, "/metrics").decode())
