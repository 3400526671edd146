"""What ingest processes count, and how it is shown on the scheduler's metrics page.

Five times a second a process says what it has counted since it began. The scheduler adds what is new to its own
counters, so the page is as it would be without ingest processes, that much older. A process that is killed takes what
it has counted since its last word with it; frames are counted by the scheduler itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any, Protocol

import orjson
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.api.access import CLIENT_GONE, METHODS, UNMATCHED
from gateway.api.frames import PostFrames
from gateway.api.state import ApiState
from gateway.api.ws import TakeFrames
from gateway.errors import FramegateError
from gateway.telemetry.buckets import BucketsCollector
from gateway.telemetry.durations import Durations
from gateway.telemetry.metrics import Metrics

#: How often a process says something of itself.
INTERVAL_S = 0.2


@dataclass
class Figures:
    """Of one ingest process, and of those before it in its place.

    Attributes:
        frames: Submitted.
        cpu_s: Processor time.
        staged_bytes, upload_bytes, unread_bytes: As last heard.
        starts: How often there was a new one.
    """

    frames: int = 0
    cpu_s: float = 0.0
    staged_bytes: int = 0
    upload_bytes: int = 0
    unread_bytes: int = 0
    starts: int = 0
    _said: Counter[tuple[str, ...]] = field(default_factory=Counter)
    _cpu_said_s: float = 0.0
    _sockets: int = 0

    def hear(self, text: bytes | memoryview, metrics: Metrics) -> None:
        """Take what a process says, and add what is new of it to `metrics`."""
        said: dict[str, Any] = orjson.loads(text)
        self.staged_bytes, self.upload_bytes, self.unread_bytes = said["bytes"]
        self.cpu_s += said["cpu_s"] - self._cpu_said_s
        self._cpu_said_s = said["cpu_s"]
        metrics.sockets.inc(said["sockets"] - self._sockets)
        self._sockets = said["sockets"]
        for *key, count in said["counts"]:
            new = count - self._said[tuple(key)]
            if new and _is_ours(key):
                self._said[tuple(key)] = count
                _add(metrics, key, new)

    def end(self, metrics: Metrics) -> None:
        """The process is gone; another one begins to count from nothing."""
        metrics.sockets.dec(self._sockets)
        self.staged_bytes = self.upload_bytes = self.unread_bytes = self._sockets = 0
        self._cpu_said_s = 0.0
        self._said.clear()


def _is_ours(key: Sequence[str]) -> bool:
    """Whether a process can have such labels. Strangers who get hold of one cannot make series of their own."""
    kind, *labels = key
    if kind == "refused":
        return len(labels) == 1 and labels[0] in _codes()
    if kind == "undelivered":
        return labels in (["client_gone"], ["slow_reader"])
    if kind != "responses" or len(labels) != 3:
        return False
    method, route, status = labels
    return method in _METHODS and route in _ROUTES and status in _STATUSES


_METHODS = METHODS | {"other"}
_ROUTES = frozenset({PostFrames.path, TakeFrames.path, UNMATCHED})
_STATUSES = frozenset(str(status) for status in (*map(int, HTTPStatus), CLIENT_GONE))


@cache
def _codes() -> frozenset[str]:
    """Return why a frame may be refused."""
    found, left = {"client_gone"}, [FramegateError]
    while left:
        kind = left.pop()
        found.add(kind.code)
        left += kind.__subclasses__()
    return frozenset(found)


def _add(metrics: Metrics, key: Sequence[str], count: int) -> None:
    kind, *labels = key
    if kind == "refused":
        metrics.refused[labels[0]] += count
    elif kind == "responses":
        metrics.responses.labels(*labels).inc(count)
    else:
        metrics.undelivered.labels(*labels).inc(count)


def own_figures(state: ApiState, staged_bytes: int) -> bytes:
    """Return what this ingest process has counted."""
    metrics = state.metrics
    counts: list[tuple[object, ...]] = [("refused", code, count) for code, count in metrics.refused.items()]
    for kind, counter in (("responses", metrics.responses), ("undelivered", metrics.undelivered)):
        for family in counter.collect():
            counts += [(kind, *sample.labels.values(), round(sample.value)) for sample in family.samples]
    sockets = next(sample.value for family in metrics.sockets.collect() for sample in family.samples)
    content = {
        "bytes": (staged_bytes, state.uploads.held_bytes, state.unread.bytes),
        "cpu_s": time.process_time(),
        "sockets": round(sockets),
        "counts": counts,
    }
    return orjson.dumps(content)


class Worker(Protocol):
    """Part of `gateway.ingest.worker.Worker`."""

    @property
    def figures(self) -> Figures:
        """Of it, and of those before it."""

    @property
    def listening(self) -> bool:
        """Whether it takes connections."""


class IngestCollector(Collector):
    """Shows the figures of all ingest processes; the label `process` counts from 0.

    Args:
        workers: By that number.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self.handover = Durations()
        self._handover = BucketsCollector(
            "framegate_ingest_handover_seconds", "From a body's last byte to the engine", {"": self.handover}
        )

    def describe(self) -> list[Metric]:
        """Return nothing: they need not be running when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read them."""
        listening = GaugeMetricFamily("framegate_ingest_listening", "Whether it takes connections", labels=["process"])
        restarts = CounterMetricFamily("framegate_ingest_restarts", "Processes that ended", labels=["process"])
        frames = CounterMetricFamily("framegate_ingest_frames", "Frames handed to the engine", labels=["process"])
        cpu = CounterMetricFamily("framegate_ingest_cpu_seconds", "Processor time", labels=["process"])
        held = GaugeMetricFamily("framegate_ingest_bytes", "What it holds", labels=["process", "what"])
        for number, worker in enumerate(self._workers):
            figures, name = worker.figures, str(number)
            listening.add_metric([name], worker.listening)
            restarts.add_metric([name], max(0, figures.starts - 1))
            frames.add_metric([name], figures.frames)
            cpu.add_metric([name], figures.cpu_s)
            for what in ("staged", "upload", "unread"):
                held.add_metric([name, what], getattr(figures, f"{what}_bytes"))
        yield from (listening, restarts, frames, cpu, held)
        yield from self._handover.collect()
