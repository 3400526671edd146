"""What pydantic finds wrong, in plain words: for answers, plan files and settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

#: The pieces of a fault's place that are looked at: names come from callers.
_MOST_CHARS = 80
_SHOULD = re.compile(r"^\w+ should ")


def in_words(fault: Mapping[str, Any], model: type[BaseModel] | None = None) -> str:
    """Return one of pydantic's `errors()` in words that fit behind its field; `model` is what was to be read."""
    if fault["type"] == "extra_forbidden":
        near = closest(str(fault["loc"][-1]), _fields(fault["loc"][:-1], model))
        return "there is no such field" + (f"; did you mean {near}?" if near else "")
    if fault["type"] == "missing":
        return "it is missing"
    return _SHOULD.sub("it must ", str(fault["msg"]).removeprefix("Value error, "))


def closest(name: str, known: Sequence[str]) -> str | None:
    """Return which of `known` is meant by `name`, if it is like one of them."""
    near = get_close_matches(name[:_MOST_CHARS].lower(), known, 1)
    return near[0] if near else None


def _fields(place: Sequence[str | int], model: type[BaseModel] | None) -> list[str]:
    """Return the fields at `place` in `model`; none where that is not known."""
    for step in place:
        field = None if model is None else model.model_fields.get(str(step))
        inner = None if field is None else field.annotation
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
    return [] if model is None else list(model.model_fields)
