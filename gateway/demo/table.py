"""The live table: one row per camera, and what was refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway.client.agent import explain_refusal
from gateway.client.screen import wrapped
from gateway.demo.cameras import SURE
from gateway.demo.show import Show

#: Times in ms. ``other``: expired, cancelled, failed, refused or lost. ``faces``: frames with a sure face.
_HEADINGS = ("camera", "size", "due", "fps", "sent", "met", "missed", "other", "p50", "p99", "batch", "faces")
_TITLE = f"cameras; due, p50 and p99 in ms; faces: frames with a face, score {SURE:g} or more"
#: Between two lines when the output is no terminal.
PLAIN_EVERY_S = 5.0


def render(show: Show) -> RenderableType:
    """Return the table as of now."""
    # no lines: all of it fits 80 columns
    table = Table(title=_TITLE, box=None, padding=(0, 1, 0, 0))
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "camera" else "right")
    for camera in show.cameras:
        stats = camera.camera.stats
        other = stats.answered - stats.outcomes["met"] - stats.outcomes["missed"] + stats.lost + stats.refused
        table.add_row(
            camera.plan.name,
            "{}x{}".format(*camera.plan.shape),
            f"{camera.plan.deadline_ms:.0f}",
            f"{camera.fps:.1f}",
            str(stats.sent),
            str(stats.outcomes["met"]),
            str(stats.outcomes["missed"]),
            str(other),
            _ms(stats.latency_ms(50)),
            _ms(stats.latency_ms(99)),
            "-" if stats.mean_batch is None else f"{stats.mean_batch:.2f}",
            str(camera.frames_with_face),
        )
    return Group(table, *refusal_lines(show))


def refusal_lines(show: Show) -> list[Text]:
    """Return the refused camera with its evidence, one line each; nothing until there is one."""
    if show.refusal is None:
        return []
    plan, problem = show.refusal.plan, show.refusal.problem
    asked = f"{plan.fps:g} fps of {plan.shape[0]}x{plan.shape[1]}, deadline {plan.deadline_ms:g} ms"
    lines = [wrapped(f"refused: {plan.name} ({asked}); an empty device would carry it", "bold red")]
    return lines + [wrapped(f"  {line}") for line in explain_refusal(problem.evidence, problem.counter_offers)]


async def keep_showing(show: Show, console: Console, say: Callable[[str], None]) -> None:
    """Show the table until cancelled; without a terminal, a line now and then."""
    if not console.is_terminal:
        while True:
            await asyncio.sleep(PLAIN_EVERY_S)
            stats = show.stats
            say(
                f"sent {stats.sent}, met {stats.outcomes['met']}, missed {stats.outcomes['missed']}, "
                f"p50 {_ms(stats.latency_ms(50))} ms, p99 {_ms(stats.latency_ms(99))} ms"
            )
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            live.update(render(show))
            await asyncio.sleep(0.25)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
