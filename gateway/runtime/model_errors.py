"""What the engine says of models, as the errors that answer callers."""

from __future__ import annotations

from gateway.core.actions import ModelRefused
from gateway.core.types import ModelState
from gateway.core.verdict import MemoryEvidence
from gateway.core.view import ModelView
from gateway.errors import (
    FramegateError,
    ModelLoadFailed,
    ModelNotLoaded,
    ModelPinned,
    ModelTakesTurns,
    NoRoomForModel,
)
from gateway.sizes import in_unit

#: Where nothing better is known.
_RETRY_AFTER_S = 1.0

#: The first words of the reason of a frame that failed because its model was not there, and of a refusal.
_NO_ROOM, _NOT_SIZED, _UNLOADED, _PINNED = "no_room", "not_sized", "unloaded", "pinned"
_TOO_LONG = "load_too_long"
#: Of a change of state that is none: the model is there as before.
RELOAD_FAILED, UNLOAD_FAILED = "reload_failed: ", "unload_failed: "
#: Of a refusal and of a change: the model is loaded when it has its turn in the swap region, and not before.
TAKES_TURNS = "takes_turns"
_PINS = {
    "stream": "real-time streams need it",
    "command": "it was pinned by command",
    "hold": "a caller waits for it",
}
_FRAME_REASONS = {
    "model_load_failed": ModelLoadFailed,
    _NO_ROOM: NoRoomForModel,
    _NOT_SIZED: NoRoomForModel,
    _TOO_LONG: NoRoomForModel,
    "model_unloaded": ModelNotLoaded,
}


def load_failed(model: str, reason: str, retry_s: float = _RETRY_AFTER_S) -> ModelLoadFailed:
    """Return what tells a caller that a model could not be loaded, in Triton's words."""
    return ModelLoadFailed(f"Model {model!r} could not be loaded: {reason}", retry_after_s=retry_s, model=model)


def unloaded(model: str) -> ModelNotLoaded:
    """Return what tells a caller that a model is kept out of memory."""
    return ModelNotLoaded(f"Model {model!r} was unloaded by command; it has to be loaded by command.", model=model)


def refused(action: ModelRefused, view: ModelView, now_ns: int) -> FramegateError:
    """Return the error of a command or a hold that came to nothing. `view`: of the model, `now_ns`: the engine's."""
    model, reason = action.model, action.reason
    if reason == _PINNED:
        return ModelPinned(
            f"Model {model!r} has to stay: {_needed_by(view.pins)}. With `force` it is unloaded all the same.",
            model=model,
            pins=list(view.pins),
        )
    if reason == _UNLOADED:
        return unloaded(model)
    if reason == TAKES_TURNS:
        return ModelTakesTurns(
            f"Model {model!r} takes turns in memory with others, as its streams agreed with `swapping`: it is loaded "
            "when it has its turn, each time in its newest version. Close those streams to load it by command.",
            model=model,
        )
    if reason == _TOO_LONG:
        return NoRoomForModel(
            f"Models that take turns in memory cannot wait until model {model!r} is loaded, or how long that takes is "
            "not profiled.",
            model=model,
        )
    if reason in (_NO_ROOM, _NOT_SIZED):
        return _no_room(view, reason, action.memory)
    retry_s = _RETRY_AFTER_S if view.retry_ns is None else max(0.0, (view.retry_ns - now_ns) / 1e9)
    return load_failed(model, reason.removeprefix("failed: "), retry_s)


def of_frame(reason: str, **members: object) -> FramegateError | None:
    """Return the error of a frame that failed with `reason`, if that is because its model was not there; else None."""
    word, _, said = reason.partition(": ")
    kind = _FRAME_REASONS.get(word)
    if kind is None:
        return None
    retry_s = _RETRY_AFTER_S if kind is ModelLoadFailed else None
    return kind(f"{kind.title}{': ' + said if said else ''}.", retry_after_s=retry_s, reason=reason, **members)


def _needed_by(pins: tuple[str, ...]) -> str:
    return " and ".join(_PINS.get(pin, pin) for pin in pins) or "it is needed"


def _no_room(view: ModelView, reason: str, memory: MemoryEvidence | None) -> NoRoomForModel:
    model = view.model
    if reason == _NOT_SIZED:
        return NoRoomForModel(
            f"The size of model {model!r} is not known, and the memory budget is in bytes. Profile it.", model=model
        )
    if memory is None:
        return NoRoomForModel(f"There is no room for model {model!r}.", model=model)
    beside = ", the old one and the new one," if view.state is ModelState.RESIDENT else ""
    needed, budget, free, lost = (
        in_unit(value, memory.unit) for value in (memory.needed, memory.budget, memory.free, memory.lost)
    )
    held = ", ".join(f"{name} {in_unit(amount, memory.unit)}" for name, amount in memory.held)
    gone = f", and {lost} were not given back" if memory.lost else ""
    return NoRoomForModel(
        f"Model {model!r} needs {needed}{beside} of the budget of {budget}. What has to stay leaves {free}: "
        f"{held or 'nothing'}{gone}. Unpin what is not needed, close streams, or give a larger budget.",
        model=model,
        memory=memory.to_dict(),
    )
