"""What a person sees of a camera: running figures, outages, the summary. All of it fits 80 columns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway.client.camera import Camera
from gateway.client.stats import IN_FLIGHT, LATE, NO_PICTURE, OUTCOMES
from gateway.errors import FrameSurplus

#: Between two plain lines of figures when the output is no terminal.
PLAIN_EVERY_S = 5.0
#: Between two looks at the camera.
_LOOK_S = 0.25
_SKIPS = {NO_PICTURE: "no picture", LATE: "too late", IN_FLIGHT: "too many in flight"}
#: ``other``: expired, cancelled, failed. Latencies in ms.
_HEADINGS = ("sent", "met", "missed", "other", "refused", "lost", "skipped", "flying", "p50", "p99", "batch")

#: Left out of the plain lines, which are to fit 80 columns too.
_TABLE_ONLY = {"flying", "p50", "batch"}


def short_source(source: str) -> str:
    """Return a name of the source for people: no directories, and no credentials of a URL."""
    if "://" not in source:
        return PurePath(source).name
    parts = urlsplit(source)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@dataclass
class Announcer:
    """Says once that the gateway is away, and once that it is back; and once that frames are too many.

    Args:
        camera: What is looked at.
        say: Prints one line.
    """

    camera: Camera
    say: Callable[[str], None]
    _away: bool = False
    _surplus: bool = False

    def look(self) -> None:
        """Compare with the last look."""
        outage = self.camera.contact.outage
        if outage is not None and not self._away:
            self.say(f"{outage}; frames are lost until it is back")
        elif outage is None and self._away:
            self.say(f"gateway reachable again; {self.camera.stats.lost} frames were lost so far")
        self._away = outage is not None
        if not self._surplus and (advice := advice_on(self.camera.stats.refusals)):
            self._surplus = True
            self.say(f"frames are refused: {advice[-1].strip()}")


async def watch(camera: Camera, headline: str, console: Console) -> None:
    """Show running figures until cancelled: a table on a terminal, a line now and then elsewhere."""
    announcer = Announcer(camera, lambda text: console.print(text, markup=False))
    try:
        if console.is_terminal:
            with Live(table(camera, headline), console=console, refresh_per_second=4, transient=True) as live:
                while True:
                    await asyncio.sleep(_LOOK_S)
                    announcer.look()
                    live.update(table(camera, headline))
        while True:
            for _ in range(round(PLAIN_EVERY_S / _LOOK_S)):
                await asyncio.sleep(_LOOK_S)
                announcer.look()
            console.print(plain_line(camera))
    finally:
        announcer.look()


def table(camera: Camera, headline: str) -> RenderableType:
    """Return the figures as of now under `headline`; the outage, if there is one, below them."""
    figures = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in _HEADINGS:
        figures.add_column(heading, justify="right")
    figures.add_row(*_cells(camera))
    outage = camera.contact.outage
    return Group(wrapped(headline), figures, *([] if outage is None else [wrapped(str(outage), "bold red")]))


def wrapped(text: str, style: str = "") -> Text:
    """Return `text` so that it is wrapped also on a console that leaves wrapping to the terminal.

    A live display has to know how many lines it takes.
    """
    return Text(text, style=style, no_wrap=False, overflow="fold")


def plain_line(camera: Camera) -> str:
    """Return the figures as one line; what is nothing is left out."""
    cells = dict(zip(_HEADINGS, _cells(camera), strict=True))
    shown = [name for name, value in cells.items() if value not in {"0", "-"} and name not in _TABLE_ONLY]
    return ", ".join(f"{name} {cells[name]}" for name in shown) or "nothing sent yet"


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """Return the summary for people, with what each counter means."""
    lines = [f"{summary['frames']} frames sent ({summary['stopped_by']}), stream {summary['stream_id']}"]
    lines.append("  " + ", ".join(f"{outcome} {summary[outcome]}" for outcome in OUTCOMES))
    meanings = {
        "refused_frames": "the gateway did not accept them",
        "lost": "no answer came",
        "skipped": ", ".join(f"{count} {_SKIPS[why]}" for why, count in summary["skipped_by_reason"].items() if count),
    }
    lines += [f"  {name} {summary[name]} ({meaning})" for name, meaning in meanings.items() if summary[name]]
    lines += [f"  {line}" for line in advice_on(summary["refused_by_code"])]
    if summary["p50_latency_ms"] is not None:
        lines.append(f"  latency p50 {summary['p50_latency_ms']:.1f} ms, p99 {summary['p99_latency_ms']:.1f} ms")
    if summary["mean_batch"] is not None:
        lines[-1] += f"; {summary['mean_batch']:.2f} frames per job"
    return lines


def advice_on(refusals: Mapping[str, int]) -> list[str]:
    """Return what a person can do about frames that were refused; `refusals` counts them by code."""
    surplus = refusals.get(FrameSurplus.code, 0)
    if not surplus:
        return []
    return [
        f"{surplus} of them came earlier than the stream's contract allows:",
        "  raise --jitter-ms, or --burst if frames come in groups",
    ]


def _cells(camera: Camera) -> list[str]:
    stats = camera.stats
    other = stats.answered - stats.outcomes["met"] - stats.outcomes["missed"]
    ended = (stats.sent, stats.outcomes["met"], stats.outcomes["missed"], other)
    counts = (*ended, stats.refused, stats.lost, stats.skipped, camera.in_flight)
    times = (_decimal(stats.latency_ms(50), 1), _decimal(stats.latency_ms(99), 1), _decimal(stats.mean_batch, 2))
    return [*map(str, counts), *times]


def _decimal(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
