"""What `framegate profile` shows: progress, the table, and what could not be measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import Progress as Bar
from rich.progress import ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gateway.core.profile import ModelEntry, Profile, ProfileEntry
from gateway.core.profile_entry import MIN_SAMPLES
from gateway.core.types import Category
from gateway.zoo.registry import MODELS, VERSION
from profiler.pace import Pace
from profiler.plan import NO_SUCH_MODEL, Failure, Progress, Report

#: A 99th percentile beyond so many medians, or by so much over that of a larger batch, is that of a disturbed machine.
_TAIL, _FALL = 3.0, 1.05
_NOTES = {
    "<": f"under {MIN_SAMPLES} samples: planned with 1.1 times the largest",
    "~": "not settled, or p99 over 3 times p50, or p99 falls with the batch: other work\n"
    "  disturbed it, and its time costs cameras: measure again on a quiet machine",
    "^": "over 1.5 times as long as the same frames in smaller batches: not used by plans",
}


class _Done(ProgressColumn):
    """A bar that moves with the time, also within a point."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> ProgressBar:
        """Return it as it is now; `task` plays no part."""
        return ProgressBar(total=1.0, completed=self._pace.fraction(), width=30)


class _Left(ProgressColumn):
    """How many points are done, and what is left."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> Text:
        """Return it as it is now; `task` plays no part."""
        pace = self._pace
        return Text(f"{pace.done}/{pace.total} done, {left(pace.left_s())}" if pace.total else "")


def left(left_s: float | None) -> str:
    """Return in words how long something takes."""
    if left_s is None:
        return "time left not known yet"
    if left_s < 90:
        return f"about {max(1, round(left_s))} s left"
    return f"about {round(left_s / 60)} min left" if left_s < 5400 else f"about {left_s / 3600:.1f} h left"


@contextlib.contextmanager
def progress(pace: Pace) -> Iterator[Progress]:
    """Show a bar with the time left on stderr; where that is no terminal, a line for each step with it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), _Done(pace), _Left(pace), TimeElapsedColumn(), TextColumn("gone"))
    with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def on_progress(what: str, _samples: int) -> None:
            if not what:
                return
            bar.update(task, description=what)
            if not console.is_terminal:
                where = f" ({pace.number} of {pace.total}, {left(pace.left_s())})" if pace.number else ""
                typer.echo(what + where, err=True)

        yield on_progress


def table(report: Report) -> RenderableType:
    """Return what was measured as tables of at most 80 columns, unless a model's name is very long."""
    profile = report.profile
    headline = f"{profile.device}, Triton {profile.triton_version}, {profile.engine}; times in ms"
    marks = [_marks(profile, entry) for entry in profile.entries]
    parts: list[RenderableType] = [Text(headline), _figures(profile.entries, marks)]
    parts += [Text(f"{mark} {note}") for mark, note in _NOTES.items() if mark in "".join(marks)]
    if any(entry.compute_infer_ms is not None for entry in profile.entries):
        parts += [Text("\nin the server, on average"), _split(profile.entries)]
    if profile.models:
        parts += [Text("\nto bring a model in and out: ms (median and longest), and MiB of memory that it holds")]
        parts += [_swaps(profile.models)]
        if any(model.interference_p99 is not None for model in profile.models):
            said = "beside: execution time while another model loads, in multiples of alone; what comes out"
            parts.append(Text(f"{said}\n  below 1 is noise and counts as 1"))
    return Group(*parts)


def _marks(profile: Profile, entry: ProfileEntry) -> str:
    """Return what is to be said of a point, as keys of `_NOTES`."""
    thin = entry.count < MIN_SAMPLES
    disturbed = (not thin and not entry.stable) or entry.p99_ms > _TAIL * entry.p50_ms or _falls(profile, entry)
    category = Category(entry.model, entry.version, entry.shape, entry.dtype)
    wasted = entry.batch > profile.max_batch(category)
    return "<" * thin + "~" * disturbed + "^" * wasted


def _falls(profile: Profile, entry: ProfileEntry) -> bool:
    """Return whether a larger batch of the same has a clearly smaller 99th percentile."""

    def category(e: ProfileEntry) -> tuple[object, ...]:
        return e.model, e.version, e.shape, e.dtype

    larger = [e for e in profile.entries if category(e) == category(entry) and e.batch > entry.batch]
    return any(entry.p99_ms > _FALL * e.p99_ms for e in larger)


def _columns(*names: str) -> Table:
    figures = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in names:
        figures.add_column(name, justify="left" if name in {"model", "shape", ""} else "right", overflow="fold")
    return figures


def _point(entry: ProfileEntry) -> tuple[str, str, str]:
    return f"{entry.model}/{entry.version}", "x".join(map(str, entry.shape)), str(entry.batch)


def _figures(entries: Sequence[ProfileEntry], marks: Sequence[str]) -> Table:
    figures = _columns("model", "shape", "batch", "samples", "p50", "p99", "planned", "a frame", "")
    for entry, mark in zip(entries, marks, strict=True):
        times = (entry.p50_ms, entry.p99_ms, entry.execution_ms, entry.execution_ms / entry.batch)
        figures.add_row(*_point(entry), str(entry.count), *(f"{time:.2f}" for time in times), mark)
    return figures


def _split(entries: tuple[ProfileEntry, ...]) -> Table:
    figures = _columns("model", "shape", "batch", "queue", "input", "infer", "output")
    for entry in entries:
        parts = (entry.queue_ms, entry.compute_input_ms, entry.compute_infer_ms, entry.compute_output_ms)
        figures.add_row(*_point(entry), *("-" if part is None else f"{part:.2f}" for part in parts))
    return figures


def _swaps(models: tuple[ModelEntry, ...]) -> Table:
    beside = any(model.interference_p99 is not None for model in models)
    factors = ("p50 beside", "p99 beside") if beside else ()
    figures = _columns("model", "load", "longest", "unload", "longest", "warm-up", "MiB", *factors)
    for model in models:
        times = (model.load_ms, model.load_max_ms, model.unload_ms, model.unload_max_ms, model.warm_up_ms)
        measured = (model.interference_p50, model.interference_p99) if beside else ()
        figures.add_row(
            f"{model.model}/{model.version}",
            *("-" if time is None else f"{time:.0f}" for time in times),
            f"{model.bytes / 2**20:.0f}",
            *("-" if factor is None else f"x {max(1.0, factor):.2f}" for factor in measured),
        )
    return figures


def describe_failure(failure: Failure, repository: Path) -> str:
    """Return one line on what could not be measured and why; with the next step if the model is not built yet."""
    point = f" {'x'.join(map(str, failure.shape))} batch {failure.batch}" if failure.batch else ""
    line = f"not measured: {failure.model}{point}: {failure.reason}"
    spec = MODELS.get(failure.model)
    if spec is not None and not (repository / spec.name / VERSION / spec.file).exists():
        line += f" It is not built in {repository}: run framegate zoo build {spec.name}"
    elif spec is None and not failure.shape and NO_SUCH_MODEL in failure.reason:
        line += " framegate zoo list shows which models can be built."
    return " ".join(line.split())  # Triton's reasons have line breaks
