"""``framegate plan`` and ``framegate accuracy``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from gateway.options import memory_size

if TYPE_CHECKING:
    from gateway.capacity.plan_show import Result
    from gateway.core.config import EngineConfig


def plan(
    plan_file: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Streams as in POST /v1/streams, plus count and at_ms. YAML or JSON.")
    ],
    profile: Annotated[list[Path], typer.Option(help="Profile with the execution times; several are compared.")],
    *,
    how_many: Annotated[
        str, typer.Option(metavar="NAME", help="How many streams like this one fit, once all others are admitted?")
    ] = "",
    time_scale: Annotated[
        float, typer.Option(min=0.01, max=100, help="Multiply the profile's times: 1.2 is a device 20 % slower.")
    ] = 1.0,
    admission_test: Annotated[Literal["auto", "exact", "sporadic"], typer.Option(help="See the guide.")] = "auto",
    dispatch_overhead_ms: Annotated[float, typer.Option(min=0, max=1_000, help="Added to every execution time.")] = 0.0,
    memory_budget: Annotated[
        int | None,
        typer.Option(
            parser=memory_size, metavar="SIZE", help="For all models, for example 8GiB or 500MB. None: all fit."
        ),
    ] = None,
    max_models: Annotated[int | None, typer.Option(min=1, help="Instead: how many models fit.")] = None,
    offers: Annotated[bool, typer.Option(help="Search what refused streams could ask for instead.")] = True,
    chart: Annotated[Path | None, typer.Option(help="Write the use of the device as a PNG.", dir_okay=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Which of these cameras would be admitted on a device with this profile?

    The answers are those of the gateway's own admission. Streams register in
    the order of the file, at time 0 or their at_ms; first frames come
    start_in_ms later. With a memory budget the models of real-time streams
    have to fit, or take turns (swapping: true). Exit status: 0 if all are admitted (with several
    profiles: on one of them), 1 if not, 2 if the input cannot be used.
    """
    import json

    from gateway.capacity import plan_show
    from gateway.capacity.charts import utilization_chart
    from gateway.core.config import AdmissionTest, EngineConfig, ResidencyConfig

    if memory_budget is not None and max_models is not None:
        _fail("give --memory-budget or --max-models, not both")
    residency = ResidencyConfig(budget_bytes=memory_budget, max_models=max_models)
    config = EngineConfig(admission_test=AdmissionTest(admission_test), residency=residency)
    times = (time_scale, dispatch_overhead_ms)
    results = _plan_on_each(plan_file, profile, how_many, times, config, offers=offers)
    if chart is not None:
        try:
            utilization_chart(chart, results)
        except (OSError, ValueError) as error:
            _fail(f"the chart cannot be written: {error}")
    good = [str(result.path) for result in results if result.answer.suffices]
    if as_json:
        one = results[0].to_dict()
        many = {"profiles": [result.to_dict() for result in results], "suffices": good}
        typer.echo(json.dumps(one if len(results) == 1 else many))
    else:
        from rich.console import Console

        console = Console(highlight=False)
        for result in results:
            console.print(plan_show.result_view(result), "", crop=False)
        if len(results) > 1:
            console.print(plan_show.comparison(results), crop=False)
    raise typer.Exit(0 if good else 1)


def _plan_on_each(
    plan_file: Path,
    profiles: list[Path],
    how_many: str,
    times: tuple[float, float],
    config: EngineConfig,
    *,
    offers: bool,
) -> list[Result]:
    """Return the plan on every profile; ends with status 2 when the plan or a profile cannot be used.

    `times`: what execution times are multiplied by, and what is added to them then, in ms.
    """
    from gateway.capacity.plan_file import PlanFileError, read_plan
    from gateway.capacity.plan_show import Result
    from gateway.capacity.planning import answer_plan, asking_how_many, scaled
    from gateway.core.profile import ProfileError
    from gateway.core.types import NS_PER_MS
    from gateway.runtime.profile_file import read_profile

    scale, overhead_ms = times
    try:
        items = read_plan(plan_file)
        if how_many:
            items = asking_how_many(items, how_many)
        overhead_ns = round(overhead_ms * NS_PER_MS)
        devices = [(path, scaled(read_profile(path), scale).plus_overhead(overhead_ns)) for path in profiles]
    except (PlanFileError, ProfileError) as error:
        _fail(str(error))
    return [
        Result.of(path, device, scale, items, answer_plan(items, device, config, offers=offers))
        for path, device in devices
    ]


def accuracy(
    log: Annotated[Path, typer.Argument(help="Decision log of the gateway or of framegate simulate, JSON lines.")],
    *,
    plot: Annotated[Path | None, typer.Option(help="Write the distributions as a PNG.", dir_okay=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """How do the times that were planned compare with those that were measured?

    For each job its expected execution time and planned end beside the
    actual ones; for each stream the worst latency that admission planned
    beside the worst that came. Exit status 2 if the log cannot be read or
    holds no delivered job.
    """
    import json

    from gateway.capacity.accuracy import compare
    from gateway.capacity.accuracy_show import view
    from gateway.capacity.charts import accuracy_chart
    from gateway.capacity.decisions import read_decisions

    try:
        with log.open("rb") as file:
            decisions = read_decisions(file)
    except OSError as error:
        _fail(f"{log}: {error.strerror or error}")
    if not decisions.jobs:
        _fail(f"{log}: {decisions.why_nothing()}")
    report = compare(decisions)
    if plot is not None:
        try:
            accuracy_chart(plot, *decisions.samples())
        except (OSError, ValueError) as error:
            _fail(f"the plot cannot be written: {error}")
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
    else:
        from rich.console import Console

        Console(highlight=False).print(view(report), crop=False)


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)
