"""Sizes in bytes as people write and read them."""

from __future__ import annotations

import re

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1_024
_THREE_DIGITS = 100
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Read a size such as ``2GiB``, ``500MB``, ``1.5g`` or ``4096``: with an i powers of 1024, without powers of 1000.

    Raises:
        ValueError: It is none.
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size, for example 2GiB, 500MB or a number of bytes")
    number, prefix, binary = match.groups()
    power = " kmgt".index(prefix.lower()) if prefix else 0
    return round(float(number) * float(_STEP if binary else 1_000) ** power)


def in_unit(value: int, unit: str) -> str:
    """Return an amount of memory for people; `unit` is ``bytes`` or ``models``."""
    if unit == "bytes":
        return in_bytes(value)
    return f"{value} model{'' if value == 1 else 's'}"


def in_bytes(value: float) -> str:
    """Return a size for people, in powers of 1024."""
    step = 0
    while value >= _STEP and step < len(_UNITS) - 1:
        value, step = value / _STEP, step + 1
    return f"{value:.{0 if value >= _THREE_DIGITS or not step else 1}f} {_UNITS[step]}"
