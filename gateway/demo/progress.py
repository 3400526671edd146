"""What the demo tells while it works: each phase with its time; and how it fails."""

from __future__ import annotations

import contextlib
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

#: As wide as ``[   1.2 s] ``.
_INDENT = " " * 11
#: Below this, wrapping makes nothing more legible.
_LEAST_WIDTH = 40


class DemoError(Exception):
    """The demo cannot go on, or did not show what it should; the message says why and what to do."""


class Progress:
    """Prints phases to `console`, with the time since the start and the time each took.

    Attributes:
        phases: Seconds by phase, in order; goes into the summary.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.phases: dict[str, float] = {}
        self._start = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show that `name` is being worked at, and its time once it is done."""
        began = time.monotonic()
        with self.console.status(f"{name} ...") if self.console.is_terminal else contextlib.nullcontext():
            yield
        self.phases[name] = round(time.monotonic() - began, 2)
        self.say(f"{name}: {self.phases[name]:.1f} s")

    def say(self, text: str, style: str | None = None) -> None:
        """Print `text` with the time; wrapped, as the console leaves that to the terminal, which cuts words."""
        shown = textwrap.fill(
            f"[{self.elapsed_s:6.1f} s] {text}",
            width=max(_LEAST_WIDTH, self.console.width),
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
        self.console.print(shown, style=style, markup=False, highlight=False)


def tail(path: Path, lines: int = 25) -> str:
    """Return the last lines of a log; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
