import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from gateway.telemetry.text import LINES, LazyMetric, pieces


class Lazy(Collector):
    """A metric of `count` samples, made when they are asked for."""

    def __init__(self, count):
        self._count = count

    def collect(self):
        yield LazyMetric("lazy", "Made late", (({"stream": f's"{number}\\'}, number) for number in range(self._count)))


@pytest.mark.parametrize("count", [0, 1, LINES, LINES + 1, 5 * LINES, 5 * LINES + 7])
def test_the_pieces_are_the_whole(count):
    registry = CollectorRegistry()
    Info("build", "Version", registry=registry).info({"version": "1"})
    counter = Counter("frames", 'Frames \\ by\n"name"', ["name"], registry=registry)
    histogram = Histogram("seconds", "Times", ["model"], registry=registry)
    for number in range(30):
        counter.labels(f"camera {number}").inc(number)
        histogram.labels(f"m{number}").observe(number / 7)
    Gauge("plain", "No labels", registry=registry).set(float("nan"))
    registry.register(Lazy(count))
    found = list(pieces(registry))
    assert b"".join(found) == generate_latest(registry)
    assert max(piece.count(b"\n") for piece in found) <= LINES + 2
    assert len(found) >= 5 + count // LINES


def test_the_process_is_in_it():
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    assert b"# TYPE process_cpu_seconds_total counter" in b"".join(pieces(registry))
