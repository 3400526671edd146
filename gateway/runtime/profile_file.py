"""Profiles on disk: JSON, read with clear errors, written so that a reader never sees half a file."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.core.profile import Profile, ProfileError
from gateway.runtime.models import MODEL_NAME


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises:
        ProfileError: The file cannot be read, is not JSON in UTF-8, is not a profile, or names a model that could
            lead out of Triton's repository; names the file.
    """
    try:
        profile = Profile.from_dict(json.loads(path.read_text(encoding="utf-8")))
        for name in dict.fromkeys([e.model for e in profile.entries] + [m.model for m in profile.models]):
            if MODEL_NAME.fullmatch(name) is None:
                raise ProfileError(f"a model is named {name[:200]!r}, which is not of the form {MODEL_NAME.pattern}")
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: it is not text in UTF-8 ({error.reason} at byte {error.start})") from error
    except RecursionError:
        raise ProfileError(f"{path}: it is nested too deeply to be a profile") from None
    except (OSError, ValueError) as error:  # JSON and profile errors are ValueErrors
        raise ProfileError(f"{path}: {error}") from error
    return profile


def write_profile(path: Path, profile: Profile, more: Mapping[str, Any] | None = None) -> None:
    """Write a profile in place of `path`, which keeps its old content until the new one is complete.

    `more` are fields that a reader of profiles does not look at.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            json.dump(profile.to_dict() | dict(more or {}), file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
