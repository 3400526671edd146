"""How long something took, counted in buckets, where a histogram of prometheus_client would not do.

Its histograms take a lock for each value. What is measured here may come while the same thread holds one: a collection
of garbage can begin in the middle of any other metric's work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.core.types import NS_PER_S

#: Half a millisecond to a tenth of a second, finest around the 5 ms that the event loop may be late. Beyond that all
#: is equally bad.
BOUNDS_S = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1)
_BOUNDS_NS = tuple(round(bound * NS_PER_S) for bound in BOUNDS_S)


class Durations:
    """Counts of durations by bucket. One thread at a time adds to it; any may read it."""

    __slots__ = ("_counts", "_sum_ns")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one. Makes no object that the garbage collector would look at."""
        self._counts[bisect_left(_BOUNDS_NS, duration_ns)] += 1
        self._sum_ns += duration_ns

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return how many lasted at most so many seconds, as Prometheus wants it."""
        return list(zip([*map(str, BOUNDS_S), "+Inf"], map(float, accumulate(self._counts)), strict=True))

    @property
    def sum_s(self) -> float:
        """All together, in seconds."""
        return self._sum_ns / NS_PER_S


class DurationsCollector(Collector):
    """Shows durations as one histogram.

    Args:
        name, text: Of the metric.
        label: That tells its series apart; empty if there is only one.
        series: By the value of that label.
    """

    def __init__(self, name: str, text: str, series: Mapping[str, Durations], label: str = "") -> None:
        self._name, self._text, self._series, self._label = name, text, series, label

    def collect(self) -> Iterator[Metric]:
        """Read them."""
        family = HistogramMetricFamily(self._name, self._text, labels=[self._label] if self._label else [])
        for value, durations in self._series.items():
            family.add_metric([value] if self._label else [], durations.buckets(), durations.sum_s)
        yield family
