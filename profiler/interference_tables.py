"""What the concurrency study found, as tables like the paper's (DeepRT, section 2) and as one line per conclusion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from profiler.interference_figures import Figures
from profiler.interference_plan import Load
from profiler.interference_report import FailedPoint, StudyReport

#: One model's row: its name, the figures of each column, and what the slow-down is against.
_Row = tuple[str, Sequence[Figures | None], Figures | None]


def tables(report: StudyReport) -> RenderableType:
    """Return all tables that have figures, and what can be read from them."""
    parts: list[RenderableType] = [Text(f"{report.device}, Triton {report.triton_version}; ~ did not settle")]
    for title, columns, rows in (_instances(report), _pairs(report), _totals(report)):
        if len(columns) > 1 and any(any(found) for _, found, _ in rows):
            parts += [Text(f"\n{title}"), _table(columns, rows)]
    parts.append(Text())
    parts += [Text(line) for line in conclusions(report)]
    parts += [Text(note) for note in report.notes]
    return Group(*parts)


def describe_failures(failures: Sequence[FailedPoint], repository: Path | None) -> Iterator[str]:
    """Yield one line for each reason: what could not be measured and why; with the next step if a model is not built.

    Args:
        failures: Of one run.
        repository: Of our own Triton.
    """
    points: dict[str, list[str]] = {}
    unbuilt: dict[str, str] = {}
    for failed in failures:
        points.setdefault(failed.reason, []).append(str(failed.point))
        for load in failed.point.loads:
            if repository is not None and f"'{load.model}'" in failed.reason and _is_unbuilt(load.model, repository):
                unbuilt[failed.reason] = f" It is not built in {repository}: run framegate zoo build {load.model}"
    for reason, names in points.items():
        yield f"not measured: {', '.join(names)}: {reason}{unbuilt.get(reason, '')}"


def _is_unbuilt(model: str, repository: Path) -> bool:
    from gateway.zoo.registry import MODELS, VERSION

    spec = MODELS.get(model)
    return spec is not None and not (repository / spec.name / VERSION / spec.file).exists()


def conclusions(report: StudyReport) -> Iterator[str]:
    """Yield what the figures say on the paper's three observations, each with its number."""
    alone = {model: report.figures(Load(model)) for model in report.plan.models}
    most = report.plan.instances
    slow = [s for s in report.slowdowns() if not s.beside and s.concurrent == most]
    if slow:
        yield (
            f"{most} instances of a model: {median(s.throughput for s in slow):.2f} times the frames per second, "
            f"{median(s.p50 for s in slow):.2f} times the latency of one (median of {len(slow)} models)."
        )
    beside = [s for s in report.slowdowns() if s.beside]
    if beside:
        best, worst = min(beside, key=lambda s: s.p50), max(beside, key=lambda s: s.p50)
        yield (
            f"Beside another model: {best.p50:.2f} ({best.model} beside {best.beside}) to {worst.p50:.2f} "
            f"({worst.model} beside {worst.beside}) times the latency alone."
        )
    splits = report.plan.splits()
    if len(splits) > 1:
        (n, _), (_, batch) = splits[0], splits[-1]
        ends = [(report.figures(Load(m, n, 1)), report.figures(Load(m, 1, batch))) for m in alone]
        pairs = [(wide, deep) for wide, deep in ends if wide is not None and deep is not None]
        if pairs:
            faster = median(deep.frames_per_s / wide.frames_per_s for wide, deep in pairs)
            sooner = median(deep.p50_ms / wide.p50_ms for wide, deep in pairs)
            yield (
                f"One batch of {batch} instead of {n} instances: {faster:.2f} times the frames per second, "
                f"{sooner:.2f} times the latency (median of {len(pairs)} models)."
            )


def _instances(report: StudyReport) -> tuple[str, list[str], list[_Row]]:
    counts = range(1, report.plan.instances + 1)
    rows: list[_Row] = [
        (model, [report.figures(Load(model, n)) for n in counts], report.figures(Load(model)))
        for model in report.plan.models
    ]
    return "Instances of one model, each with its own client", [str(n) for n in counts], rows


def _pairs(report: StudyReport) -> tuple[str, list[str], list[_Row]]:
    """The paper's Table 1."""
    models = report.plan.models if report.plan.pairs and len(report.plan.models) > 1 else ()
    rows: list[_Row] = []
    for model in models:
        alone = report.figures(Load(model))
        rows.append((model, [alone, *(report.beside(model, other) for other in models)], alone))
    return "One instance (row) beside one of another model or its like (column); - is alone", ["-", *models], rows


def _totals(report: StudyReport) -> tuple[str, list[str], list[_Row]]:
    splits = report.plan.splits()
    rows: list[_Row] = []
    for model in report.plan.models:
        found = [report.figures(Load(model, n, batch)) for n, batch in splits]
        rows.append((model, found, found[0] if found else None))
    title = f"{report.plan.total} frames underway: instances x batch"
    return title, [f"{n}x{batch}" for n, batch in splits], rows


def _table(columns: Sequence[str], rows: Sequence[_Row]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", overflow="fold")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    for name, found, base in rows:
        cells = [_cells(figures, base) for figures in found]
        for label, line in zip(("p50 ms", "p99 ms", "frames/s", "p50 ratio"), zip(*cells, strict=True), strict=True):
            table.add_row(name if label == "p50 ms" else "", label, *line)
    return table


def _cells(figures: Figures | None, base: Figures | None) -> tuple[str, str, str, str]:
    """One column's lines: median, 99th percentile, throughput, and the median over that of `base`."""
    if figures is None:
        return "", "", "", ""
    ratio = "" if base is None else f"{figures.p50_ms / base.p50_ms:.2f}"
    p50 = f"{figures.p50_ms:.1f}{'' if figures.stable else '~'}"
    return p50, f"{figures.p99_ms:.1f}", f"{figures.frames_per_s:.0f}", ratio
