"""What `framegate profile` shows: progress, the table, and what could not be measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from gateway.core.profile import ModelEntry, ProfileEntry
from gateway.core.profile_entry import MIN_SAMPLES
from gateway.zoo.registry import MODELS, VERSION
from profiler.plan import Failure, Plan, Progress, Report

#: The time left is reckoned from the last minutes: a point of a large batch takes longer than the bar's own 30 s.
_RECKONED_S = 300.0


@contextlib.contextmanager
def progress(plan: Plan) -> Iterator[Progress]:
    """Show a bar with the time left on stderr; where that is no terminal, a line for each step."""
    points = len(plan.models) * max(1, len(plan.shapes)) * len(plan.batches)
    console = Console(stderr=True)
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("samples,")),
        *(TimeElapsedColumn(), TextColumn("gone,"), TimeRemainingColumn(), TextColumn("left")),
    )
    with Bar(*columns, console=console, disable=not console.is_terminal, speed_estimate_period=_RECKONED_S) as bar:
        task = bar.add_task("starting", total=points * plan.samples)

        def on_progress(what: str, samples: int) -> None:
            if what:
                bar.update(task, description=what)
                if not console.is_terminal:
                    typer.echo(what, err=True)
            bar.advance(task, samples)

        yield on_progress


def table(report: Report) -> RenderableType:
    """Return what was measured as tables of at most 80 columns, unless a model's name is very long."""
    profile = report.profile
    headline = f"{profile.device}, Triton {profile.triton_version}, {profile.engine}; times in ms"
    parts: list[RenderableType] = [Text(headline), _figures(profile.entries)]
    if any(not entry.stable for entry in profile.entries):
        parts.append(Text(f"~ not settled   < under {MIN_SAMPLES} samples: planned with 1.1 times the largest"))
    if any(entry.compute_infer_ms is not None for entry in profile.entries):
        parts += [Text("\nin the server, on average"), _split(profile.entries)]
    if profile.models:
        parts += [Text("\nto bring a model in and out"), _swaps(profile.models)]
    return Group(*parts)


def _columns(*names: str) -> Table:
    figures = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in names:
        figures.add_column(name, justify="left" if name in {"model", "shape", ""} else "right", overflow="fold")
    return figures


def _point(entry: ProfileEntry) -> tuple[str, str, str]:
    return f"{entry.model}/{entry.version}", "x".join(map(str, entry.shape)), str(entry.batch)


def _figures(entries: tuple[ProfileEntry, ...]) -> Table:
    figures = _columns("model", "shape", "batch", "samples", "p50", "p99", "planned", "a frame", "")
    for entry in entries:
        times = (entry.p50_ms, entry.p99_ms, entry.execution_ms, entry.execution_ms / entry.batch)
        mark = "" if entry.stable else "<" if entry.count < MIN_SAMPLES else "~"
        figures.add_row(*_point(entry), str(entry.count), *(f"{time:.2f}" for time in times), mark)
    return figures


def _split(entries: tuple[ProfileEntry, ...]) -> Table:
    figures = _columns("model", "shape", "batch", "queue", "input", "infer", "output")
    for entry in entries:
        parts = (entry.queue_ms, entry.compute_input_ms, entry.compute_infer_ms, entry.compute_output_ms)
        figures.add_row(*_point(entry), *("-" if part is None else f"{part:.2f}" for part in parts))
    return figures


def _swaps(models: tuple[ModelEntry, ...]) -> Table:
    figures = _columns("model", "load", "unload", "MiB", "p50 while another loads", "p99")
    for model in models:
        factors = (model.interference_p50, model.interference_p99)
        figures.add_row(
            f"{model.model}/{model.version}",
            f"{model.load_ms:.0f}",
            f"{model.unload_ms:.0f}",
            f"{model.bytes / 2**20:.0f}",
            *("-" if factor is None else f"x {factor:.2f}" for factor in factors),
        )
    return figures


def describe_failure(failure: Failure, repository: Path) -> str:
    """Return one line on what could not be measured and why; with the next step if the model is not built yet."""
    point = f" {'x'.join(map(str, failure.shape))} batch {failure.batch}" if failure.batch else ""
    line = f"not measured: {failure.model}{point}: {failure.reason}"
    spec = MODELS.get(failure.model)
    if spec is not None and not (repository / spec.name / VERSION / spec.file).exists():
        line += f" It is not built in {repository}: run framegate zoo build {spec.name}"
    return " ".join(line.split())  # Triton's reasons have line breaks
