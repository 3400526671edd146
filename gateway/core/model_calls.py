"""What the worker says of models: how loads and unloads have ended, and how first executions went.

See `gateway.core.residency` for the states.
"""

from __future__ import annotations

from gateway.core.actions import Action
from gateway.core.batch import NEVER_NS
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.events import (
    LateLoadEnded,
    MemoryMeasured,
    ModelLoaded,
    ModelLoadFailed,
    ModelLost,
    ModelUnloaded,
    ModelUnloadFailed,
)
from gateway.core.model import Model
from gateway.core.residency import Residency
from gateway.core.types import Job, ModelState
from gateway.core.waiting import Waiting
from gateway.core.warm_ups import WarmUp, warm_ups


class ModelCalls:
    """See the module's docstring.

    Args:
        residency, waiting, device, config: The engine's.

    Attributes:
        models: Those that something was said of.
    """

    def __init__(self, residency: Residency, waiting: Waiting, device: Device, config: EngineConfig) -> None:
        self.models = residency.models
        self._residency = residency
        self._waiting = waiting
        self._device = device
        self._factor = config.residency.warm_up_factor
        self._ended_ns = -NEVER_NS

    # ------------------------------------------------------------ loads

    def loaded(self, event: ModelLoaded, now_ns: int, actions: list[Action]) -> None:
        """A model is there."""
        residency = self._residency
        model = self._concerned(event.model)
        if model is None or (self._device.lost and not event.warm):
            return  # the second: of a load from before the loss
        memory = residency.memory
        if event.held_bytes is not None and not memory.counts:
            model.size = event.held_bytes
        weight = residency.size(model.name) or 0
        called = self._end(model, now_ns)
        if model.state is ModelState.RESIDENT:
            memory.hold_once(model.name)
            memory.correct(model.name, weight)
            if called:
                residency.enter(model, ModelState.RESIDENT, "reloaded", actions)
            return
        memory.free(model.name)
        memory.hold(model.name, weight)
        if model.barred and called:
            return  # it is unloaded at once
        if event.warm:
            self._ready(model, actions)
            return
        if model.state is not ModelState.LOADING:  # without a budget, by somebody else
            residency.enter(model, ModelState.LOADING, "found", actions)
        self.warm(model, now_ns, actions)

    def load_failed(self, event: ModelLoadFailed, now_ns: int, actions: list[Action]) -> None:
        """A model is not there; or, after a reload, it is still the old one."""
        residency = self._residency
        model = self._concerned(event.model)
        if model is None:
            return
        called = self._end(model, now_ns)
        model.lingers = event.lingers
        if called == "reload":
            if not event.lingers:
                residency.memory.hold_once(model.name)
            residency.enter(model, ModelState.RESIDENT, f"reload_failed: {event.reason}", actions)
            return
        if not event.lingers:
            residency.memory.free(model.name)
        residency.forget_warm_ups(model)
        residency.pause(model, event.reason, now_ns)
        self._away(model, actions)

    def late_load_ended(self, event: LateLoadEnded, _now_ns: int, _actions: list[Action]) -> None:
        """What was held for a load that was given up is free."""
        residency = self._residency
        model = residency.models.get(event.model)
        if model is None or not model.lingers:
            return
        model.lingers = False
        if model.away:
            residency.memory.free(model.name)
        else:
            residency.memory.hold_once(model.name)
        residency.stir()

    def _concerned(self, name: str) -> Model | None:
        """Return the model whose load has ended; None: it was not under way.

        While the worker counts as lost, the driver tells of what it loads and warms without being asked; without a
        budget it may do so at any time.
        """
        if self._device.lost:
            return self._residency.know(name)
        model = self._residency.models.get(name)
        if self._residency.managed:
            return model if model is not None and model.called in ("load", "reload") else None
        model = model or self._residency.know(name)
        return None if model.called == "unload" or model.warm_ups else model

    # ------------------------------------------------------------ unloads

    def unloaded(self, event: ModelUnloaded, now_ns: int, actions: list[Action]) -> None:
        """A model is gone, and its memory is free."""
        model = self._residency.models.get(event.model)
        if model is not None and model.called == "unload":
            self._end(model, now_ns)
            self._residency.memory.free(model.name)
            if event.used_bytes is not None:  # no load may begin on memory that was not given back
                self._residency.memory.measured(event.used_bytes, quiet=False)
            self._away(model, actions)

    def unload_failed(self, event: ModelUnloadFailed, now_ns: int, actions: list[Action]) -> None:
        """A model is still there; it is told to go again after a pause, if it is still to go then."""
        residency = self._residency
        model = residency.models.get(event.model)
        if model is None or model.called != "unload":
            return
        self._end(model, now_ns)
        residency.memory.stay(model.name)
        failure = model.failure
        residency.pause(model, failure or event.reason, now_ns)
        if failure:
            return  # it could not be warmed either, so nothing of it may start
        model.failure, model.wanted = "", False  # whoever wants it has it
        residency.enter(model, ModelState.RESIDENT, f"unload_failed: {event.reason}", actions)
        if residency.turns is not None and model.name in residency.region_models:
            residency.turns.missed(model.name)

    def lost(self, event: ModelLost, now_ns: int, actions: list[Action]) -> None:
        """A model that was there is gone."""
        residency = self._residency
        model = residency.models.get(event.model)
        if model is None and not residency.managed:
            model = residency.know(event.model)
        if model is not None and not model.away and not model.called:
            residency.memory.free(model.name)
            residency.forget_warm_ups(model)
            residency.reloads.discard(model.name)
            self._away(model, actions, event.reason)

    def _away(self, model: Model, actions: list[Action], reason: str = "") -> None:
        """A model holds nothing any more."""
        residency = self._residency
        if model.barred:
            model.failure = ""
            residency.enter(model, ModelState.ABSENT, "command", actions)
        elif model.failure:
            model.wanted = False
            residency.enter(model, ModelState.FAILED, model.failure, actions)
        else:
            residency.resume(model)
            residency.enter(model, ModelState.ABSENT, reason or model.reason, actions)
        if residency.turns is not None and model.name in residency.region_models:
            residency.turns.missed(model.name)

    # ------------------------------------------------------------ all models

    def measured(self, event: MemoryMeasured, _now_ns: int, _actions: list[Action]) -> None:
        """What is held in all, unless a model is coming or going."""
        if not self._residency.calling:
            self._residency.memory.measured(event.used_bytes)

    def worker_lost(self, actions: list[Action]) -> None:
        """Nothing is there any more, and no call is under way."""
        residency = self._residency
        residency.memory.clear()
        residency.reloads.clear()
        for model in residency.models.values():
            residency.forget_warm_ups(model)
            residency.resume(model)
            model.called, model.failure, model.lingers = "", "", False
            model.stayed = model.state is ModelState.RESIDENT or (model.stayed and model.state is ModelState.ABSENT)
            if model.state is not ModelState.ABSENT:
                residency.enter(model, ModelState.ABSENT, "worker_lost", actions)
        if residency.turns is not None:
            residency.turns.lost()

    def worker_back(self) -> None:
        """What was to be there again has been loaded."""
        for model in self._residency.models.values():
            model.stayed = False

    def _end(self, model: Model, now_ns: int) -> str:
        """A call has ended; return which."""
        called, model.called = model.called, ""
        self._ended_ns = now_ns
        return called

    def disturbed(self, since_ns: int) -> bool:
        """Whether a model came or went at any time from `since_ns` on."""
        return self._ended_ns > since_ns or self._residency.calling

    # ------------------------------------------------------------ first executions

    def warm(self, model: Model, now_ns: int, actions: list[Action]) -> None:
        """Have the first executions of a model run that is loaded."""
        residency, waiting = self._residency, self._waiting
        if residency.turns is not None and model.name in residency.region_models:
            due_ns, needed = residency.turns.due_ns(model.name, now_ns), residency.turns.warm_ups(model.name)
        else:
            due_ns, needed = None, warm_ups(model.name, waiting.batchers.values(), residency.profile, self._factor)
        for category, n, execution_ns in needed:
            warm_up = WarmUp(
                waiting.next_job, category, n, execution_ns=execution_ns, now_ns=now_ns, deadline_ns=due_ns
            )
            waiting.next_job += 1
            model.warm_ups.add(warm_up.id)
            if due_ns is None:
                waiting.warm_ups.append(warm_up)
            else:
                waiting.ready.push(warm_up)
        if not model.warm_ups:
            self._ready(model, actions)

    def ended(self, job: Job, failure: str | None, now_ns: int, actions: list[Action]) -> None:
        """A job has ended: a use of its model, or a first execution, which may have failed."""
        residency = self._residency
        model = residency.models.get(job.category.model)
        if model is None:
            return
        if not job.warm_up:
            model.last_use_ns = now_ns
        elif job.id in model.warm_ups:
            model.warm_ups.remove(job.id)
            if failure is not None:
                residency.pause(model, f"warm-up: {failure}", now_ns)
                residency.unload(model.name, "warm_up_failed", actions)
            elif not model.warm_ups:
                self._ready(model, actions)

    def skip(self, warm_up: WarmUp, actions: list[Action]) -> None:
        """A first execution that waits is not needed any more."""
        self._waiting.forget_warm_up(warm_up)
        model = self._residency.models[warm_up.category.model]
        model.warm_ups.remove(warm_up.id)
        if not model.warm_ups:
            self._ready(model, actions)

    def _ready(self, model: Model, actions: list[Action]) -> None:
        residency = self._residency
        model.wanted, model.failure, model.failures = False, "", 0
        residency.resume(model)
        residency.owe(model)
        residency.enter(model, ModelState.RESIDENT, "", actions)
        if residency.turns is not None and model.name in residency.region_models:
            residency.turns.ready()
