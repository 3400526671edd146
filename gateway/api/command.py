"""``framegate serve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.options import memory_size

if TYPE_CHECKING:
    from gateway.core.profile import Profile
    from gateway.settings import Settings
    from gateway.telemetry.logs import LogQueue
    from gateway.triton.embedded import EmbeddedTriton


def serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on. There is no authentication yet.")] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0 takes a free one.")] = None,
    triton: Annotated[str | None, typer.Option(help="host:port of Triton's gRPC endpoint.")] = None,
    embedded: Annotated[bool, typer.Option("--embedded", help="Start a Triton of our own.")] = False,
    profile: Annotated[Path | None, typer.Option(help="Execution times, from `framegate profile`.")] = None,
    models: Annotated[str | None, typer.Option(help="Models to serve, comma-separated; all of the profile.")] = None,
    model_repository: Annotated[Path | None, typer.Option(help="With --embedded: Triton's model repository.")] = None,
    triton_log: Annotated[Path | None, typer.Option(help="With --embedded: where Triton's output goes.")] = None,
    decision_log: Annotated[Path | None, typer.Option(help="Write every decision to this file, as JSON lines.")] = None,
    arena_mb: Annotated[int | None, typer.Option(help="Size of the shared-memory frame arena in MiB.")] = None,
    no_shared_memory: Annotated[
        bool, typer.Option("--no-shared-memory", help="Send frames inside the gRPC message, as to a remote Triton.")
    ] = False,
    max_models: Annotated[
        int | None, typer.Option(help="How many models may be loaded at one time; others are loaded when needed.")
    ] = None,
    memory_budget: Annotated[
        int | None,
        typer.Option(
            parser=memory_size,
            metavar="SIZE",
            help="Instead: what they may hold together, for example 8GiB or 500MB.",
        ),
    ] = None,
    ingest_workers: Annotated[
        int | None,
        typer.Option(help="Processes that take HTTP and WebSockets, so that the scheduler has a core to itself."),
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
    fault_injection: Annotated[
        bool, typer.Option("--fault-injection", help="For experiments: take delays of coming jobs at POST /v1/faults.")
    ] = False,
) -> None:
    """Serve camera streams over HTTP, in front of a Triton.

    What is not given here is taken from FRAMEGATE_... environment variables,
    else from the defaults; see docs/settings.md.
    """
    import os

    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from gateway.api.environment import unknown_variables
    from gateway.errors import FramegateError
    from gateway.settings import Settings
    from gateway.wording import in_words

    overrides = _overrides(
        {
            "server.host": host,
            "server.port": port,
            "server.ingest_workers": ingest_workers,
            "triton.url": triton,
            "triton.shared_memory": "off" if no_shared_memory else None,
            "embedded.enabled": embedded or None,
            "embedded.model_repository": model_repository,
            "embedded.log_file": triton_log,
            "profile": profile,
            "models": models,
            "decision_log": decision_log,
            "arena.bytes": None if arena_mb is None else arena_mb << 20,
            "residency.max_models": max_models,
            "residency.budget_bytes": memory_budget,
            "telemetry.log_format": log_format,
            "fault_injection": fault_injection or None,
        }
    )
    for line in unknown_variables(os.environ):
        typer.echo(f"warning: {line}", err=True)
    try:
        run(Settings(**overrides))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        _fail(f"setting {'.'.join(map(str, fault['loc']))}: {in_words(fault, Settings)}")
    except SettingsError as error:  # a group's value that is not JSON
        _fail(f"an environment variable for a group must hold JSON: {error}")
    except (FramegateError, OSError) as error:
        _fail(str(error))


def _overrides(values: dict[str, Any]) -> dict[str, Any]:
    """Return the nested form of what was given; what is None was not."""
    nested: dict[str, Any] = {}
    for path, value in values.items():
        if value is not None:
            *groups, name = path.split(".")
            target = nested
            for group in groups:
                target = target.setdefault(group, {})
            target[name] = value
    return nested


def _fail(message: str) -> None:
    typer.echo(f"framegate serve: {message}", err=True)
    raise typer.Exit(2)


def run(settings: Settings) -> None:
    """Serve until a signal. Blocks; must be called from the main thread.

    Raises:
        ProfileMissing, AddressUnavailable, EmbeddedTritonError, IngestFailed, OSError: It cannot start; the message
            says what to do.
    """
    from gateway.api.address import check_address
    from gateway.telemetry import logs

    logs.configure(settings.telemetry.log_level, settings.telemetry.log_format)
    with logs.LogQueue(settings.telemetry.log_queue) as lines:
        profile = _read_profile(settings.profile)
        check_address(settings.server)
        if settings.embedded.enabled:
            _serve_embedded(settings, profile, lines)
        else:
            _serve(settings, profile, lines)


def _serve_embedded(settings: Settings, profile: Profile, lines: LogQueue) -> None:
    """Serve in front of a Triton of our own."""
    from gateway.paths import find_repository
    from gateway.triton.embedded import EmbeddedTriton
    from gateway.triton.server_options import METRICS_INTERVAL_S

    options = settings.embedded
    triton = EmbeddedTriton(
        find_repository(options.model_repository),
        options.log_file,
        intra_op_threads=options.intra_op_threads,
        ready_timeout_s=options.start_timeout_s,
        fault_injection=settings.fault_injection,
    )
    with triton:
        group = settings.triton.model_copy(update=triton.settings)
        residency = settings.residency
        if not residency.metrics_url:
            own = {"metrics_url": triton.metrics_url, "metrics_interval_s": METRICS_INTERVAL_S}
            residency = residency.model_copy(update=own)
        _serve(settings.model_copy(update={"triton": group, "residency": residency}), profile, lines, triton)


def _read_profile(path: Path | None) -> Profile:
    from gateway.core.profile import ProfileError
    from gateway.errors import ProfileMissing
    from gateway.runtime.profile_file import read_profile

    hint = "Measure one with `framegate profile --quick` and name it with --profile or FRAMEGATE_PROFILE."
    if path is None:
        raise ProfileMissing(f"No profile is given. {hint}")
    try:
        return read_profile(path)
    except ProfileError as error:
        raise ProfileMissing(f"{error}. {hint}") from error


def _serve(settings: Settings, profile: Profile, lines: LogQueue, triton: EmbeddedTriton | None = None) -> None:
    """Serve; `triton`, which runs already, is kept running meanwhile and stopped afterwards."""
    import gc
    from functools import partial
    from importlib.metadata import version

    from gateway.api.app import create_app
    from gateway.api.keeper import keep_running
    from gateway.api.server import is_loopback, signals_end_the_server_only
    from gateway.ingest.make import make_server
    from gateway.runtime.driver import Observer
    from gateway.runtime.gateway import Gateway
    from gateway.telemetry.decisions import DecisionLog
    from gateway.telemetry.metrics import Metrics
    from gateway.telemetry.stalls import WatchedClock

    if not is_loopback(settings.server.host):
        typer.echo(
            f"warning: {settings.server.host} can be reached from other machines, and there is no authentication: "
            "whoever reaches it can register streams and close yours.",
            err=True,
        )
    metrics = Metrics(version("framegate"))
    metrics.watch_log_lines(lambda: lines.dropped)
    observers: list[Observer] = [metrics]
    log = None
    if settings.decision_log is not None:
        log = DecisionLog(settings.decision_log, settings.telemetry.decision_log_queue)
        metrics.watch_log(log)
        observers.append(log)
    try:
        clock = WatchedClock(metrics.stalls.timers)
        app = create_app(Gateway(settings, profile, clock=clock, observers=observers), settings, metrics)
        app.openapi()  # it takes a tenth of a second, and the first who asks would hold up everybody
        companion = None if triton is None else partial(keep_running, triton)
        server = make_server(app, settings, lambda url: typer.echo(f"ready at {url}"), companion)
        # Objects from the start live as long as the process, and frames make few cycles: with these settings
        # the gateway takes about a fifth less CPU time per frame (measured at 150 kB and batches of 16).
        gc.freeze()
        # A collection looks at every object of its generation that is alive: with a thousand calls that wait, 50,000
        # of them, the loop stood still for 0.1 s. Of 5,000 it is 1 ms, and older ones are looked at rarely.
        gc.set_threshold(5_000, 400, 100)
        with signals_end_the_server_only():
            server.run()
            if triton is not None:
                triton.stop()  # in here, so that no impatient signal interrupts it
    finally:
        if log is not None:
            log.close()
