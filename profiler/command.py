"""``framegate profile``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gateway.settings import Settings
    from profiler.plan import Failure, Plan, Progress, Report

_DEFAULT_BATCHES = (1, 2, 4, 8)
_MIB = 1 << 20
_REPOSITORY_HELP = "With --embedded. Default: ./model_repository if there is one, else the checkout's."
#: Twice what a 99th percentile takes at least, so that one stalled execution is not it.
_SAMPLES = 200
#: Plans then rest on 1.1 times the largest.
_QUICK_SAMPLES = 50


def profile(
    *,
    model: Annotated[list[str], typer.Option(help="Model to measure; repeat for several.")],
    quick: Annotated[bool, typer.Option("--quick", help="50 samples per point instead of 200: no p99.")] = False,
    shape: Annotated[
        list[str] | None, typer.Option(help="HxW of a frame, for models that take any size; repeat for several.")
    ] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Batch size; repeat. Default 1, 2, 4, 8.")] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Per point; from 100 on p99 is known. Default 200.")
    ] = None,
    triton: Annotated[str | None, typer.Option(help="host:port of Triton's gRPC endpoint.")] = None,
    embedded: Annotated[bool, typer.Option("--embedded", help="Start a Triton of our own for it.")] = False,
    model_repository: Annotated[Path | None, typer.Option(help=_REPOSITORY_HELP)] = None,
    triton_log: Annotated[Path | None, typer.Option(help="With --embedded: where Triton's output goes.")] = None,
    out: Annotated[Path, typer.Option(help="The profile file; replaced when all is measured.")] = Path(
        "profiles/quick.json"
    ),
    arena_mb: Annotated[int | None, typer.Option(help="Size of the shared-memory frame arena in MiB.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the profile instead of a table.")] = False,
) -> None:
    """Measure execution times of models on this device, for plans and for `framegate serve`.

    It takes the gateway's own path to Triton, so what is measured is what the gateway will see.

    Exit status 1 when a point that was asked for could not be measured; the file then holds the others.
    """
    from pydantic import ValidationError

    from gateway.errors import FramegateError
    from gateway.paths import find_repository, make_writable
    from gateway.settings import Settings
    from profiler.plan import Plan

    if embedded and triton is not None:
        _fail("--triton and --embedded exclude each other")
    try:
        plan = Plan(
            models=tuple(dict.fromkeys(model)),
            shapes=tuple(dict.fromkeys(parse_shape(text) for text in shape or [])),
            batches=tuple(sorted(set(batch or _DEFAULT_BATCHES))),
            samples=samples or (_QUICK_SAMPLES if quick else _SAMPLES),
        )
        overrides: dict[str, Any] = {"triton": {"url": triton}} if triton else {}
        if arena_mb is not None:
            overrides["arena"] = {"bytes": arena_mb * _MIB}
        options = {"model_repository": model_repository, "log_file": triton_log}
        overrides["embedded"] = {name: value for name, value in options.items() if value is not None}
        settings = Settings(**overrides)
        repository = find_repository(settings.embedded.model_repository)
        if out.is_dir():
            _fail(f"--out {out} is a directory: name a file in it")
        make_writable(out.parent)
        with _progress(plan) as on_progress:
            report = _measure(
                plan, settings, on_progress, repository if embedded or settings.embedded.enabled else None
            )
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        _fail(f"setting {'.'.join(map(str, fault['loc']))}: {fault['msg'].removeprefix('Value error, ')}")
    except (FramegateError, ValueError, OSError) as error:
        _fail(str(error))
    _finish(report, out, repository, as_json=as_json)


def parse_shape(text: str) -> tuple[int, ...]:
    """Return ``(H, W)`` of ``HxW``, or all axes of a longer form. Raises ValueError."""
    try:
        sizes = tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ValueError(f"a shape is written like 480x640 (height x width), not {text!r}")
    return sizes


def _measure(plan: Plan, settings: Settings, on_progress: Progress, repository: Path | None) -> Report:
    """Measure in a Triton of our own on `repository`, or, without one, in that of `settings`."""
    import dataclasses

    import uvloop

    from gateway.triton.embedded import EmbeddedTriton
    from profiler.device import device_name
    from profiler.quick import measure

    if repository is None:
        report: Report = uvloop.run(measure(plan, settings, device_name(), on_progress))
        return report
    options = settings.embedded
    server = EmbeddedTriton(
        repository,
        options.log_file,
        intra_op_threads=options.intra_op_threads,
        ready_timeout_s=options.start_timeout_s,
    )
    with server:
        group = settings.triton.model_copy(update={"url": server.grpc_url})
        plan = dataclasses.replace(plan, server_pid=server.pid)
        settings = settings.model_copy(update={"triton": group})
        report = uvloop.run(measure(plan, settings, device_name(), on_progress))
        return report


@contextlib.contextmanager
def _progress(plan: Plan) -> Iterator[Progress]:
    """Show a bar with the time left on stderr; where that is no terminal, a line for each step."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    points = len(plan.models) * max(1, len(plan.shapes)) * len(plan.batches)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=points * plan.samples)

        def on_progress(what: str, samples: int) -> None:
            if what:
                bar.update(task, description=what)
                if not console.is_terminal:
                    typer.echo(what, err=True)
            bar.advance(task, samples)

        yield on_progress


def _finish(report: Report, out: Path, repository: Path, *, as_json: bool) -> None:
    """Write the file, print what was measured, and end with the status."""
    from gateway.runtime.profile_file import write_profile

    if report.profile.entries:
        write_profile(out, report.profile)
    if as_json:
        failed = [{"model": f.model, "shape": f.shape, "batch": f.batch, "reason": f.reason} for f in report.failures]
        written = str(out) if report.profile.entries else None
        typer.echo(json.dumps({"profile": report.profile.to_dict(), "failed": failed, "file": written}))
    elif report.profile.entries:
        from rich.console import Console

        Console().print(table(report))
        typer.echo(f"written to {out}")
    for failure in report.failures:
        typer.echo(describe_failure(failure, repository), err=True)
    if report.failures:
        raise typer.Exit(1)


def table(report: Report) -> RenderableType:
    """Return what was measured as a table of at most 80 columns, unless a model's name is very long."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    headline = f"{report.profile.device}, Triton {report.profile.triton_version}; times in ms"
    figures = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("model", "shape", "batch", "samples", "p50", "p99", "planned", "a frame"):
        figures.add_column(name, justify="left" if name in {"model", "shape"} else "right", overflow="fold")
    for entry in report.profile.entries:
        times = (entry.p50_ms, entry.p99_ms, entry.execution_ms, entry.execution_ms / entry.batch)
        figures.add_row(
            f"{entry.model}/{entry.version}",
            "x".join(map(str, entry.shape)),
            str(entry.batch),
            str(entry.count),
            *(f"{time:.2f}" for time in times),
        )
    return Group(Text(headline), figures)


def describe_failure(failure: Failure, repository: Path) -> str:
    """Return one line on what could not be measured and why; with the next step if the model is not built yet."""
    from gateway.zoo.registry import MODELS, VERSION

    point = f" {'x'.join(map(str, failure.shape))} batch {failure.batch}" if failure.batch else ""
    line = f"not measured: {failure.model}{point}: {failure.reason}"
    spec = MODELS.get(failure.model)
    if spec is not None and not (repository / spec.name / VERSION / spec.file).exists():
        line += f" It is not built in {repository}: run framegate zoo build {spec.name}"
    return " ".join(line.split())  # Triton's reasons have line breaks


def _fail(message: str) -> None:
    typer.echo(f"framegate profile: {message}", err=True)
    raise typer.Exit(2)
