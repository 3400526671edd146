"""All that the engine knows and decides about models in memory, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gateway.core.actions import Action
from gateway.core.books import Ledger
from gateway.core.config import EngineConfig
from gateway.core.demand import Demand
from gateway.core.device import Device
from gateway.core.endings import Endings
from gateway.core.events import (
    HoldModel,
    LateLoadEnded,
    MemoryMeasured,
    ModelLoaded,
    ModelLoadFailed,
    ModelLost,
    ModelUnloaded,
    ModelUnloadFailed,
    PinModel,
    ReleaseModel,
    RequestLoad,
    RequestUnload,
)
from gateway.core.model_calls import ModelCalls
from gateway.core.model_commands import ModelCommands
from gateway.core.model_views import model_views
from gateway.core.promises import Promises
from gateway.core.residency import Residency
from gateway.core.set_up import models_to_load
from gateway.core.swap_region import SwapRegion
from gateway.core.view import ModelView
from gateway.core.waiting import Waiting


class Models:
    """See the module's docstring.

    Args:
        ledger, waiting, device, endings, promises, config: The engine's.

    Attributes:
        residency: States.
        calls: What the worker says.
        demand: Decides what is loaded and what gives way.
        handlers: Of the events that concern models.
    """

    def __init__(
        self,
        ledger: Ledger,
        waiting: Waiting,
        device: Device,
        *,
        endings: Endings,
        promises: Promises,
        config: EngineConfig,
    ) -> None:
        self.residency = Residency(waiting, device, endings, promises, config)
        self.calls = ModelCalls(self.residency, waiting, device, config)
        self.demand = Demand(self.residency, self.calls, ledger, waiting, device, promises=promises, config=config)
        self._ledger = ledger
        self._waiting = waiting
        if self.residency.managed:
            promises.region = SwapRegion(waiting, device, self.residency, promises, config)
        commands = ModelCommands(self.residency)
        self.handlers: dict[type[Any], Callable[[Any, int, list[Action]], None]] = {
            ModelLoaded: self.calls.loaded,
            ModelLoadFailed: self.calls.load_failed,
            LateLoadEnded: self.calls.late_load_ended,
            ModelUnloaded: self.calls.unloaded,
            ModelUnloadFailed: self.calls.unload_failed,
            ModelLost: self.calls.lost,
            MemoryMeasured: self.calls.measured,
            RequestLoad: commands.load,
            RequestUnload: commands.unload,
            PinModel: commands.pin,
            HoldModel: commands.hold,
            ReleaseModel: commands.release,
        }

    def views(self, now_ns: int) -> tuple[ModelView, ...]:
        """Return what is shown of them."""
        return model_views(self.residency, self._ledger, self._waiting, now_ns)

    def to_load(self, ready: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
        """See `Engine.models_to_load`."""
        return models_to_load(self.residency, ready, wanted)
