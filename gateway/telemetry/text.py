"""Metrics as text, a piece at a time.

With many streams there are thousands of lines, of some microseconds each. The thread that writes them is the one that
takes frames, so it is to be able to do that between two pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

#: Lines of a piece: about half a millisecond.
LINES = 100


class LazyMetric(Metric):
    """A metric whose samples are made when they are written.

    Args:
        name, text: Of the metric, a gauge.
        samples: The labels and value of each. They are gone through once.
    """

    def __init__(self, name: str, text: str, samples: Iterable[tuple[dict[str, str], float]]) -> None:
        super().__init__(name, text, "gauge")
        self.samples = (Sample(name, labels, float(value)) for labels, value in samples)  # type: ignore[assignment]


class _Alone(Collector):
    """A registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """Return it."""
        return (self._metric,)


def pieces(registry: CollectorRegistry) -> Iterator[bytes]:
    """Give all metrics of a registry in Prometheus' text format."""
    for metric in registry.collect():
        samples = iter(metric.samples)
        part = Metric(metric.name, metric.documentation, metric.type)
        part.samples = list(islice(samples, LINES))
        yield generate_latest(_Alone(part))
        while more := list(islice(samples, LINES)):
            part.samples = more
            # The lines that say what the metric is come once.
            yield generate_latest(_Alone(part)).split(b"\n", 2)[2]
