"""``framegate profile``."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from profiler.ledger import Ledger
    from profiler.perf_analyzer import Tool
    from profiler.plan import Report

_DEFAULT_BATCHES = (1, 2, 4, 8)
_REPOSITORY_HELP = "With --embedded. Default: ./model_repository if there is one, else the checkout's."
#: Twice what a 99th percentile takes at least, so that one stalled execution is not it.
_SAMPLES = 200
#: Plans then rest on 1.1 times the largest.
_QUICK_SAMPLES = 50
#: Plans rest on the longest load and unload, so one is not enough to go by.
_SWAPS, _QUICK_SWAPS = 5, 3


class EngineName(StrEnum):
    """Who takes the samples."""

    PERF_ANALYZER = "perf_analyzer"
    NATIVE = "native"


def profile(
    *,
    model: Annotated[list[str] | None, typer.Option(help="Model to measure; repeat for several.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="50 samples per point instead of 200, so no p99; the native engine.")
    ] = False,
    engine: Annotated[
        EngineName | None,
        typer.Option(
            help="Who takes the samples: NVIDIA's tool, or the gateway's own path to Triton. Default: "
            "perf_analyzer if there is one or pip can get it."
        ),
    ] = None,
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
    out: Annotated[
        Path | None,
        typer.Option(
            help="The profile file; replaced when all is measured. Default: profiles/profile.json, or with --quick "
            "profiles/quick.json."
        ),
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--fresh",
            help="Go on where an earlier run stopped, or measure all points. Default: go on if the same was asked for.",
        ),
    ] = None,
    point_limit: Annotated[float, typer.Option(min=1, max=86_400, help="Seconds that a point may take.")] = 120.0,
    back_to_back: Annotated[
        bool, typer.Option("--back-to-back", help="Native engine: no pauses between samples, as perf_analyzer does.")
    ] = False,
    swaps: Annotated[
        int | None,
        typer.Option(min=1, max=1_000, help="With --embedded: unloads and loads of each model. Default 5; --quick: 3."),
    ] = None,
    while_loading: Annotated[
        bool | None,
        typer.Option(help="With --embedded: also measure each model while another one loads. Default: unless --quick."),
    ] = None,
    load_beside: Annotated[
        str | None, typer.Option(help="The model to load meanwhile. Default: another one of those measured.")
    ] = None,
    perf_analyzer: Annotated[
        Path | None, typer.Option(help="The executable. Default: that on PATH, in this environment or in .tools/.")
    ] = None,
    fetch_perf_analyzer: Annotated[
        bool, typer.Option("--fetch-perf-analyzer", help="Download perf_analyzer into .tools/ with pip, now.")
    ] = False,
    plots: Annotated[
        Path | None, typer.Option(help="Directory for pictures: time and throughput against batch size.")
    ] = None,
    arena_mb: Annotated[int | None, typer.Option(help="Size of the shared-memory frame arena in MiB.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the profile instead of a table.")] = False,
) -> None:
    """Measure execution times of models on this device, for plans and for `framegate serve`.

    Every point is written when it is measured; a run that was stopped goes on where it was.

    Exit status 1 when a point that was asked for could not be measured; the file then holds the others.
    """
    from profiler.ledger import Ledger, Resume
    from profiler.pace import Pace
    from profiler.plan import Plan
    from profiler.quick import measure
    from profiler.show import progress
    from profiler.target import measure_in, settings_of

    if embedded and triton is not None:
        _fail("--triton and --embedded exclude each other")
    if not model and not fetch_perf_analyzer:
        _fail("name what to measure with --model")
    out = out or Path("profiles/quick.json" if quick else "profiles/profile.json")
    ledger = Ledger(out, {None: Resume.IF_SAME, True: Resume.MUST, False: Resume.NEVER}[resume])
    with _faults_said(ledger):
        plan = Plan(
            models=tuple(dict.fromkeys(model or [])),
            shapes=tuple(dict.fromkeys(parse_shape(text) for text in shape or [])),
            batches=tuple(sorted(set(batch or _DEFAULT_BATCHES))),
            samples=samples or (_QUICK_SAMPLES if quick else _SAMPLES),
            pauses=not back_to_back,
            point_limit_s=point_limit,
            swaps=swaps or (_QUICK_SWAPS if quick else _SWAPS),
            loads=not quick if while_loading is None else while_loading,
            load_beside=load_beside or "",
        )
        settings = settings_of(triton, model_repository, triton_log, arena_mb)
        _check_places(out, plots)
        if lost := ledger.lost(plan.models):
            wanted = " ".join(f"--model {name}" for name in (*lost, *plan.models))
            _say(
                f"warning: {out} will be replaced, and the times of {', '.join(lost)} in it are gone then: measure all "
                f"in one run ({wanted}), or name another file with --out"
            )
        if engine is None and perf_analyzer is None and (quick or back_to_back):
            engine = EngineName.NATIVE
        tool = _tool(engine, perf_analyzer, fetch=fetch_perf_analyzer)
        if not plan.models:
            return
        insist = engine is EngineName.PERF_ANALYZER or perf_analyzer is not None
        # Models that do not load are among the report's failures: not on stderr as well, which no handler means.
        logging.getLogger("gateway.runtime.loading").addHandler(logging.NullHandler())
        pace = Pace(plan)
        with progress(pace) as on_progress:
            measuring = functools.partial(
                measure, on_progress=on_progress, tool=tool, insist=insist, ledger=ledger, pace=pace
            )
            report = measure_in(measuring, plan, settings, embedded=embedded or settings.embedded.enabled)
        pictures = _draw(report, plots)
    _finish(report, out, pictures, settings.embedded.model_repository, as_json=as_json)


def parse_shape(text: str) -> tuple[int, ...]:
    """Return ``(H, W)`` of ``HxW``, or all axes of a longer form. Raises ValueError."""
    try:
        sizes = tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ValueError(f"a shape is written like 480x640 (height x width), not {text!r}")
    return sizes


def _tool(engine: EngineName | None, explicit: Path | None, *, fetch: bool) -> Tool | None:
    """Return the perf_analyzer to measure with; None: the native engine, by choice or for want of one.

    Raises:
        PerfAnalyzerError: One was asked for and cannot be had.
    """
    from profiler import perf_analyzer

    fetched = perf_analyzer.fetch(_say) if fetch else None
    if engine is EngineName.NATIVE:
        return None
    if fetched is not None and explicit is None:
        return fetched
    if engine is EngineName.PERF_ANALYZER or explicit is not None:
        return perf_analyzer.find(explicit) or perf_analyzer.fetch(_say)
    try:
        return perf_analyzer.find() or perf_analyzer.fetch(_say)
    except perf_analyzer.PerfAnalyzerError as error:
        _say(f"measuring through the gateway's own path (--engine native), for want of perf_analyzer: {error}")
        return None


def _check_places(out: Path, plots: Path | None) -> None:
    """End here where nothing can be written, before anything is measured. Raises OSError."""
    from gateway.paths import make_writable

    if out.is_dir():
        _fail(f"--out {out} is a directory: name a file in it")
    make_writable(out.parent)
    if plots is not None:
        make_writable(plots)


@contextlib.contextmanager
def _faults_said(ledger: Ledger) -> Iterator[None]:
    """Say in a line what cannot be done, and where a run that is stopped can go on."""
    from pydantic import ValidationError

    from gateway.errors import FramegateError
    from gateway.wording import in_words
    from profiler.perf_analyzer import PerfAnalyzerError

    try:
        yield
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        _fail(f"setting {'.'.join(map(str, fault['loc']))}: {in_words(fault)}")
    except (FramegateError, PerfAnalyzerError, ValueError, OSError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        if ledger.profile.entries:
            _say(
                f"stopped; {len(ledger.profile.entries)} points are in {ledger.partial}: the same command goes on there"
            )
        raise typer.Exit(130) from None


def _draw(report: Report, directory: Path | None) -> list[Path]:
    if directory is None:
        return []
    from profiler.plots import draw

    return draw(report.profile, directory)


def _finish(report: Report, out: Path, pictures: list[Path], repository: Path, *, as_json: bool) -> None:
    """Print what was measured, and end with the status."""
    from profiler.show import describe_failure

    written = [str(path) for path in ([out] if report.profile.entries else []) + pictures]
    if as_json:
        failed = [{"model": f.model, "shape": f.shape, "batch": f.batch, "reason": f.reason} for f in report.failures]
        file = str(out) if report.profile.entries else None
        plots = [str(path) for path in pictures]
        typer.echo(json.dumps({"profile": report.profile.to_dict(), "failed": failed, "file": file, "plots": plots}))
    elif report.profile.entries:
        from rich.console import Console

        from profiler.show import table

        Console().print(table(report))
        typer.echo(f"written to {', '.join(written)}")
    for failure in report.failures:
        typer.echo(describe_failure(failure, repository), err=True)
    if report.failures:
        if report.profile.entries:
            _say("the same command again tries only these; with --fresh it measures everything")
        raise typer.Exit(1)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _fail(message: str) -> NoReturn:
    typer.echo(f"framegate profile: {message}", err=True)
    raise typer.Exit(2)
