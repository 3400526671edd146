"""Profiles on disk: JSON, read with clear errors, written so that a reader never sees half a file."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from gateway.core.profile import Profile, ProfileError


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises:
        ProfileError: The file cannot be read, is not JSON, or is not a profile; names the file.
    """
    try:
        return Profile.from_dict(json.loads(path.read_bytes()))
    except (OSError, ValueError) as error:  # JSON and profile errors are ValueErrors
        raise ProfileError(f"{path}: {error}") from error


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile in place of `path`, which keeps its old content until the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            json.dump(profile.to_dict(), file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
