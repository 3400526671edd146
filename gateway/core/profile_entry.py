"""One measured line of a profile, and how it is read from the file's JSON (layout: ``docs/guide.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Below this many samples the 99th percentile is not known; 1.1 times the largest stands in for it.
MIN_SAMPLES = 100
_UNSTABLE_MARGIN = 1.1
#: Over eleven days: a larger figure is a unit mistaken, and must not overflow what is summed from it.
_MAX_MS = 1e9
#: The table of a category has a place for every batch size; no accelerator runs more in one batch of pictures.
_MAX_BATCH = 1_024
#: Counts and bytes: larger ones are no measurement.
_MAX_COUNT = 2**50
#: As for a registration.
_MAX_AXES, _MAX_AXIS = 8, 65_536


class ProfileError(ValueError):
    """A profile that cannot be used. The message names the entry and the field."""


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """Measured execution times of one batch size of one model at one shape.

    Attributes:
        model, version, shape, dtype: See `Category`.
        batch: Frames in the batch, at least 1.
        count: Samples behind the figures.
        p50_ms, p99_ms, max_ms: Of the samples.
        stable: Whether the measurement settled.
        queue_ms, compute_input_ms, compute_infer_ms, compute_output_ms: How the server spent it, on average; None
            where that was not measured.
    """

    model: str
    version: str
    shape: tuple[int, ...]
    dtype: str
    batch: int
    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    stable: bool = True
    queue_ms: float | None = None
    compute_input_ms: float | None = None
    compute_infer_ms: float | None = None
    compute_output_ms: float | None = None

    @property
    def execution_ms(self) -> float:
        """The planned bound: p99, or 1.1 times the largest sample where p99 is not known."""
        return self.p99_ms if self.count >= MIN_SAMPLES else _UNSTABLE_MARGIN * self.max_ms


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What it costs to bring a model in and out: times in ms, memory in bytes.

    Attributes:
        interference_p50, interference_p99: Execution time while other models load and unload, as a multiple of that
            without, at the median and the 99th percentile; None where that was not measured.
        swaps: How often it was unloaded and loaded for these figures; `load_ms` and `unload_ms` are medians.
        load_max_ms, unload_max_ms: The longest of them; None in profiles from before they were kept.
        warm_up_ms: The longest first execution after a load, of its largest measured batch; None: not measured.
    """

    model: str
    version: str
    load_ms: float
    unload_ms: float
    bytes: int
    interference_p50: float | None = None
    interference_p99: float | None = None
    swaps: int | None = None
    load_max_ms: float | None = None
    unload_max_ms: float | None = None
    warm_up_ms: float | None = None


def read_entry(index: int, item: object) -> ProfileEntry:
    """Read ``entries[index]``; ProfileError when a field is missing or not what it should be."""
    read = _Reader(f"entries[{index}]", item)
    return ProfileEntry(
        model=read.text("model"),
        version=read.text("version"),
        shape=read.shape("shape"),
        dtype=read.text("dtype"),
        batch=read.integer("batch", _MAX_BATCH),
        count=read.integer("count"),
        p50_ms=read.number("p50_ms"),
        p99_ms=read.number("p99_ms"),
        max_ms=read.number("max_ms"),
        stable=bool(read.item.get("stable", True)),
        queue_ms=read.optional("queue_ms"),
        compute_input_ms=read.optional("compute_input_ms"),
        compute_infer_ms=read.optional("compute_infer_ms"),
        compute_output_ms=read.optional("compute_output_ms"),
    )


def read_model(index: int, item: object) -> ModelEntry:
    """Read ``models[index]``; ProfileError when a field is missing or not what it should be."""
    read = _Reader(f"models[{index}]", item)
    return ModelEntry(
        model=read.text("model"),
        version=read.text("version"),
        load_ms=read.number("load_ms"),
        unload_ms=read.number("unload_ms"),
        bytes=read.integer("bytes"),
        interference_p50=read.factor("interference_p50"),
        interference_p99=read.factor("interference_p99"),
        swaps=read.integer("swaps") if "swaps" in read.item else None,
        load_max_ms=read.optional("load_max_ms"),
        unload_max_ms=read.optional("unload_max_ms"),
        warm_up_ms=read.optional("warm_up_ms"),
    )


@dataclass(frozen=True)
class _Reader:
    """Typed access to one JSON object, with errors that say where."""

    where: str
    item: Any

    def __post_init__(self) -> None:
        if not isinstance(self.item, Mapping):
            raise ProfileError(f"{self.where} must be an object")

    def _fail(self, name: str, wanted: str) -> ProfileError:
        return ProfileError(f"{self.where}.{name} must be {wanted}, not {self.item.get(name)!r}")

    def text(self, name: str) -> str:
        value = self.item.get(name)
        if not isinstance(value, str) or not value:
            raise self._fail(name, "a non-empty string")
        return value

    def integer(self, name: str, most: int = _MAX_COUNT) -> int:
        value = self.item.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise self._fail(name, f"an integer from 1 to {most}")
        return value

    def number(self, name: str) -> float:
        value = self.item.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not (0 < value <= _MAX_MS):
            raise self._fail(name, f"a positive number of at most {_MAX_MS:.0e}")
        return float(value)

    def optional(self, name: str) -> float | None:
        """A part of a time may be too short for its clock, so it may be 0."""
        value = self.item.get(name)
        return 0.0 if value == 0 and not isinstance(value, bool) else self.factor(name)

    def factor(self, name: str) -> float | None:
        return None if self.item.get(name) is None else self.number(name)

    def shape(self, name: str) -> tuple[int, ...]:
        value = self.item.get(name)
        if (
            not isinstance(value, list)
            or not 1 <= len(value) <= _MAX_AXES
            or not all(
                isinstance(axis, int) and not isinstance(axis, bool) and 1 <= axis <= _MAX_AXIS for axis in value
            )
        ):
            raise self._fail(name, f"a list of 1 to {_MAX_AXES} integers from 1 to {_MAX_AXIS}")
        return tuple(value)
