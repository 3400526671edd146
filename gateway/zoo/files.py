"""Files of the zoo: where they are kept, checksums, atomic writes, and the manifest beside each built model."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from gateway.paths import checkout, default_repository

__all__ = [
    "Manifest",
    "cache_directory",
    "default_repository",
    "is_intact",
    "read_manifest",
    "sha256",
    "write_atomically",
]

MANIFEST = "manifest.json"
_CHUNK_BYTES = 1 << 20


def cache_directory() -> Path:
    """Return where downloads are kept: `FRAMEGATE_CACHE`, else ``.cache`` of the checkout, else the user's cache."""
    if own := os.environ.get("FRAMEGATE_CACHE"):
        return Path(own)
    if (root := checkout()) is not None:
        return root / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "framegate"


def sha256(path: Path) -> str:
    """Return the file's SHA-256 in hex; 0.3 s for 500 MB."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a temporary file beside `path`, then rename it: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class Manifest:
    """What a built model file is and what it was made from; `manifest.json` beside it.

    Attributes:
        model: Its name in the repository.
        file: Name of the model file.
        sha256: Of the model file.
        source: What it was made from, e.g. ``"keras ResNet50"``.
        source_sha256: Of the source's weights, so that a changed source shows.
        recipe: Version of the code that made it; a newer recipe builds again.
        weights: ``"random"``, ``"imagenet"`` or ``"published"``.
        seed: Of random weights, else None.
        versions: Of the libraries that took part.
    """

    model: str
    file: str
    sha256: str
    source: str
    source_sha256: str
    recipe: int
    weights: str
    seed: int | None
    versions: dict[str, str]

    def write(self, directory: Path) -> None:
        """Write it into `directory`, atomically."""
        text = json.dumps(asdict(self), indent=2) + "\n"
        write_atomically(directory / MANIFEST, lambda path: _write_text(path, text))


def read_manifest(directory: Path) -> Manifest | None:
    """Return the manifest in `directory`; None if there is none, or it is not one that this version wrote."""
    try:
        return Manifest(**json.loads((directory / MANIFEST).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def is_intact(directory: Path, manifest: Manifest) -> bool:
    """Whether the model file is there and is the one that the manifest describes."""
    path = directory / manifest.file
    return path.is_file() and sha256(path) == manifest.sha256


def _write_text(path: Path, text: str) -> None:
    path.write_text(text)
