"""Prometheus metrics. ``docs/metrics.md`` says what each means and what to do about it.

Three sources: jobs as they end (`Metrics` is an observer of the driver), the answers of the HTTP routes,
and, at scrape time, the gateway's own books (`gateway.telemetry.collector`). Label values come from bounded
sets: models of the profile, outcomes, error codes, route templates. Nothing that a caller chooses becomes
one, except a stream's name, and that series goes when the stream does.

The books balance from this endpoint alone: for each model ``framegate_frames_accepted_total`` is the sum
over outcomes of ``framegate_frames_total``, plus ``framegate_frames_in_flight``.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from gateway.core.actions import (
    Action,
    DeliverFrames,
    LoadModel,
    ModelChanged,
    ModelRefused,
    PlanStale,
    RetryFrames,
    UnloadModel,
)
from gateway.core.adaptation import Cause
from gateway.core.events import Event
from gateway.core.types import NS_PER_S, Job
from gateway.telemetry.buckets import Buckets, BucketsCollector
from gateway.telemetry.decisions import DecisionLog
from gateway.telemetry.residency import ResidencyMetrics
from gateway.telemetry.stalls import Stalls
from gateway.telemetry.text import pieces

#: Half a millisecond to ten seconds. About three steps a decade are enough to see where a deadline falls.
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10)
#: Actual over expected execution time: 1 is the plan. The profile's p99 leaves most jobs a little below it.
RATIOS = (0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2, 3, 5)
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


class ModelMetrics:
    """The children of one model, looked up once."""

    def __init__(self, owner: Metrics, model: str) -> None:
        self.latency = owner.latency[model]
        self.queue = owner.queue[model]
        self.execute = owner.execute[model]
        self.batch = owner.batch[model]
        self.ratio = owner.ratio[model]
        self.early = owner.early.labels(model)
        self.ahead = owner.ahead.labels(model)
        self.overruns = owner.overruns.labels(model)
        self.degraded = owner.degraded.labels(model)
        self.overrun_seconds = {cause: owner.overrun_seconds.labels(model, cause.value) for cause in Cause}

    def delivered(self, job: Job, started_ns: int, finished_ns: int, cause: str) -> None:
        """Record one job that was answered; `cause` as in `gateway.core.actions.DeliverFrames`."""
        execution_ns = finished_ns - started_ns
        self.batch.add(len(job.frames))
        self.execute.add(execution_ns)
        self.ratio.add(execution_ns / job.execution_ns)
        if job.early:
            self.early.inc()
        if job.ahead:
            self.ahead.inc()
        if cause:
            self.overruns.inc()
            self.overrun_seconds[Cause(cause)].inc((execution_ns - job.execution_ns) / NS_PER_S)
        if job.small:
            self.degraded.inc(len(job.frames))
        latency, queue = self.latency.add, self.queue.add
        for frame in job.frames:
            arrival_ns = frame.arrival_ns
            latency(finished_ns - arrival_ns)
            queue(started_ns - arrival_ns)


class Metrics:
    """Counters and histograms in a registry of their own; an observer of the driver.

    Attributes:
        registry: For further collectors.
        refused: Frames refused before they reached the gateway, by error code.
        stalls: What holds up the event loop; measured between its `start` and `stop`.
    """

    def __init__(self, version: str) -> None:
        # For the whole process: the instants at which series began say nothing, and there are as many as counters.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.refused: Tally[str] = Tally()
        Info("framegate_build", "The running gateway", registry=self.registry).info({"version": version})
        ProcessCollector(registry=self.registry)
        self.registrations = self._counter("registrations", "Registrations answered, by result", "result")
        self.early = self._counter(
            "jobs_early", "Jobs sent before their joint: to an idle device, or full and ahead of a job's end", "model"
        )
        self.ahead = self._counter(
            "jobs_sent_ahead", "Jobs sent to Triton before the one ahead of them had ended", "model"
        )
        self.overruns = self._counter("jobs_overrun", "Jobs that took longer than their profiled time", "model")
        self.degraded = self._counter("frames_degraded", "Frames that were run at a smaller shape", "model")
        self.overrun_seconds = self._counter(
            "overrun_seconds", "Time that jobs took beyond their profiled time", "model", "cause"
        )
        self.undelivered = self._counter(
            "results_undelivered", "Results that a WebSocket's or event stream's client did not take", "reason"
        )
        for reason in ("client_gone", "slow_reader"):
            self.undelivered.labels(reason)
        self.sockets = Gauge("framegate_websockets", "Open WebSockets", registry=self.registry)
        self.event_streams = Gauge("framegate_event_streams", "Open event streams", registry=self.registry)
        self.retried = self._counter("frames_retried", "Frames of refused batches that were tried again alone", "model")
        self.responses = self._counter("http_responses", "HTTP calls answered", "method", "route", "status")
        self.latency = self._by_model("frame_latency_seconds", "From arrival to Triton's reply", SECONDS, NS_PER_S)
        self.queue = self._by_model(
            "frame_queue_seconds", "From arrival to the start of the frame's job", SECONDS, NS_PER_S
        )
        self.execute = self._by_model(
            "job_execute_seconds", "From the start of a job to Triton's reply", SECONDS, NS_PER_S
        )
        self.batch = self._by_model("job_batch_frames", "Frames in a job", BATCHES)
        self.ratio = self._by_model("job_execution_ratio", "Execution time of a job over its profiled time", RATIOS)
        self.stale = self._counter("plans_stale", "Plans that no longer held when they were made", "plan")
        for plan in ("register", "widen"):
            self.stale.labels(plan)
        self._tests = Histogram(
            "framegate_admission_seconds",
            "From a call to its verdict: its turn, and the test",
            ("call", "test"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._models: dict[str, ModelMetrics] = {}
        self.residency = ResidencyMetrics(self.registry)
        self.stalls = Stalls(self.registry)
        self._told: dict[type[Any], Callable[[int, Any], None]] = {
            PlanStale: self._on_stale,
            RetryFrames: self._on_retry,
            DeliverFrames: self._on_delivery,
            **dict.fromkeys((LoadModel, UnloadModel, ModelChanged, ModelRefused), self.residency.on_action),
        }

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"framegate_{name}", text, labels, registry=self.registry)

    def _by_model(self, name: str, text: str, bounds: Sequence[float], unit: int = 1) -> dict[str, Buckets]:
        """Return a histogram's series by model, each of which comes into being when it is asked for."""
        series: dict[str, Buckets] = defaultdict(partial(Buckets, bounds, unit))
        self.registry.register(BucketsCollector(f"framegate_{name}", text, series, "model"))
        return series

    def on_actions(self, now_ns: int, event: Event, actions: Sequence[Action]) -> None:
        """Record the jobs that ended, models that came or went, plans that were void. An observer of the driver."""
        self.residency.on_event(now_ns, event, actions)
        told = self._told
        for action in actions:
            record = told.get(type(action))
            if record is not None:
                record(now_ns, action)

    def _on_stale(self, _now_ns: int, action: PlanStale) -> None:
        self.stale.labels("register" if action.stream_id else "widen").inc()

    def _on_retry(self, _now_ns: int, action: RetryFrames) -> None:
        if action.refused:
            self.retried.labels(action.job.category.model).inc(len(action.frames))

    def _on_delivery(self, _now_ns: int, action: DeliverFrames) -> None:
        job = action.job
        model = job.category.model
        metrics = self._models.get(model)
        if metrics is None:
            metrics = self._models[model] = ModelMetrics(self, model)
        metrics.delivered(job, action.started_ns, action.finished_ns, action.cause)
        self.residency.on_served(model, job.frames)

    def tested(self, call: str, test: str, seconds: float) -> None:
        """Record an admission test: `call` is ``register`` or ``check``, `test` the one that decided."""
        self._tests.labels(call, test).observe(seconds)

    def watch_log(self, log: DecisionLog) -> None:
        """Show how much of the decision log is missing."""
        gauge = Gauge("framegate_decision_log_dropped", "Decisions that were not logged", registry=self.registry)
        gauge.set_function(lambda: log.dropped)

    def watch_log_lines(self, dropped: Callable[[], float]) -> None:
        """Show how many lines of the gateway's log are missing."""
        gauge = Gauge("framegate_log_lines_dropped", "Lines of the log that were not written", registry=self.registry)
        gauge.set_function(dropped)

    def watch_uploads(self, held_bytes: Callable[[], float]) -> None:
        """Show how much of `limits.inflight_body_bytes` is taken."""
        gauge = Gauge("framegate_upload_bytes", "Bodies that are being read", registry=self.registry)
        gauge.set_function(held_bytes)

    def watch_unread(self, unread_bytes: Callable[[], float]) -> None:
        """Show how much of `limits.unread_bytes` is taken."""
        gauge = Gauge("framegate_unread_bytes", "Outputs that wait for clients of WebSockets", registry=self.registry)
        gauge.set_function(unread_bytes)

    def render(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """Give the same, a piece at a time: with a thousand streams all of it takes tens of milliseconds."""
        return pieces(self.registry)
