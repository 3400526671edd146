"""What is counted for every frame or job, in buckets, where a histogram of prometheus_client would not do.

Its histograms take two locks for each value and look through the bounds one by one, which is 1.4 us; a frame has two
values, a job three. And what is measured may come while the same thread holds such a lock: a collection of garbage can
begin in the middle of any other metric's work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Buckets:
    """Counts of values by bucket, and their sum. One thread at a time adds to it; any may read it.

    Args:
        bounds: The largest value of each bucket, as shown; the last one has no bound.
        unit: How much of what is added is 1 of what is shown.
    """

    __slots__ = ("_bounds", "_counts", "_shown", "_sum", "_unit")

    def __init__(self, bounds: Sequence[float], unit: int = 1) -> None:
        self._shown = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._bounds = tuple(bounds) if unit == 1 else tuple([round(bound * unit) for bound in bounds])
        self._counts = [0] * len(self._shown)
        self._sum: float = 0
        self._unit = unit

    def add(self, value: float) -> None:
        """Count one. Makes no object that the garbage collector would look at."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return how many were at most so much, as Prometheus wants it."""
        return list(zip(self._shown, map(float, accumulate(self._counts)), strict=True))

    @property
    def sum(self) -> float:
        """All together, in the unit that is shown."""
        return self._sum / self._unit


class BucketsCollector(Collector):
    """Shows buckets as one histogram.

    Args:
        name, text: Of the metric.
        label: That tells its series apart; empty if there is only one.
        series: By the value of that label.
    """

    def __init__(self, name: str, text: str, series: Mapping[str, Buckets], label: str = "") -> None:
        self._name, self._text, self._series, self._label = name, text, series, label

    def collect(self) -> Iterator[Metric]:
        """Read them."""
        family = HistogramMetricFamily(self._name, self._text, labels=[self._label] if self._label else [])
        for value, buckets in list(self._series.items()):
            family.add_metric([value] if self._label else [], buckets.buckets(), buckets.sum)
        yield family
