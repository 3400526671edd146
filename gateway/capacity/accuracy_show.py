"""The comparison as tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway.capacity.accuracy import AccuracyReport, Distribution, StreamAccuracy

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

#: Streams beyond these are in the JSON; the tightest are shown.
_MOST_STREAMS = 40
#: A larger share of jobs over their profiled time than this makes the promises doubtful.
_MOST_OVER = 0.01
_CATEGORY = re.compile(r"(?P<model>.*)/[^/\[]*\[(?P<shape>[\d, ]*)\]\w+")
#: Ids as the gateway makes them; those of traces are names.
_ID = re.compile(r"[0-9a-f]{16}")
_SHORT = 8
_PROMISE = (
    "Predicted: with the streams there were when this one was admitted. Each stream admitted later changes the plan, so"
    " an observed worst above it breaks no promise; the promise is the deadline, and met says how often it was kept."
)


def view(report: AccuracyReport) -> RenderableType:
    """Return the distributions by category, then the streams, what the log lacks, and the verdict."""
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
        title = "\nWorst latency in ms, by stream in order of admission, and frames that met their deadlines"
        parts += [Text(title), _streams(report), Text(_PROMISE)]
    parts += [Text(line) for line in _remarks(report)]
    parts.append(Text(f"\n{_verdict(report)}"))
    return Group(*parts)


def _table(*names: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in {"category", "stream", "test"} else "right", overflow="fold")
        table.columns[-1].no_wrap = name != "stream"
    return table


def _labels(categories: Iterable[str]) -> dict[str, str]:
    """Return model and shape of each category; all of it where two would be called the same."""
    names = list(dict.fromkeys(categories))
    short = {}
    for name in names:
        found = _CATEGORY.fullmatch(name)
        short[name] = f"{found['model']} {found['shape'].replace(', ', 'x')}" if found else name
    called = list(short.values())
    return {name: label if called.count(label) == 1 else name for name, label in short.items()}


def _distributions(report: AccuracyReport, field: str, over: str) -> RenderableType:
    table = _table("category", "jobs", "p50", "p90", "p99", "max", over)
    labels = _labels(report.categories)
    rows = [(labels[name], jobs) for name, jobs in report.categories.items()]
    if len(rows) != 1:
        rows.append(("all", report.overall))
    for name, jobs in rows:
        found: Distribution | None = getattr(jobs, field)
        if found is not None:
            figures = (f"{value:.3f}" for value in (found.p50, found.p90, found.p99, found.max))
            table.add_row(name, str(found.jobs), *figures, f"{found.over:.1%}")
    return table


def _streams(report: AccuracyReport) -> RenderableType:
    from rich.text import Text

    table = _table("no.", "stream", "category", "predicted\nworst", "observed\nworst", "deadline", "met")
    labels = _labels(stream.category for stream in report.streams)
    tightest = sorted(enumerate(report.streams, 1), key=lambda pair: _margin(pair[1]))[:_MOST_STREAMS]
    for number, stream in sorted(tightest, key=lambda pair: pair[0]):
        name = stream.name or (stream.stream[:_SHORT] if _ID.fullmatch(stream.stream) else stream.stream)
        times = (stream.planned_worst_ms, stream.worst_ms, stream.deadline_ms)
        figures = ("" if ms is None else f"{ms:.1f}" for ms in times)
        met = "" if stream.met is None or not stream.ended else f"{stream.met}/{stream.ended}"
        met += f" and {stream.cancelled} cancelled" if stream.cancelled else ""
        table.add_row(str(number), Text(name), labels[stream.category], *figures, met)
    return table


def _verdict(report: AccuracyReport) -> str:
    jobs = report.overall.execution_ratio
    said = f"Verdict: {jobs.over:.1%} of {jobs.jobs} jobs took longer than their profiled time"
    if jobs.over > _MOST_OVER:
        return (
            f"{said}: the profile is too optimistic for this machine as it runs: profile again, or set"
            " scheduling.dispatch_overhead_ms."
        )
    return f"{said}: the profile holds."


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
