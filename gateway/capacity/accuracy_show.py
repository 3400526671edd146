"""The comparison as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.capacity.accuracy import AccuracyReport, Distribution, StreamAccuracy

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

#: Streams beyond these are in the JSON; the tightest are shown.
_MOST_STREAMS = 40


def view(report: AccuracyReport) -> RenderableType:
    """Return the distributions by category, then the streams, then what the log lacks."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        Text("Actual / expected execution time, by job"),
        _distributions(report, "execution_ratio", "over 1"),
    ]
    if report.overall.end_behind_ms is not None:
        what = "\nActual minus planned end in ms, by job (after it breaks no promise: deadlines leave room)"
        parts += [Text(what), _distributions(report, "end_behind_ms", "after it")]
    else:
        parts.append(Text("\nNo job ran under a plan with fixed ends (the sporadic test makes none)."))
    if report.streams:
        parts += [Text("\nWorst latency in ms, by stream: planned at its admission, and what came"), _streams(report)]
    parts += [Text(line) for line in _remarks(report)]
    return Group(*parts)


def _table(*names: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in {"category", "stream", "test"} else "right", overflow="fold")
    return table


def _distributions(report: AccuracyReport, field: str, over: str) -> RenderableType:
    table = _table("category", "jobs", "p50", "p90", "p99", "max", over)
    rows = [*report.categories.items()]
    if len(rows) != 1:
        rows.append(("all", report.overall))
    for name, jobs in rows:
        found: Distribution | None = getattr(jobs, field)
        if found is not None:
            figures = (f"{value:.3f}" for value in (found.p50, found.p90, found.p99, found.max))
            table.add_row(name, str(found.jobs), *figures, f"{found.over:.1%}")
    return table


def _streams(report: AccuracyReport) -> RenderableType:
    table = _table("stream", "category", "test", "frames", "deadline", "planned", "worst", "within")
    for stream in sorted(report.streams, key=_margin)[:_MOST_STREAMS]:
        times = (stream.deadline_ms, stream.planned_worst_ms, stream.worst_ms)
        within = {True: "yes", False: "no", None: ""}[stream.within]
        figures = ("" if ms is None else f"{ms:.1f}" for ms in times)
        table.add_row(stream.stream, stream.category, stream.test, str(stream.frames), *figures, within)
    return table


def _margin(stream: StreamAccuracy) -> float:
    """Return how much of the plan was left; those of which nothing is known go last."""
    if stream.planned_worst_ms is None or stream.worst_ms is None:
        return float("inf")
    return stream.planned_worst_ms - stream.worst_ms


def _remarks(report: AccuracyReport) -> list[str]:
    out = []
    if len(report.streams) > _MOST_STREAMS:
        out.append(f"and {len(report.streams) - _MOST_STREAMS} more streams, further from their plans (--json)")
    if report.dropped_actions:
        out.append(f"the log lacks {report.dropped_actions} actions, which could not be written in time")
    if report.skipped_lines:
        out.append(f"{report.skipped_lines} lines are no actions and were skipped")
    if report.half_line:
        out.append("the last line is incomplete: the log is still being written, or its writer was stopped")
    return out
