"""Metrics of models that come and go: loads, unloads, swaps, and frames that waited for them.

Read off the engine's own actions and the events that end them. An end of something that is not under way, a
worker's late answer for example, is not counted: the engine ignores it too.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from gateway.core.actions import Action, LoadModel, ModelChanged, ModelRefused, UnloadModel
from gateway.core.events import (
    Event,
    ModelLoaded,
    ModelLoadFailed,
    ModelLost,
    ModelUnloaded,
    ModelUnloadFailed,
    WorkerLost,
)
from gateway.core.types import NS_PER_S, Frame, ModelState

#: Ten milliseconds (a C++ backend) to two minutes (`residency.load_timeout_s`).
SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60, 120)
#: Why models are unloaded; those that make room for another one first.
FOR_ROOM = ("eviction", "swap")
UNLOADS = (*FOR_ROOM, "command", "warm_up_failed")
REFUSALS = ("no_room", "pinned", "unloaded", "not_sized", "takes_turns", "load_too_long", "failed")
#: Most events are frames: they are to cost nothing here.
_TOLD = frozenset({ModelLoaded, ModelLoadFailed, ModelUnloaded, ModelUnloadFailed, ModelLost, WorkerLost})


class ResidencyMetrics:
    """Part of `gateway.telemetry.metrics.Metrics`.

    Args:
        registry: Its registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.swaps = self._counter("swaps", "Models loaded in the place of another one", "model")
        self.loads = self._counter("model_loads", "Loads that ended, by outcome", "model", "outcome")
        self.unloads = self._counter("model_unloads", "Unloads that ended, by outcome", "model", "outcome")
        self.load = self._histogram("model_load_seconds", "From the order to load to Triton's word that it is there")
        self.warm_up = self._histogram("model_warm_up_seconds", "From then until its jobs may start")
        self.unload = self._histogram("model_unload_seconds", "From the order to unload until Triton lists it no more")
        self.wait = self._histogram("load_wait_seconds", "Time that served frames waited for their model")
        self.evictions = self._counter("evictions", "Models told to go, by reason", "reason")
        self.refusals = self._counter("model_refusals", "Commands and uses of a model that came to nothing", "reason")
        for reason in UNLOADS:
            self.evictions.labels(reason)
        for reason in REFUSALS:
            self.refusals.labels(reason)
        #: Of each model that is being loaded or warmed: since when, and why; since when it is there.
        self._loading: dict[str, tuple[int, str]] = {}
        self._loaded_ns: dict[str, int] = {}
        self._unloading_ns: dict[str, int] = {}
        #: Of each model that was away: since when, and until when.
        self._gone_ns: dict[str, int] = {}
        self._back_ns: dict[str, int] = {}
        self._away: set[str] = set()
        #: Unloads that made room which no load has taken yet.
        self._made_room = 0

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"framegate_{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"framegate_{name}", text, ("model",), buckets=SECONDS, registry=self._registry)

    # ------------------------------------------------------------ what ended

    def on_event(self, now_ns: int, event: Event, actions: Sequence[Action]) -> None:
        """Record what a worker says, before the actions that follow from it."""
        if type(event) not in _TOLD:
            return
        match event:
            case ModelLoaded() if event.model in self._loading and event.model not in self._loaded_ns:
                self._on_loaded(now_ns, event.model)
            case ModelLoadFailed() if event.model in self._loading:
                self._end_load(event.model, "failed")
            case ModelUnloaded() if (began_ns := self._unloading_ns.pop(event.model, None)) is not None:
                self.unloads.labels(event.model, "unloaded").inc()
                self.unload.labels(event.model).observe((now_ns - began_ns) / NS_PER_S)
            case ModelUnloadFailed() if self._unloading_ns.pop(event.model, None) is not None:
                self.unloads.labels(event.model, "failed").inc()
            case ModelLost() if any(isinstance(a, ModelChanged) and a.model == event.model for a in actions):
                self._gone_ns[event.model] = now_ns
                self.unloads.labels(event.model, "lost").inc()
            case WorkerLost():
                self._forget()

    def _on_loaded(self, now_ns: int, model: str) -> None:
        began_ns, reason = self._loading[model]
        self.load.labels(model).observe((now_ns - began_ns) / NS_PER_S)
        if reason == "reload":
            self._end_load(model, "loaded")
        else:
            self._loaded_ns[model] = now_ns

    def _end_load(self, model: str, outcome: str) -> None:
        del self._loading[model]
        self._loaded_ns.pop(model, None)
        self.loads.labels(model, outcome).inc()

    def _forget(self) -> None:
        """The worker is lost, and with it all that was under way."""
        for model in list(self._loading):
            self._end_load(model, "worker_lost")
        self._unloading_ns.clear()
        self._gone_ns.clear()
        self._back_ns.clear()
        self._made_room = 0

    # ------------------------------------------------------------ what was decided

    def on_action(self, now_ns: int, action: LoadModel | UnloadModel | ModelChanged | ModelRefused) -> None:
        """Record one action."""
        match action:
            case LoadModel():
                self._on_load(now_ns, action)
            case UnloadModel():
                self._on_unload(now_ns, action)
            case ModelChanged():
                self._on_change(now_ns, action)
            case ModelRefused():
                self.refusals.labels(action.reason.partition(":")[0]).inc()

    def _on_load(self, now_ns: int, action: LoadModel) -> None:
        self._loading[action.model] = (now_ns, action.reason)
        if self._made_room and action.reason != "reload":
            self._made_room -= 1
            self.swaps.labels(action.model).inc()

    def _on_unload(self, now_ns: int, action: UnloadModel) -> None:
        self._unloading_ns[action.model] = self._gone_ns[action.model] = now_ns
        self.evictions.labels(action.reason).inc()
        self._made_room += action.reason in FOR_ROOM
        if action.model in self._loading:
            self._end_load(action.model, "warm_up_failed" if action.reason == "warm_up_failed" else "unloaded")

    def _on_change(self, now_ns: int, action: ModelChanged) -> None:
        if action.state is not ModelState.RESIDENT:
            self._away.add(action.model)
        elif action.model in self._away:  # else it served on: a reload has ended, or failed
            self._away.remove(action.model)
            self._back_ns[action.model] = now_ns
            if (loaded_ns := self._loaded_ns.get(action.model)) is not None:
                self.warm_up.labels(action.model).observe((now_ns - loaded_ns) / NS_PER_S)
                self._end_load(action.model, "loaded")

    def on_served(self, model: str, frames: Sequence[Frame]) -> None:
        """Record how long frames that were answered had waited for their model."""
        back_ns = self._back_ns.get(model)
        if back_ns is None:
            return
        gone_ns = self._gone_ns.get(model, 0)
        for frame in frames:
            if frame.arrival_ns < back_ns:
                self.wait.labels(model).observe((back_ns - max(frame.arrival_ns, gone_ns)) / NS_PER_S)
