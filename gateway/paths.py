"""Where files are when nobody says so, and whether some can be written: one rule for all commands."""

from __future__ import annotations

import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_REPOSITORY = "model_repository"


def checkout() -> Path | None:
    """Return the checkout that this package runs from; None where it is installed without one."""
    return _ROOT if (_ROOT / "pyproject.toml").exists() else None


def default_repository() -> Path:
    """Return ``./model_repository`` if there is one, else that of the checkout."""
    here, root = Path(_REPOSITORY), checkout()
    return here if here.is_dir() or root is None else root / _REPOSITORY


def find_repository(configured: Path | None) -> Path:
    """Return `configured`, unless that is nothing or the plain default name: then `default_repository`."""
    return default_repository() if configured is None or configured == Path(_REPOSITORY) else configured


def make_writable(directory: Path) -> None:
    """Make `directory` if need be, and write and remove a file in it: cheaper to know before the work than after.

    Raises:
        OSError: It cannot be made, or nothing can be written there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass
