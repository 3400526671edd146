"""What was measured so far, on disk after every step: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any


class Results:
    """Figures by name, in one JSON file.

    Args:
        path: The file.
        resume: Begin with what it holds; else with nothing.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        self._found: dict[str, Any] = json.loads(path.read_text()) if resume and path.exists() else {}

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - as JSON has it
        return self._found[name]

    def get(self, name: str) -> Any:  # noqa: ANN401
        """Return it, or None."""
        return self._found.get(name)

    def keep(self, name: str, figures: Any) -> Any:  # noqa: ANN401
        """Keep `figures` and return them."""
        self._found[name] = figures
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._found))
        part.replace(self._path)
        return figures

    async def once(self, name: str, measure: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401
        """Return what is kept of `name`; measure it if there is nothing."""
        return self._found[name] if name in self._found else self.keep(name, await measure())
