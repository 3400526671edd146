"""What `framegate models` says when a command is refused: in words of the command line, not of HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.client.models_show import in_a_line
from gateway.client.problems import ProblemError
from gateway.sizes import in_unit

_HELD_BY = {
    "stream": "real-time streams need it",
    "command": "it is pinned",
    "hold": "a call is about to use it",
}


def refused(error: ProblemError, model: str) -> str:
    """Return why a command about `model` came to nothing, and what to do."""
    if error.code == "unknown_model":
        return f"there is no model {model!r}; `framegate models list --all` shows what there is"
    if error.code == "model_pinned":
        pins = error.document.get("pins") or ()
        why = " and ".join(_HELD_BY.get(str(pin), str(pin)) for pin in pins) or "it is needed"
        unpin = f"`framegate models unpin {model}`, or " if "command" in pins else ""
        return f"{model} has to stay: {why}. {unpin}--force unloads it all the same, and its frames fail"
    if error.code == "model_not_loaded":
        return f"{in_a_line(error.detail)}: `framegate models load {model}`"
    memory = error.document.get("memory")
    if error.code == "no_room_for_model" and isinstance(memory, Mapping):
        return _no_room(model, memory)
    return in_a_line(error.detail or error.title)


def _no_room(model: str, memory: Mapping[str, Any]) -> str:
    def figure(name: str) -> str:
        return in_unit(memory[name], memory["unit"])

    said = f"{model} needs {figure('needed')} of the budget of {figure('budget')}"
    if memory["needed"] > memory["budget"]:
        return f"{said}: serve with a larger one (--memory-budget, --max-models)"
    held = ", ".join(f"{name} {in_unit(value, memory['unit'])}" for name, value in memory["held"].items())
    return (
        f"{said}; what has to stay leaves {figure('free')} ({held or 'nothing'}). `framegate models unpin` what is "
        "pinned, close the streams that need it, or serve with a larger budget (--memory-budget, --max-models)"
    )
