"""The concurrency study as pictures: those of the paper's Figure 2 (a, b, e, f), and its Table 1 as bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.interference_figures import Figures
from profiler.interference_plan import Load
from profiler.interference_report import StudyReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_IN = (9.6, 4.2)
_DPI = 110
_LATENCY, _THROUGHPUT = "execution time, p50 (ms)", "throughput (frames/s)"
_BAR_SPACE = 0.8
_LEGEND_COLUMNS = 4


def write_plots(report: StudyReport, directory: Path) -> list[Path]:
    """Write a PNG for each part of the study that has figures; return their paths. Takes about a second.

    Raises:
        OSError: They cannot be written.
    """
    plan = report.plan
    written = []
    if plan.instances > 1:
        written += _write(directory / "interference_instances.png", report, _draw_instances)
    if plan.pairs and len(plan.models) > 1:
        written += _write(directory / "interference_pairs.png", report, _draw_pairs)
    if len(plan.splits()) > 1:
        written += _write(directory / "interference_totals.png", report, _draw_totals)
    return written


def _write(path: Path, report: StudyReport, draw: Callable[[StudyReport, Axes, Axes], str]) -> list[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_IN, dpi=_DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    title = draw(report, left, right)
    if not left.has_data():
        return []
    left.set_ylabel(_LATENCY)
    right.set_ylabel(_THROUGHPUT)
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{title}\n{report.device}, Triton {report.triton_version}", fontsize=10)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), _LEGEND_COLUMNS), frameon=False)
    figure.savefig(path)
    return [path]


def _draw_instances(report: StudyReport, left: Axes, right: Axes) -> str:
    counts = range(1, report.plan.instances + 1)
    for model in report.plan.models:
        found = [(n, f) for n in counts if (f := report.figures(Load(model, n))) is not None]
        if found:
            numbers = [n for n, _ in found]
            left.plot(numbers, [f.p50_ms for _, f in found], marker="o", label=model)
            right.plot(numbers, [f.frames_per_s for _, f in found], marker="o")
    for axes in (left, right):
        axes.set_xticks(list(counts))
        axes.set_xlabel("concurrent instances of one model")
    return "Instances of one model, each with its own client"


def _draw_pairs(report: StudyReport, left: Axes, right: Axes) -> str:
    models = report.plan.models
    series = {"alone": [report.figures(Load(model)) for model in models]}
    for other in models:
        series[f"beside {other}"] = [report.beside(model, other) for model in models]
    _bars(left, right, models, series)
    return "One instance of a model alone, and beside one of another or its like"


def _draw_totals(report: StudyReport, left: Axes, right: Axes) -> str:
    models, splits = report.plan.models, report.plan.splits()
    series = {f"{n} x {batch}": [report.figures(Load(model, n, batch)) for model in models] for n, batch in splits}
    _bars(left, right, models, series)
    return f"{report.plan.total} frames underway: instances x batch"


def _bars(left: Axes, right: Axes, groups: Sequence[str], series: dict[str, list[Figures | None]]) -> None:
    """Draw a bar for each group and series; where a figure is missing, none."""
    width = _BAR_SPACE / len(series)
    for index, (name, found) in enumerate(series.items()):
        shown = [(at, f) for at, f in enumerate(found) if f is not None]
        places = [at + (index - (len(series) - 1) / 2) * width for at, _ in shown]
        if not shown:
            continue
        left.bar(places, [f.p50_ms for _, f in shown], width, label=name, edgecolor="white")
        right.bar(places, [f.frames_per_s for _, f in shown], width, edgecolor="white")
    for axes in (left, right):
        axes.set_xticks(range(len(groups)), groups, rotation=0 if len(groups) <= 3 else 30)
