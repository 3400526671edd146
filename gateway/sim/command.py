"""``framegate simulate``: what a trace would come to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gateway.options import memory_size


def simulate(
    trace: Annotated[Path, typer.Argument(help="JSON lines of registrations.", exists=True, dir_okay=False)],
    profile: Annotated[Path, typer.Option(help="Profile file with the execution times.", exists=True, dir_okay=False)],
    *,
    duration_ms: Annotated[
        float | None, typer.Option(min=0, help="Close every stream then; needed when one is unbounded.")
    ] = None,
    early_dispatch: Annotated[bool, typer.Option(help="Send waiting frames early while the device is idle.")] = True,
    job_deadline: Annotated[
        Literal["frame", "window"], typer.Option(help="The earliest of its frames, or the paper's.")
    ] = "frame",
    admission_test: Annotated[Literal["auto", "exact", "sporadic"], typer.Option(help="See the guide.")] = "auto",
    guard: Annotated[
        bool, typer.Option(help="Dispatch by the exact test's plan; without, plain EDF (the paper).")
    ] = True,
    adaptation: Annotated[
        bool, typer.Option(help="Run what overran at the next smaller profiled shape until it has paid that back.")
    ] = True,
    utilization_test: Annotated[
        Literal["envelope", "deeprt"], typer.Option(help="Phase 1: the envelope, or the paper's formula.")
    ] = "envelope",
    execution_low: Annotated[
        float, typer.Option(min=0, max=1, help="Jobs take this share of their profiled time, up to all of it.")
    ] = 1.0,
    memory_budget: Annotated[
        int | None,
        typer.Option(parser=memory_size, metavar="SIZE", help="For all models together, for example 8GiB or 500MB."),
    ] = None,
    max_models: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Instead: how many models may be loaded at one time.")
    ] = None,
    headroom_bytes: Annotated[
        int, typer.Option(min=0, help="Beyond --memory-budget while models that unload still hold theirs.")
    ] = 0,
    headroom_models: Annotated[int, typer.Option(min=0, max=1_000, help="The same beyond --max-models.")] = 0,
    replacement: Annotated[
        Literal["next_use", "lru"], typer.Option(help="Which idle model goes: see the guide.")
    ] = "next_use",
    prefetch: Annotated[bool, typer.Option(help="Load a model when the first frame of a window comes.")] = True,
    synchronous: Annotated[
        bool, typer.Option("--synchronous", help="Run nothing while a model loads or unloads; to compare.")
    ] = False,
    load_low: Annotated[
        float, typer.Option(min=0, max=1, help="Loads and unloads take this share of their time, up to all of it.")
    ] = 1.0,
    failing_loads: Annotated[float, typer.Option(min=0, max=0.999, help="Share of loads that fail.")] = 0.0,
    delay_jobs: Annotated[
        int, typer.Option(min=0, help="So many jobs in a row overrun: by --delay-ms, from --delay-at-ms on.")
    ] = 0,
    delay_ms: Annotated[float, typer.Option(min=0, max=86_400_000, help="By how much each of them overruns.")] = 100.0,
    delay_at_ms: Annotated[
        float, typer.Option(min=0, max=1_000_000_000, help="The first is the first released then or later.")
    ] = 0.0,
    jitter: Annotated[bool, typer.Option("--jitter", help="Groups come up to their jitter_ms late.")] = False,
    drop: Annotated[float, typer.Option(min=0, max=0.999, help="Share of frames that never come.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of execution and load times, failures, late groups, missing frames.")] = 0,
    log: Annotated[Path | None, typer.Option(help="Write the decision log here, JSON lines.", dir_okay=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Run a trace through the gateway's own engine on virtual time.

    Exit status: 0, also if some streams are refused; 1 if all are, so that
    nothing ran; 2 if the input cannot be used.
    """
    import contextlib
    import json

    from gateway.core.config import AdmissionTest, EngineConfig, Replacement, ResidencyConfig, UtilizationTest
    from gateway.core.profile import ProfileError
    from gateway.core.types import NS_PER_MS, JobDeadline
    from gateway.runtime.profile_file import read_profile
    from gateway.sim import execution, loads
    from gateway.sim.cameras import Behaviour
    from gateway.sim.driver import simulate as run
    from gateway.sim.trace import TraceError, read_trace

    try:
        residency = ResidencyConfig(
            budget_bytes=memory_budget,
            max_models=max_models,
            headroom_bytes=headroom_bytes,
            headroom_models=headroom_models,
            replacement=Replacement(replacement),
            prefetch=prefetch,
            synchronous=synchronous,
        )
    except ValueError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    config = EngineConfig(
        early_dispatch=early_dispatch,
        job_deadline=JobDeadline(job_deadline),
        admission_test=AdmissionTest(admission_test),
        guard=guard,
        adaptation=adaptation,
        utilization_test=UtilizationTest(utilization_test),
        residency=residency,
    )
    takes = execution.exact if execution_low == 1 else execution.uniform(execution_low, seed)
    if delay_jobs:
        at_ns, delay_ns = (round(ms * NS_PER_MS) for ms in (delay_at_ms, delay_ms))
        takes = execution.delayed_from(takes, at_ns, delay_jobs, delay_ns)
    with contextlib.ExitStack() as stack:
        try:
            measured = read_profile(profile)
            entries = read_trace(_read_text(trace).splitlines(), measured)
            file = None if log is None else stack.enter_context(log.open("w", encoding="utf-8"))
            report = run(
                entries,
                measured,
                config,
                execution=takes,
                loads=loads.failing(loads.shorter(loads.profiled(measured), load_low, seed), failing_loads, seed),
                duration_ns=None if duration_ms is None else round(duration_ms * NS_PER_MS),
                behaviour=Behaviour(jitter=jitter, drop=drop, seed=seed),
                log=None if file is None else lambda line: file.write(json.dumps(line) + "\n"),
            )
        except (TraceError, ProfileError, OSError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from error
    typer.echo(json.dumps(report.to_dict()) if as_json else "\n".join(report.lines()))
    if report.streams and report.refused == len(report.streams):
        typer.echo("no stream was admitted, so nothing ran; `framegate plan` says what would be admitted", err=True)
        raise typer.Exit(1)


def _read_text(trace: Path) -> str:
    """Return the text of the trace.

    Raises:
        TraceError: It is not UTF-8.
    """
    from gateway.sim.trace import TraceError

    try:
        return trace.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(f"{trace} is not UTF-8 text: {error.reason} at byte {error.start}") from error
