"""``framegate profile interference``."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from gateway.settings import EmbeddedSettings, Settings
    from profiler.interference import Progress
    from profiler.interference_plan import StudyPlan
    from profiler.interference_report import StudyReport
    from profiler.perf_analyzer import Tool

#: The time left is that of all points so far, not of the last half minute, which may hold less than two.
_SPEED_FROM_S = 86_400.0
#: A point may take this many times as long as its load: loads of models and the tool's own start come on top.
_LIMIT_FACTOR, _LIMIT_EXTRA_S = 2.0, 30.0


def interference(
    *,
    model: Annotated[list[str], typer.Option(help="Model to study; repeat for several, and for pairs of them.")],
    shape: Annotated[
        list[str] | None,
        typer.Option(help="HxW of a frame where a model takes any size; model=HxW for one. Default 224x224."),
    ] = None,
    instances: Annotated[int, typer.Option(min=1, max=64, help="Study 1, 2, ... this many instances.")] = 4,
    total: Annotated[
        int, typer.Option(min=0, max=256, help="Frames underway for instances x batch; 0 leaves that out.")
    ] = 8,
    pairs: Annotated[bool, typer.Option(help="Study each model beside each other one.")] = True,
    seconds: Annotated[float, typer.Option(min=0.5, max=600, help="Of load per point.")] = 6.0,
    triton: Annotated[
        str | None,
        typer.Option(help="host:port of a Triton on this machine that nobody else uses. Default: one of our own."),
    ] = None,
    model_repository: Annotated[
        Path | None, typer.Option(help="Default: ./model_repository if there is one, else the checkout's.")
    ] = None,
    triton_log: Annotated[Path | None, typer.Option(help="Where the output of our own Triton goes.")] = None,
    perf_analyzer: Annotated[
        Path | None,
        typer.Option(
            help="The executable. Default: that on PATH, in this environment or in .tools/, else one that pip gets."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The report file; replaced when all is measured.")] = Path(
        "profiles/interference.json"
    ),
    plots: Annotated[Path | None, typer.Option(help="Directory for pictures of it, as PNG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report instead of tables.")] = False,
) -> None:
    """Measure what models cost each other when they run at the same time (DeepRT, section 2).

    First instances of one model, each with its own client; then each model beside each other one.

    Last, more instances or larger batches, for the same number of frames.

    With Triton's instance groups, and without its rate limiter.

    Exit status 1 when a point that was asked for could not be measured; the file then holds the others.
    """
    from pydantic import ValidationError

    from gateway.errors import FramegateError
    from gateway.paths import find_repository
    from gateway.triton.types import BackendError
    from gateway.wording import in_words
    from profiler.perf_analyzer import PerfAnalyzerError, fetch, find

    try:
        plan = _plan(model, shape or [], instances=instances, total=total, pairs=pairs, seconds=seconds)
        settings = _settings(triton, model_repository, triton_log)
        repository = find_repository(settings.embedded.model_repository)
        _check_places(out, plots)
        tool = find(perf_analyzer) or fetch(lambda line: typer.echo(line, err=True))
        with _progress() as on_progress:
            report = _study(plan, tool, on_progress, triton, settings.embedded)
        _write(report, out)
        pictures = _draw(report, plots)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        _fail(f"setting {'.'.join(map(str, fault['loc']))}: {in_words(fault)}")
    except (FramegateError, BackendError, PerfAnalyzerError, ValueError, OSError) as error:
        _fail(str(error))
    _print(report, [out, *pictures], None if triton else repository, as_json=as_json)


def _plan(
    models: list[str], shapes: list[str], *, instances: int, total: int, pairs: bool, seconds: float
) -> StudyPlan:
    from profiler.interference_plan import DEFAULT_SIZE, StudyPlan, parse_sizes

    size, sizes = parse_sizes(shapes)
    names = tuple(dict.fromkeys(models))
    if strangers := sorted(set(sizes) - set(names)):
        raise ValueError(f"--shape names {', '.join(strangers)}, which --model does not")
    return StudyPlan(
        names,
        instances=instances,
        total=total,
        pairs=pairs,
        size=size or DEFAULT_SIZE,
        sizes=sizes,
        seconds=seconds,
        point_limit_s=_LIMIT_FACTOR * seconds + _LIMIT_EXTRA_S,
    )


def _settings(triton: str | None, model_repository: Path | None, triton_log: Path | None) -> Settings:
    from gateway.settings import Settings
    from gateway.triton.loopback import is_loopback

    if triton is not None and not is_loopback(triton):
        raise ValueError(
            f"--triton {triton} is not on this machine, and frames go to Triton through shared memory: run the study "
            "there, with --triton localhost:8001, or leave --triton out to have a Triton started here"
        )
    options = {"model_repository": model_repository, "log_file": triton_log}
    return Settings.model_validate(
        {
            "triton": {"url": triton} if triton else {},
            "embedded": {name: value for name, value in options.items() if value is not None},
        }
    )


def _check_places(out: Path, plots: Path | None) -> None:
    """Find out before the work whether its results can be kept. Raises OSError, ValueError."""
    from gateway.paths import make_writable

    if out.is_dir():
        raise ValueError(f"--out {out} is a directory: name a file in it")
    make_writable(out.parent)
    if plots is not None:
        make_writable(plots)


def _study(
    plan: StudyPlan, tool: Tool, on_progress: Progress, triton: str | None, options: EmbeddedSettings
) -> StudyReport:
    """Study in the Triton at `triton`, or without one in our own, which has no rate limiter."""
    import asyncio
    from dataclasses import replace

    from gateway.paths import find_repository
    from gateway.triton.embedded import EmbeddedTriton
    from profiler.device import device_name
    from profiler.interference import study

    if triton is not None:
        # Not uvloop: it starts processes by a fork that gRPC's threads complain of, on stderr.
        report = asyncio.run(study(plan, triton, tool, on_progress))
    else:
        server = EmbeddedTriton(
            find_repository(options.model_repository),
            options.log_file,
            intra_op_threads=options.intra_op_threads,
            ready_timeout_s=options.start_timeout_s,
            rate_limiter=False,
        )
        with server:
            report = asyncio.run(study(plan, server.grpc_url, tool, on_progress, restore=False))
    return replace(report, device=device_name(), command=shlex.join(["framegate", *sys.argv[1:]]))


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """Show a bar with the time left on stderr; where that is no terminal, a line for each point."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, disable=not console.is_terminal, speed_estimate_period=_SPEED_FROM_S
    ) as bar:
        task = bar.add_task("starting", total=None)

        def on_progress(what: str, done: int, of: int) -> None:
            bar.update(task, description=what or "done", completed=done, total=of)
            if what and not console.is_terminal:
                typer.echo(f"{what} ({done + 1} of {of})", err=True)

        yield on_progress


def _write(report: StudyReport, out: Path) -> None:
    """Replace the file by the whole report, unless nothing was measured."""
    if report.points:
        draft = out.with_name(f".{out.name}.draft")
        draft.write_text(json.dumps(report.to_dict(), indent=1) + "\n", encoding="utf-8")
        draft.replace(out)


def _draw(report: StudyReport, plots: Path | None) -> list[Path]:
    from profiler.interference_plots import write_plots

    return write_plots(report, plots) if plots is not None and report.points else []


def _print(report: StudyReport, files: list[Path], repository: Path | None, *, as_json: bool) -> None:
    """Print what was measured and what was not, and end with the status."""
    from rich.console import Console

    from profiler.interference_tables import describe_failures, tables

    written = [str(file) for file in files] if report.points else []
    if as_json:
        typer.echo(json.dumps(report.to_dict() | {"files": written}))
    elif report.points:
        Console().print(tables(report))
        typer.echo(f"written to {', '.join(written)}")
    for line in describe_failures(report.failures, repository):
        typer.echo(line, err=True)
    if report.failures:
        raise typer.Exit(1)


def _fail(message: str) -> NoReturn:
    typer.echo(f"framegate profile interference: {message}", err=True)
    raise typer.Exit(2)
