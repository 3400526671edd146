"""Metrics that are read from the gateway when they are asked for.

Counting where the books already are costs the hot path nothing, cannot disagree with them, and makes the
series of a stream end with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.core.types import NS_PER_S, ModelState, Outcome, ServiceClass, StreamSpec
from gateway.core.view import EngineView, MemoryView, ModelView
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.text import LazyMetric

#: A stream's name is the caller's; longer ones are cut.
NAME_CHARS = 64


class Books(Protocol):
    """Part of `gateway.runtime.results.Books`."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Frames refused, by reason."""

    @property
    def streams(self) -> Mapping[str, int]:
        """Streams that are over, by reason."""


class Pages(Protocol):
    """Part of `gateway.runtime.pages.Pages`."""

    @property
    def locked(self) -> bool:
        """Whether it is never swapped out."""

    @property
    def huge_bytes(self) -> int:
        """Bytes in huge pages."""


class Region(Protocol):
    """Part of `gateway.runtime.region.Region`."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def beside_bytes(self) -> int:
        """Bytes left beside it in shared memory."""

    @property
    def pages(self) -> Pages:
        """What the system does with it."""


class Arena(Protocol):
    """Part of `gateway.runtime.arena.Arena`."""

    @property
    def region(self) -> Region:
        """The memory."""

    @property
    def free_bytes(self) -> int:
        """Bytes in no batch's block."""

    @property
    def moves(self) -> int:
        """How often a frame was copied a second time."""

    @property
    def overflows(self) -> int:
        """Batches that lie beside it."""


class StreamFigures(Protocol):
    """Part of `gateway.runtime.results.StreamRecord`."""

    @property
    def stream_id(self) -> str:
        """Its id."""

    @property
    def spec(self) -> StreamSpec:
        """Its contract."""

    @property
    def state(self) -> str:
        """``active`` or ``closing``."""

    @property
    def in_flight(self) -> int:
        """Frames that have not ended."""

    @property
    def outcomes(self) -> Mapping[Outcome, int]:
        """Frames that have, by how."""


class Watched(Protocol):
    """Part of `gateway.runtime.gateway.Gateway`, which this package must not import."""

    @property
    def ready(self) -> bool:
        """Whether frames can be served now."""

    @property
    def triton_ready(self) -> bool:
        """Whether Triton is connected and set up."""

    @property
    def arena(self) -> Arena:
        """The frame arena."""

    def view(self, *, streams: bool = True) -> EngineView:
        """Return the engine's state, with its `streams` or without."""

    def streams(self) -> Sequence[StreamFigures]:
        """Return the streams that are not over."""

    def suspect(self, stream_id: str) -> bool:
        """Whether Triton refused frames of a stream."""

    def books(self, view: EngineView) -> Books:
        """Return the books since the start, as of that view."""

    def model_views(self) -> Sequence[ModelView]:
        """Return how every model of the repository stands."""


class GatewayCollector(Collector):
    """Frames, streams, device and arena of one gateway.

    Args:
        gateway: To be read.
        metrics: Whose `refused` is added to the gateway's.
    """

    def __init__(self, gateway: Watched, metrics: Metrics) -> None:
        self._gateway = gateway
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        """Return nothing: the gateway need not be running when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the gateway."""
        view = self._gateway.view(streams=False)
        books = self._gateway.books(view)
        yield from self._frames(view, books)
        yield from self._streams(books)
        yield from self._categories(view)
        yield from _models(self._gateway.model_views())
        yield from _memory(view.memory)
        yield from self._device(view)

    def _frames(self, view: EngineView, books: Books) -> Iterator[Metric]:
        accepted = CounterMetricFamily("framegate_frames_accepted", "Frames taken in", labels=["model"])
        ended = CounterMetricFamily("framegate_frames", "Accepted frames that ended", labels=["model", "outcome"])
        in_flight = GaugeMetricFamily("framegate_frames_in_flight", "Accepted frames not ended", labels=["model"])
        for model, totals in view.models.items():
            accepted.add_metric([model], totals.accepted)
            in_flight.add_metric([model], totals.in_flight)
            for outcome in Outcome:
                ended.add_metric([model, outcome.value], totals.outcomes.get(outcome, 0))
        by_class = CounterMetricFamily(
            "framegate_frames_by_class",
            "Accepted frames that ended, by what was promised",
            labels=["service_class", "outcome"],
        )
        for each in ServiceClass:
            for outcome in Outcome:
                by_class.add_metric([each.value, outcome.value], view.by_class.get(each, {}).get(outcome, 0))
        refused = CounterMetricFamily("framegate_refused", "Frames that were not taken in", labels=["reason"])
        for reason, count in (Counter(books.refused) + self._metrics.refused).items():
            refused.add_metric([reason], count)
        yield from (accepted, ended, by_class, in_flight, refused)

    def _streams(self, books: Books) -> Iterator[Metric]:
        listed = self._gateway.streams()
        streams = GaugeMetricFamily("framegate_streams", "Streams admitted", labels=["state"])
        for state in ("active", "closing"):
            streams.add_metric([state], sum(stream.state == state for stream in listed))
        yield streams
        suspects = sum(self._gateway.suspect(stream.stream_id) for stream in listed)
        yield _gauge("framegate_streams_suspect", "Streams whose frames go alone: Triton refused some", suspects)
        over = CounterMetricFamily("framegate_streams_ended", "Streams that are over", labels=["reason"])
        for reason, count in books.streams.items():
            over.add_metric([reason], count)
        yield over
        yield LazyMetric("framegate_stream_info", "Always 1", ((_named(stream), 1) for stream in listed))
        outcomes = (
            ({"stream_id": stream.stream_id, "outcome": outcome.value}, stream.outcomes.get(outcome, 0))
            for stream in listed
            for outcome in Outcome
        )
        yield LazyMetric("framegate_stream_frames", "Frames by outcome", outcomes)
        in_flight = (({"stream_id": stream.stream_id}, stream.in_flight) for stream in listed)
        yield LazyMetric("framegate_stream_frames_in_flight", "Frames not ended", in_flight)

    def _categories(self, view: EngineView) -> Iterator[Metric]:
        penalty = GaugeMetricFamily("framegate_penalty_seconds", "Overrun to be paid back", labels=["model", "shape"])
        degraded = GaugeMetricFamily("framegate_degraded", "Whether its jobs run small", labels=["model", "shape"])
        for each in view.categories:
            if each.category.service_class is ServiceClass.REAL_TIME:
                labels = [each.category.model, "x".join(map(str, each.category.shape))]
                penalty.add_metric(labels, each.penalty_ns / NS_PER_S)
                degraded.add_metric(labels, each.small_shape is not None)
        yield from (penalty, degraded)

    def _device(self, view: EngineView) -> Iterator[Metric]:
        yield _gauge("framegate_utilization_ratio", "Share of the device's time that is promised", view.utilization)
        yield _gauge("framegate_jobs_ready", "Jobs that wait for the device", len(view.ready))
        yield _gauge("framegate_device_busy", "Whether a job is running", view.running is not None)
        yield _gauge("framegate_triton_up", "Whether Triton answers", self._gateway.triton_ready)
        yield _gauge("framegate_ready", "Whether frames can be taken", self._gateway.ready)
        yield _gauge("framegate_promise_broken", "Whether admitted streams may miss", view.broken is not None)
        single = GaugeMetricFamily("framegate_single_frame_shapes", "Shapes whose batches fail", labels=["model"])
        for model, count in Counter(category.model for category in view.limited).items():
            single.add_metric([model], count)
        yield single
        arena = self._gateway.arena
        yield _gauge("framegate_arena_bytes", "Size of the frame arena", arena.region.size)
        yield _gauge("framegate_arena_free_bytes", "Bytes of the arena in no batch", arena.free_bytes)
        yield _gauge("framegate_arena_locked", "Whether the arena is never swapped out", arena.region.pages.locked)
        yield _gauge("framegate_arena_huge_bytes", "Bytes of the arena in huge pages", arena.region.pages.huge_bytes)
        yield _gauge("framegate_shm_free_bytes", "Bytes left in /dev/shm beside the arena", arena.region.beside_bytes)
        yield CounterMetricFamily("framegate_arena_moves", "Frames copied a second time", value=arena.moves)
        yield CounterMetricFamily("framegate_arena_overflows", "Batches beside the arena", value=arena.overflows)


def _named(stream: StreamFigures) -> dict[str, str]:
    return {"stream_id": stream.stream_id, "name": stream.spec.name[:NAME_CHARS], "model": stream.spec.model}


def _models(models: Sequence[ModelView]) -> Iterator[Metric]:
    states = GaugeMetricFamily("framegate_model_state", "1 for the state of a model", labels=["model", "state"])
    pinned = GaugeMetricFamily("framegate_model_pinned", "Whether a model has to stay", labels=["model"])
    waiting = GaugeMetricFamily("framegate_model_frames_waiting", "Frames that wait for a model", labels=["model"])
    for each in models:
        for state in ModelState:
            states.add_metric([each.model, state.value], each.state is state)
        pinned.add_metric([each.model], bool(each.pins))
        waiting.add_metric([each.model], each.waiting)
    yield from (states, pinned, waiting)


def _memory(memory: MemoryView) -> Iterator[Metric]:
    figures = {
        "framegate_memory_budget": ("What models may hold together", memory.budget),
        "framegate_memory_held": ("What models and the swap region hold", memory.held),
        "framegate_memory_region": ("Set aside for models that take turns", memory.region),
        "framegate_memory_lost": ("What the worker holds beyond what is known to be in it", memory.lost),
    }
    for name, (text, figure) in figures.items():
        if figure is not None:
            family = GaugeMetricFamily(name, text, labels=["unit"])
            family.add_metric([memory.unit], figure)
            yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))
