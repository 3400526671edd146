"""A whole profile: every point of a plan with one engine, then what it costs to swap the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from gateway.core.profile import Profile, ProfileEntry
from gateway.errors import FramegateError
from gateway.settings import Settings
from gateway.triton.types import BackendError
from profiler.bench import Bench
from profiler.engines import Engine, Native, PerfAnalyzer
from profiler.engines import measure as measure_point
from profiler.ledger import Ledger
from profiler.pace import Pace
from profiler.perf_analyzer import PerfAnalyzerError, Tool
from profiler.plan import Failure, Plan, Progress, Report
from profiler.swaps import Swaps

__all__ = ["Failure", "Plan", "Progress", "Report", "measure"]


async def measure(
    plan: Plan,
    settings: Settings,
    device: str,
    on_progress: Progress = lambda _what, _n: None,
    *,
    tool: Tool | None = None,
    insist: bool = True,
    ledger: Ledger | None = None,
    pace: Pace | None = None,
) -> Report:
    """Measure `plan` in the Triton of `settings`. Loads the models that are not loaded.

    Args:
        plan: What.
        settings: Where Triton is.
        device: What the machine calls itself.
        on_progress: Told what is measured and how many samples were taken.
        tool: Samples are those of this `perf_analyzer`; None: of the gateway's own dispatch path.
        insist: Where `tool` would disturb a running gateway, refuse; False: do without it.
        ledger: Where to write each point, and where an earlier run's are. Default: nowhere.
        pace: Told what is under way and what is over.

    Raises:
        TritonUnavailable: Triton did not come up in time.
        ArenaTooSmall: No room for the arena.
        FramegateError: `tool` would disturb a running gateway, or there is nothing to resume.
    """
    ledger = ledger or Ledger()
    bench = Bench(plan, settings, on_progress, pace)
    try:
        await bench.connect()
        engine = await _engine(bench, tool, insist=insist)
        blank = Profile(
            device=device,
            triton_version=bench.server.version,
            engine=engine.name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        ledger.open(blank, _identity(plan))
        if ledger.said:
            on_progress(ledger.said, 0)
        await _points(bench, engine, ledger)
        await _models(bench, ledger)
    finally:
        await bench.close()
    ledger.profile = _in_order(ledger.profile, plan)
    ledger.finish(complete=not bench.failures)
    return Report(ledger.profile, tuple(bench.failures))


async def _engine(bench: Bench, tool: Tool | None, *, insist: bool) -> Engine:
    if tool is None:
        return Native(bench)
    engine = PerfAnalyzer(bench, tool)
    try:
        await engine.check()
    except BackendError as error:
        raise FramegateError(f"Triton at {bench.url} does not say who uses it: {error}") from None
    except FramegateError as error:
        if insist:
            raise
        bench.on_progress(f"measuring through the gateway's own path (--engine native): {error}", 0)
        return Native(bench)
    return engine


def _identity(plan: Plan) -> dict[str, object]:
    """Return what a run must have in common with an earlier one to go on with it."""
    return {
        "models": list(plan.models),
        "shapes": [list(shape) for shape in plan.shapes],
        "batches": list(plan.batches),
        "samples": plan.samples,
        "pauses": plan.pauses,
    }


async def _points(bench: Bench, engine: Engine, ledger: Ledger) -> None:
    """Measure all points that are not there yet; those that fail are noted and left out."""
    points = list(bench.points())
    bench.pace.expect(points, ledger.profile.entries)
    for point in points:
        if ledger.has(point):
            bench.on_progress("", bench.plan.samples)
            continue
        bench.pace.begin(point.category.model, point.category.shape, point.batch)
        bench.on_progress(str(point), 0)
        try:
            entry = await measure_point(engine, point, bench.plan.samples)
        except (FramegateError, BackendError, PerfAnalyzerError) as error:
            bench.pace.end(measured=False)
            bench.fail(point.category.model, point.category.shape, point.batch, str(error))
        else:
            bench.pace.end()
            ledger.add(entry)


async def _models(bench: Bench, ledger: Ledger) -> None:
    """Unload and load each measured model of a local Triton, and run it while another one does."""
    plan = bench.plan
    if plan.server_pid is None:
        return
    swaps = Swaps(bench, plan.server_pid)
    for model in dict.fromkeys(entry.model for entry in ledger.profile.entries):
        entries = [entry for entry in ledger.profile.entries if entry.model == model]
        bench.pace.begin(model)
        if ledger.has_model(entries[0]):
            bench.pace.end()
            continue
        bench.on_progress(f"{model} unload, load, {plan.swaps} times", 0)
        try:
            measured = await swaps.measure(entries)
        except BackendError as error:
            bench.pace.end()
            bench.failures.append(Failure(model, (), 0, f"Unloading and loading it again: {error}"))
            continue
        if plan.loads and (other := _other(plan, model)):
            bench.on_progress(f"{model} while {other} loads", 0)
            try:
                measured = await swaps.beside_loads(measured, entries, other)
            except (FramegateError, BackendError) as error:
                bench.failures.append(Failure(model, (), 0, f"Running it while {other} loads: {error}"))
        bench.pace.end()
        ledger.add_model(measured)


def _other(plan: Plan, model: str) -> str:
    """Return the model to load beside `model`; empty if there is none."""
    candidates: Sequence[str] = [plan.load_beside] if plan.load_beside else plan.models
    return next((name for name in candidates if name != model), "")


def _in_order(profile: Profile, plan: Plan) -> Profile:
    """Put points in the plan's order, whichever run they come from."""

    def place(entry: ProfileEntry) -> tuple[int, tuple[int, ...], int]:
        return plan.models.index(entry.model), entry.shape, entry.batch

    return replace(profile, entries=tuple(sorted(profile.entries, key=place)))
