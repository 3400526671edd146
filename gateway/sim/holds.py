"""Real-time streams wait for their model before they register, as they do in the live gateway."""

from __future__ import annotations

from gateway.core.actions import ModelChanged, ModelRefused
from gateway.core.engine import Engine
from gateway.core.events import ReleaseModel
from gateway.core.types import ModelState, ServiceClass
from gateway.sim.trace import TraceEntry

#: Refusals that an admission test says better: it has the figures.
_FOR_ADMISSION = frozenset({"no_room", "not_sized", "takes_turns", "load_too_long"})


class Holds:
    """Who waits for which model. A holder's name is its stream's.

    Args:
        engine: For reading.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[str, list[str]] = {}
        self._models: dict[str, str] = {}

    def wait(self, entry: TraceEntry) -> bool:
        """Have a stream that is about to register wait for its model; return whether it has to."""
        spec = entry.spec
        if spec.service_class is not ServiceClass.REAL_TIME:
            return False
        known = {view.model: view for view in self._engine.model_views()}
        view = known.get(spec.model)
        if view is not None and (view.region or view.state is ModelState.RESIDENT):
            return False
        self._models[entry.stream_id] = spec.model
        self._waiting.setdefault(spec.model, []).append(entry.stream_id)
        return True

    def settled(self, action: ModelChanged | ModelRefused) -> list[tuple[str, str]]:
        """Return the streams that wait no longer, and why they cannot register; empty: they can."""
        failure = ""
        if isinstance(action, ModelRefused):
            failure = "" if action.reason in _FOR_ADMISSION else action.reason
        elif action.state is ModelState.FAILED:
            failure = f"model_load_failed: {action.reason}"
        elif action.state is not ModelState.RESIDENT:
            return []
        return [(stream_id, failure) for stream_id in self._waiting.pop(action.model, ())]

    def holding(self, stream_id: str) -> bool:
        """Whether a stream that has been answered still holds its model."""
        return stream_id in self._models

    def release(self, stream_id: str) -> ReleaseModel:
        """Return what ends a stream's hold."""
        return ReleaseModel(self._models.pop(stream_id), stream_id)
