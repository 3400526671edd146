"""``framegate profile``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gateway.settings import Settings
    from profiler.plan import Plan, Progress, Report

_DEFAULT_BATCHES = (1, 2, 4, 8)
_MIB = 1 << 20


def profile(
    *,
    model: Annotated[list[str], typer.Option(help="Model to measure; repeat for several.")],
    quick: Annotated[bool, typer.Option("--quick", help="Through the gateway's own dispatch path.")] = False,
    shape: Annotated[
        list[str] | None, typer.Option(help="HxW of a frame, for models that take any size; repeat for several.")
    ] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Batch size; repeat. Default 1, 2, 4, 8.")] = None,
    samples: Annotated[int, typer.Option(min=1, max=100_000, help="Per point; from 100 on p99 is known.")] = 50,
    triton: Annotated[str | None, typer.Option(help="host:port of Triton's gRPC endpoint.")] = None,
    embedded: Annotated[bool, typer.Option("--embedded", help="Start a Triton of our own for it.")] = False,
    model_repository: Annotated[Path | None, typer.Option(help="With --embedded: Triton's model repository.")] = None,
    triton_log: Annotated[Path | None, typer.Option(help="With --embedded: where Triton's output goes.")] = None,
    out: Annotated[Path, typer.Option(help="The profile file; replaced when all is measured.")] = Path(
        "profiles/quick.json"
    ),
    arena_mb: Annotated[int | None, typer.Option(help="Size of the shared-memory frame arena in MiB.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the profile instead of a table.")] = False,
) -> None:
    """Measure execution times of models on this device, for plans and for `framegate serve`.

    Exit status 1 when a point that was asked for could not be measured; the file then holds the others.
    """
    from pydantic import ValidationError

    from gateway.errors import FramegateError
    from gateway.settings import Settings
    from profiler.plan import Plan

    if not quick:
        _fail("only the quick measurement exists so far: add --quick")
    if embedded and triton is not None:
        _fail("--triton and --embedded exclude each other")
    try:
        plan = Plan(
            models=tuple(dict.fromkeys(model)),
            shapes=tuple(dict.fromkeys(parse_shape(text) for text in shape or [])),
            batches=tuple(sorted(set(batch or _DEFAULT_BATCHES))),
            samples=samples,
        )
        overrides: dict[str, Any] = {"triton": {"url": triton}} if triton else {}
        if arena_mb is not None:
            overrides["arena"] = {"bytes": arena_mb * _MIB}
        options = {"model_repository": model_repository, "log_file": triton_log}
        overrides["embedded"] = {name: value for name, value in options.items() if value is not None}
        settings = Settings(**overrides)
        with _progress(plan) as on_progress:
            report = _measure(plan, settings, on_progress, embedded=embedded or settings.embedded.enabled)
    except (FramegateError, ValidationError, ValueError, OSError) as error:
        _fail(str(error))
    _finish(report, out, as_json=as_json)


def parse_shape(text: str) -> tuple[int, ...]:
    """Return ``(H, W)`` of ``HxW``, or all axes of a longer form. Raises ValueError."""
    try:
        sizes = tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ValueError(f"a shape is written like 480x640 (height x width), not {text!r}")
    return sizes


def _measure(plan: Plan, settings: Settings, on_progress: Progress, *, embedded: bool) -> Report:
    import dataclasses

    import uvloop

    from gateway.triton.embedded import EmbeddedTriton
    from profiler.device import device_name
    from profiler.quick import measure

    if not embedded:
        report: Report = uvloop.run(measure(plan, settings, device_name(), on_progress))
        return report
    options = settings.embedded
    server = EmbeddedTriton(
        options.model_repository,
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
    """Show a bar with the time left on stderr; nothing where that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    points = len(plan.models) * max(1, len(plan.shapes)) * len(plan.batches)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("waiting for Triton", total=points * plan.samples)

        def on_progress(what: str, samples: int) -> None:
            if what:
                bar.update(task, description=what)
            bar.advance(task, samples)

        yield on_progress


def _finish(report: Report, out: Path, *, as_json: bool) -> None:
    """Write the file, print what was measured, and end with the status."""
    from gateway.runtime.profile_file import write_profile

    if report.profile.entries:
        write_profile(out, report.profile)
    if as_json:
        failed = [{"model": f.model, "shape": f.shape, "batch": f.batch, "reason": f.reason} for f in report.failures]
        written = str(out) if report.profile.entries else None
        typer.echo(json.dumps({"profile": report.profile.to_dict(), "failed": failed, "file": written}))
    else:
        _print_table(report)
        if report.profile.entries:
            typer.echo(f"written to {out}")
    for failure in report.failures:
        typer.echo(
            f"not measured: {failure.model} {list(failure.shape)} batch {failure.batch}: {failure.reason}", err=True
        )
    if report.failures:
        raise typer.Exit(1)


def _print_table(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{report.profile.device}, Triton {report.profile.triton_version}; times in ms")
    for name in ("model", "shape", "batch", "samples", "p50", "p99", "max", "planned", "per frame"):
        table.add_column(name, justify="left" if name in {"model", "shape"} else "right", no_wrap=True)
    for entry in report.profile.entries:
        times = (entry.p50_ms, entry.p99_ms, entry.max_ms, entry.execution_ms, entry.execution_ms / entry.batch)
        table.add_row(
            f"{entry.model}/{entry.version}",
            "x".join(map(str, entry.shape)),
            str(entry.batch),
            str(entry.count),
            *(f"{time:.2f}" for time in times),
        )
    Console().print(table)


def _fail(message: str) -> None:
    typer.echo(f"framegate profile: {message}", err=True)
    raise typer.Exit(2)
