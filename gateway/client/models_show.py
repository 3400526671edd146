"""The table of `framegate models`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from gateway.client.models import MemoryInfo, ModelInfo, Models
from gateway.sizes import in_bytes

_HEADINGS = ("model", "state", "size", "last used", "next use", "waiting", "stays for")
_STYLES = {"resident": "green", "loading": "yellow", "unloading": "yellow", "failed": "red", "absent": "dim"}
_PINS = {"stream": "streams", "command": "a pin", "hold": "a call"}
_MS_PER_S, _S_PER_MIN, _MIN_PER_H = 1_000, 60, 60
_COMING = frozenset({"absent", "loading"})
_READY, _TRACEBACK = "ready", "Traceback (most recent call last)"
#: The last line of a traceback: an exception and its words.
_RAISED = re.compile(r"^[A-Za-z_][\w.]*: .*$", re.MULTILINE)
#: A reason in a list is a line; `--json` has all of it.
_LONGEST = 300


def show(answer: Models | ModelInfo, console: Console, *, everything: bool = False) -> None:
    """Print a list of models and the memory they share, or one model as it stands after a command.

    Of a list, those that nobody has profiled or used are only counted, unless `everything` is wanted.
    """
    listed = answer.models if isinstance(answer, Models) else (answer,)
    idle = 0
    if isinstance(answer, Models) and not everything:
        listed = tuple(model for model in listed if _matters(model))
        idle = len(answer.models) - len(listed)
    if listed:
        console.print(_table(listed))
    elif not idle:
        console.print("no models: Triton has not answered yet, or its repository is empty")
    for line in _notes(listed):
        console.print(line, markup=False, soft_wrap=True)
    if idle:
        console.print(f"and {idle} that {'is' if idle == 1 else 'are'} not profiled and not loaded (--all)")
    if isinstance(answer, Models):
        console.print(memory_line(answer.memory), markup=False, soft_wrap=True)


def _table(models: tuple[ModelInfo, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in {"size", "waiting"} else "left")
    for model in models:
        table.add_row(
            _named(model),
            f"[{_STYLES.get(model.state, '')}]{model.state}[/]" if model.state in _STYLES else model.state,
            "-" if model.size_bytes is None else in_bytes(model.size_bytes),
            "-" if model.last_used_ago_ms is None else f"{in_time(model.last_used_ago_ms)} ago",
            _next_use(model),
            str(model.frames_waiting),
            _stays_for(model),
        )
    return table


def _matters(model: ModelInfo) -> bool:
    """Whether anything is to be told of a model: one that Triton merely has a directory of has no version."""
    used = model.last_used_ago_ms is not None or model.frames_waiting > 0
    return used or model.state != "absent" or bool(model.versions or model.pins or model.barred or model.reason)


def _named(model: ModelInfo) -> str:
    """Return the name with the versions that are loaded."""
    ready = [str(each["version"]) for each in model.raw.get("versions", ()) if each["state"] == _READY]
    return f"{model.name}/{','.join(ready)}" if ready else model.name


def _next_use(model: ModelInfo) -> str:
    if model.next_use_in_ms is None:
        return "-"
    return "now" if model.next_use_in_ms <= 0 else f"in {in_time(model.next_use_in_ms)}"


def _stays_for(model: ModelInfo) -> str:
    """Return what keeps a model; one that takes turns comes and goes for its streams."""
    return (
        ", ".join("turns" if model.swap_region and pin == "stream" else _PINS.get(pin, pin) for pin in model.pins)
        or "-"
    )


def _notes(models: tuple[ModelInfo, ...]) -> Iterator[str]:
    """Say what a cell cannot hold."""
    for model in models:
        said = [_cut(in_a_line(model.reason))] if " " in model.reason else []  # single words say what the table says
        if model.retry_in_ms is not None:
            when = f"in {in_time(model.retry_in_ms)}" if model.retry_in_ms > 0 else "now"
            said.append(f"it may be tried again {when}")
        if "command" in model.pins and model.swap_region:
            said.append("it takes turns as long as its streams are there, and is pinned once they have gone")
        elif "command" in model.pins and model.state in _COMING:
            said.append("it is loaded as soon as there is room; `framegate models` shows what became of it")
        if model.barred:
            said.append(f"unloaded by command: `framegate models load {model.name}` brings it back")
        elif model.swap_region and model.state != "resident":
            said.append("it takes turns with others in memory, and is loaded when it has its turn")
        if said:
            yield f"{model.name}: {'; '.join(said)}"


def in_a_line(reason: str) -> str:
    """Return a reason without its line breaks, of a Python traceback the exception alone."""
    head, found, trace = reason.partition(_TRACEBACK)
    raised = _RAISED.findall(trace)
    line = " ".join([head, *raised[-1:]] if found else [reason])
    return " ".join(line.split()).replace(" . ", ". ").rstrip(" .;,:")


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}... (--json has all of it)"


def memory_line(memory: MemoryInfo) -> str:
    """Return the budget in a sentence."""
    if memory.budget is None:
        return "memory: no budget; models are loaded at the start and by command"

    def figure(value: int) -> str:
        return in_bytes(value) if memory.unit == "bytes" else str(value)

    held = f"{figure(memory.held)} of {figure(memory.budget)}"
    parts = [f"{held} held" if memory.unit == "bytes" else f"{held} models held"]
    if memory.region:
        parts[0] += f" ({figure(memory.region)} for those that take turns)"
    if memory.free is not None:
        parts.append(f"{figure(memory.free)} free")
    if memory.headroom:
        parts.append(f"{figure(memory.headroom)} more while models unload")
    if memory.lost:
        parts.append(f"{figure(memory.lost)} lost: the device holds more than its models")
    return f"memory: {', '.join(parts)}"


def in_time(value_ms: float) -> str:
    """Return a time for people: the largest unit that leaves at least one."""
    if value_ms < _MS_PER_S:
        return f"{value_ms:.0f} ms"
    seconds = value_ms / _MS_PER_S
    if seconds < _S_PER_MIN:
        return f"{seconds:.1f} s"
    minutes = seconds / _S_PER_MIN
    return f"{minutes:.0f} min" if minutes < _MIN_PER_H else f"{minutes / _MIN_PER_H:.1f} h"
