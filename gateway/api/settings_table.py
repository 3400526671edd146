"""``python -m gateway.api.settings_table``: writes ``docs/settings.md`` from `gateway.settings`."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gateway.settings import Settings

PLACE = Path("docs/settings.md")
_HEAD = """# Settings

Every setting of `framegate serve` is an environment variable: the prefix `FRAMEGATE_`, then what stands here, in any
case. Flags win over the environment. Sizes are in bytes; times are in what their names end with. The words are those
of the [glossary](glossary.md). `python -m gateway.api.settings_table` writes this page from `gateway/settings`.
"""


def page() -> str:
    """Return the page: a table of the settings that stand alone, then one for each group."""
    alone = {name: field for name, field in Settings.model_fields.items() if _group(field) is None}
    parts = [_HEAD, *_table("", alone)]
    for name, field in Settings.model_fields.items():
        if (group := _group(field)) is not None:
            parts += [f"\n## `{name}`\n", f"{_first_line(group)}\n", *_table(f"{name.upper()}__", group.model_fields)]
    return "\n".join(parts) + "\n"


def _group(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _first_line(group: type[BaseModel]) -> str:
    return (group.__doc__ or "").strip().partition("\n")[0].replace("``", "`")


def _table(prefix: str, fields: dict[str, FieldInfo]) -> Iterator[str]:
    yield "| `FRAMEGATE_...` | default | values | meaning |\n|---|---|---|---|"
    for name, field in fields.items():
        yield f"| `{prefix}{name.upper()}` | {_default(field)} | {_values(field)} | {field.description} |"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    return "" if value in (None, [], "") else f"`{_text(value)}`"


def _values(field: FieldInfo) -> str:
    kind = field.annotation
    if get_origin(kind) is Literal:
        return ", ".join(f"`{_text(word)}`" for word in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{_text(word)}`" for word in kind)
    if kind is bool:
        return "`true`, `false`"
    least = next((_text(bound.ge) for bound in field.metadata if isinstance(bound, Ge)), None)
    above = next((f"above {_text(bound.gt)}" for bound in field.metadata if isinstance(bound, Gt)), least)
    most = next((bound.le for bound in field.metadata if isinstance(bound, Le)), None)
    return "" if above is None or most is None else f"{above} to {_text(most)}"


def _text(value: Any) -> str:  # noqa: ANN401 - whatever a setting can be
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    PLACE.write_text(page(), encoding="utf-8")
