"""Plan files: which cameras one would like to have. YAML or JSON.

A list of streams, alone or under ``streams:``. Each has the fields of ``POST /v1/streams``, and:

- ``count``: so many equal streams (1 unless given), or ``max``: as many as are admitted.
- ``at_ms``: when they register (0 unless given); streams of one instant register in the order of the file.

Without ``version`` the newest profiled one is meant. Every error names the file, the stream and the field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, ValidationError

from gateway.api.requests import StreamRequest
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, NS_PER_S, StreamSpec
from gateway.wording import in_words

#: Streams of one plan; a test of so many takes seconds.
MOST_STREAMS = 10_000
#: A plan of so many streams is far smaller.
_MOST_BYTES = 16 << 20
#: As for traces: about eleven days.
_LATEST_MS = 1_000 * NS_PER_S / NS_PER_MS
#: What was given says nothing more about these.
_SAY_ALL = ("missing", "extra_forbidden")
#: The rest of the errors would say the same.
_MOST_ERRORS = 20


class PlanFileError(ValueError):
    """A plan that cannot be used; a line for each error, which names file, stream and field."""


def _count(value: object) -> int | None:
    """Return how many; None for as many as are admitted."""
    if value == "max":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_STREAMS:
        return value
    raise ValueError(f"expected max or an integer from 1 to {MOST_STREAMS}")


class PlanStream(StreamRequest):
    """One item of a plan."""

    count: Annotated[int | None, BeforeValidator(_count)] = Field(
        1, description="How many streams of this kind, or `max`: as many as are admitted."
    )
    at_ms: Annotated[float, Field(ge=0, le=_LATEST_MS, allow_inf_nan=False, strict=True)] = Field(
        0.0, description="When they register."
    )


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One item of a plan, ready to be asked about.

    Attributes:
        name: Of the item: its own, else ``stream-<n>``, counted from 1.
        spec: What each of its streams asks for; `version` may be empty.
        count: How many; None: as many as are admitted.
        at_ns: When they register.
    """

    name: str
    spec: StreamSpec
    count: int | None
    at_ns: int

    def resolved(self, profile: Profile) -> StreamSpec:
        """Return the spec with its version filled in: the newest in `profile`."""
        known = profile.versions(self.spec.model)
        return self.spec if self.spec.version else replace(self.spec, version=known[-1] if known else "1")


def read_plan(path: Path) -> tuple[PlanItem, ...]:
    """Read a plan file.

    Raises:
        PlanFileError: It cannot be read, is no YAML, or a stream is not as it should be.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise PlanFileError(f"{path}: it has over {_MOST_BYTES >> 20} MiB")
        data = _parse(raw.decode("utf-8"))
    except OSError as error:
        raise PlanFileError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PlanFileError(f"{path}: it is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except RecursionError:
        raise PlanFileError(f"{path}: it is nested too deeply") from None
    except yaml.YAMLError as error:
        raise PlanFileError(f"{path}: it is not YAML: {' '.join(str(error).split())}") from error
    return _items(path, _streams(path, data))


def _parse(text: str) -> object:
    """Read JSON, or YAML, of which JSON is nearly a part: its tabs and 1e3 are not."""
    try:
        return json.loads(text)
    except ValueError:
        return yaml.safe_load(text)


def _streams(path: Path, data: object) -> list[object]:
    if isinstance(data, dict):
        if unknown := [key for key in data if key != "streams"]:
            raise PlanFileError(f"{path}: unknown field {unknown[0]!r}; a plan has the field streams alone")
        data = data.get("streams")
    if not isinstance(data, list):
        raise PlanFileError(f"{path}: expected a list of streams, alone or under streams:")
    if not data:
        raise PlanFileError(f"{path}: streams: the list is empty")
    return data


def _items(path: Path, streams: Sequence[object]) -> tuple[PlanItem, ...]:
    items: list[PlanItem] = []
    errors: list[str] = []
    for place, stream in enumerate(streams):
        try:
            items.append(_item(place, stream))
        except ValidationError as error:
            errors += [f"{path}: streams[{place}]{line}" for line in _lines(error)]
        except ValueError as error:
            errors.append(f"{path}: streams[{place}]{error}")
    if (total := sum(item.count or 1 for item in items)) > MOST_STREAMS:
        errors.append(f"{path}: {total} streams are more than {MOST_STREAMS}")
    if errors:
        more = [f"{path}: and {len(errors) - _MOST_ERRORS} more errors"] if len(errors) > _MOST_ERRORS else []
        raise PlanFileError("\n".join(errors[:_MOST_ERRORS] + more))
    return tuple(items)


def _item(place: int, stream: object) -> PlanItem:
    if not isinstance(stream, dict):
        raise ValueError(f": expected the fields of a stream, not {_short(stream)}")
    # Through JSON, since its strict types are those of the HTTP interface.
    asked = PlanStream.model_validate_json(json.dumps({str(k): _plain(str(k), v) for k, v in stream.items()}))
    try:
        spec = asked.spec()
    except ValueError as error:
        raise ValueError(f": {error}") from error
    return PlanItem(
        name=asked.name or f"stream-{place + 1}",
        spec=spec,
        count=asked.count,
        at_ns=round(asked.at_ms * NS_PER_MS),
    )


def _plain(name: str, value: object) -> object:
    """Return `value` if it is a scalar or a list of them; people write versions and names as numbers in YAML."""
    if name in {"version", "name"} and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    for part in value if isinstance(value, list) else [value]:
        if not (part is None or isinstance(part, str | int | float)):
            raise ValueError(f".{name}: expected a number, a text or a list of numbers, not {_short(value)}")
    return value


def _short(value: object) -> str:
    text = f"{type(value).__name__}" if isinstance(value, dict | list) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _lines(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False):
        given: Any = problem.get("input")
        shown = "" if isinstance(given, dict) or problem["type"] in _SAY_ALL else f", not {_short(given)}"
        yield f"{_field(problem['loc'])}: {in_words(problem, PlanStream)}{shown}"


def _field(loc: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
