"""Environment variables that look like settings and are none: without a word, a typing error would change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from pydantic import BaseModel

from gateway.settings import Settings

#: Read by other parts than `Settings`.
OTHERS = frozenset({"INTRA_OP_THREADS", "CACHE"})


def unknown_variables(names: Iterable[str]) -> list[str]:
    """Return one line of warning for each of `names` that begins like a setting and is none.

    Those within a group of settings are left out: `Settings` refuses them.
    """
    prefix = str(Settings.model_config["env_prefix"])
    known = {path.upper() for path in _paths()} | OTHERS
    groups = {path.partition("__")[0] for path in known if "__" in path}
    lines = []
    for name in sorted(names):
        path = name.upper().removeprefix(prefix)
        refused = path.partition("__")[0] in groups and "__" in path
        if path not in known and not refused and name.upper().startswith(prefix):
            near = get_close_matches(path, known, 1)
            lines.append(f"{name} is no setting and is ignored." + (f" Is it {prefix}{near[0]}?" if near else ""))
    return lines


def _paths() -> Iterator[str]:
    """Yield each setting's path: a field, a group (its value is JSON) or a field of a group."""
    for name, field in Settings.model_fields.items():
        yield name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            for inner in field.annotation.model_fields:
                yield f"{name}__{inner}"
