"""Execution times of batches, as measured: the one table that every plan rests on.

A profile is plain data (``docs/guide.md`` has the file's layout). Reading and writing files is the
business of ``gateway.runtime``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gateway.core.profile_entry import ModelEntry, ProfileEntry, ProfileError, read_entry, read_model
from gateway.core.types import NS_PER_MS, Category

__all__ = ["ModelEntry", "Profile", "ProfileEntry", "ProfileError", "split"]

_SCHEMA = 1

_Key = tuple[str, str, tuple[int, ...], str]


def _key(category: Category) -> _Key:
    return (category.model, category.version, category.shape, category.dtype)


#: See `_table`.
_WASTE = 1.5

#: On the longest time that was measured, as for execution times of few samples.
_MARGIN = 1.1

#: Datatypes of values that can be averaged, as scaling does.
PIXELS = frozenset({"UINT8", "UINT16", "INT16", "FP16", "FP32", "FP64"})
#: A last axis of up to this many is taken for channels; more is the width of a picture in another layout.
MOST_CHANNELS = 4
_PICTURE_AXES = 3


@dataclass(frozen=True)
class Profile:
    """Planned execution times by category and batch size.

    E is made monotone in the batch size when the profile is read, because a larger batch measured faster
    is noise that a plan must not rest on; an unmeasured size takes the next larger measured one.

    Attributes:
        entries: One per model, version, shape, dtype and batch.
        models: Swap costs.
        device, triton_version, engine, created: Where, with what and when it was measured.
        dispatch_overhead_ns: Added to every execution time.
        interference: See `beside_loads`; None: nothing is loaded beside what runs.

    Raises:
        ProfileError: The same batch of the same category is there twice.
    """

    entries: tuple[ProfileEntry, ...] = ()
    models: tuple[ModelEntry, ...] = ()
    device: str = ""
    triton_version: str = ""
    engine: str = "native"
    created: str = ""
    dispatch_overhead_ns: int = 0
    interference: float | None = None
    _tables: dict[_Key, tuple[int, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _typical: dict[_Key, tuple[int, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Build the table of each category: index n holds E(n), index 0 holds 0."""
        measured: dict[_Key, dict[int, int]] = {}
        medians: dict[_Key, dict[int, int]] = {}
        for entry in self.entries:
            key = (entry.model, entry.version, entry.shape, entry.dtype)
            sizes = measured.setdefault(key, {})
            if entry.batch in sizes:
                raise ProfileError(
                    f"{entry.model}/{entry.version} {list(entry.shape)} batch {entry.batch} is in the profile twice"
                )
            sizes[entry.batch] = max(1, round(entry.execution_ms * self._slower(entry.model) * NS_PER_MS))
            medians.setdefault(key, {})[entry.batch] = max(1, round(entry.p50_ms * NS_PER_MS))
        for key, sizes in measured.items():
            table = self._tables[key] = _table(sizes, self.dispatch_overhead_ns)
            self._typical[key] = _monotone(medians[key], self.dispatch_overhead_ns)[: len(table)]

    def plus_overhead(self, overhead_ns: int) -> Profile:
        """Return the same profile with `overhead_ns` more on every execution time."""
        return replace(self, dispatch_overhead_ns=self.dispatch_overhead_ns + overhead_ns) if overhead_ns else self

    def beside_loads(self, interference: float) -> Profile:
        """Return the same profile for a device on which models may be loaded at any time.

        Every E is longer by the factor that was measured for its model (`ModelEntry.interference_p99`), or by
        `interference`. Medians stay: a load lasts for a few executions only.
        """
        return replace(self, interference=interference)

    def _slower(self, model: str) -> float:
        if self.interference is None:
            return 1.0
        measured = [m.interference_p99 for m in self.models if m.model == model and m.interference_p99 is not None]
        return max(1.0, *measured) if measured else self.interference

    def has(self, category: Category) -> bool:
        """Return whether anything is known about `category`."""
        return _key(category) in self._tables

    def table(self, category: Category) -> tuple[int, ...]:
        """Return E in ns for 0, 1, ... `max_batch` frames; index 0 holds 0.

        Raises:
            KeyError: The category is not profiled.
        """
        return self._tables[_key(category)]

    def typical(self, category: Category) -> tuple[int, ...]:
        """Return the medians in ns, as `table` returns E: what to expect, where E is what to plan with."""
        return self._typical[_key(category)]

    def execution_ns(self, category: Category, n: int) -> int:
        """Return E(category, n) in ns, dispatch overhead included.

        Raises:
            KeyError: The category is not profiled.
            ValueError: `n` is not a batch size of it.
        """
        table = self.table(category)
        if not 1 <= n < len(table):
            raise ValueError(f"a job of {category} holds 1 to {len(table) - 1} frames, not {n}")
        return table[n]

    def max_batch(self, category: Category) -> int:
        """Return the largest batch of `category` that pays; KeyError when it is not profiled."""
        return len(self.table(category)) - 1

    def split_ns(self, category: Category, n: int) -> int:
        """Return the time in ns of a window of `n` frames: as many full jobs as fit, and the rest."""
        return split(self.table(category), n)

    def shapes(self, model: str, version: str, dtype: str = "UINT8") -> list[tuple[int, ...]]:
        """Return the profiled shapes of a model, smallest first (by elements, then by axes)."""
        found = [shape for m, v, shape, d in self._tables if (m, v, d) == (model, version, dtype)]
        return sorted(found, key=lambda shape: (math.prod(shape), shape))

    def without_batches(self, category: Category) -> Profile:
        """Return the same profile, in which a batch of `category` holds one frame; its E stays."""
        key = _key(category)
        own = [e for e in self.entries if (e.model, e.version, e.shape, e.dtype) == key]
        others = tuple([entry for entry in self.entries if entry not in own])
        single = replace(min(own, key=lambda entry: entry.batch), batch=1)
        return replace(self, entries=(*others, single))

    # ------------------------------------------------------------ models

    def weight(self, model: str) -> int | None:
        """Return what a model holds in bytes, that of its largest version; None: it was not measured."""
        return max((m.bytes for m in self.models if m.model == model), default=None)

    def load_ns(self, model: str) -> int | None:
        """Return how long a load is planned to take: the longest measured, and a tenth; None: not measured."""
        times = [m.load_ms if m.load_max_ms is None else m.load_max_ms for m in self.models if m.model == model]
        return round(max(times) * _MARGIN * NS_PER_MS) if times else None

    def unload_ns(self, model: str) -> int | None:
        """Return how long an unload is planned to take, until its memory is free; as `load_ns`."""
        times = [m.unload_ms if m.unload_max_ms is None else m.unload_max_ms for m in self.models if m.model == model]
        return round(max(times) * _MARGIN * NS_PER_MS) if times else None

    def warm_up_ns(self, category: Category, n: int, factor: float) -> int:
        """Return how long a first execution of `n` frames is planned to take after a load of the model.

        The longest that was measured, and a tenth: whichever comes first has the cost, so it does not depend on `n`.
        Where none was measured, E(n) times `factor`.

        Raises:
            KeyError: The category is not profiled.
            ValueError: `n` is not a batch size of it.
        """
        longest_ns = self.execution_ns(category, n)
        times = [m.warm_up_ms for m in self.models if m.model == category.model and m.warm_up_ms is not None]
        if not times:
            return round(longest_ns * factor)
        return max(longest_ns, round(max(times) * _MARGIN * NS_PER_MS) + self.dispatch_overhead_ns)

    def faster_smaller(self, category: Category) -> Iterator[Category]:
        """Yield the profiled shapes to which pictures of `category` can be scaled down to save time, largest first.

        Those of which no batch is faster than one of as many native frames are passed over. There are none if the
        frames are not pictures: [height, width, channels] of a type of `PIXELS`.
        """
        shape = category.shape
        if len(shape) != _PICTURE_AXES or shape[-1] > MOST_CHANNELS or category.dtype not in PIXELS:
            return
        own = self._tables.get(_key(category), ())
        smaller = [
            replace(category, shape=other)
            for other in self.shapes(category.model, category.version, category.dtype)
            if other != shape
            and len(other) == _PICTURE_AXES
            and other[-1] == shape[-1]
            and all(axis <= most for axis, most in zip(other, shape, strict=True))
        ]
        for found in reversed(smaller):
            if any(small_ns < own_ns for small_ns, own_ns in zip(self.table(found), own, strict=False)):
                yield found

    def versions(self, model: str) -> list[str]:
        """Return the profiled versions of a model, oldest first (numbers by value, before other words)."""
        found = {v for m, v, _, _ in self._tables if m == model}
        return sorted(found, key=lambda v: (not v.isdigit(), int(v) if v.isdigit() else 0, v))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Profile:
        """Read the profile file's layout.

        Raises:
            ProfileError: Another schema, a missing or ill-typed field, a figure that is not finite and
                positive, or a batch that is there twice.
        """
        if not isinstance(data, Mapping) or data.get("schema") != _SCHEMA:
            raise ProfileError(f"a profile is an object with schema {_SCHEMA}")
        return cls(
            entries=tuple(read_entry(i, item) for i, item in enumerate(_items(data, "entries"))),
            models=tuple(read_model(i, item) for i, item in enumerate(_items(data, "models", required=False))),
            device=str(data.get("device", "")),
            triton_version=str(data.get("triton_version", "")),
            engine=str(data.get("engine", "native")),
            created=str(data.get("created", "")),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the profile file's layout; the dispatch overhead is a setting and stays out of it."""
        return {
            "schema": _SCHEMA,
            "device": self.device,
            "triton_version": self.triton_version,
            "engine": self.engine,
            "created": self.created,
            "entries": [_known(asdict(entry)) | {"shape": list(entry.shape)} for entry in self.entries],
            "models": [_known(asdict(model)) for model in self.models],
        }


def split(table: tuple[int, ...], n: int) -> int:
    """Return the time in ns that a window of `n` frames takes, given E by batch size (``(n//B)E(B) + E(n%B)``)."""
    full, rest = divmod(n, len(table) - 1)
    return full * table[-1] + table[rest]


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What was not measured is left out, as in files from before it could be."""
    return {name: value for name, value in fields.items() if value is not None}


def _table(measured: Mapping[int, int], overhead_ns: int) -> tuple[int, ...]:
    """Return E by batch size, from the measured sizes: monotone, up to the largest batch that pays.

    A batch does not pay if it takes over `_WASTE` times as long as its frames in smaller ones: less is within what a
    measurement is off by, and fewer jobs have their own advantages. Which batches pay is seen without the overhead, so
    that it does not depend on a setting.
    """
    table = list(_monotone(measured, 0))
    smaller = sorted(measured)[:-1]
    while smaller and split(tuple(table[: smaller[-1] + 1]), len(table) - 1) * _WASTE < table[-1]:
        del table[smaller.pop() + 1 :]
    return (0, *(time_ns + overhead_ns for time_ns in table[1:]))


def _monotone(measured: Mapping[int, int], overhead_ns: int) -> tuple[int, ...]:
    """Return times by batch size that do not fall; a size that was not measured takes the next larger one's."""
    table = [0]
    worst = 0
    for batch in sorted(measured):
        worst = max(worst, measured[batch])
        table += [worst + overhead_ns] * (batch - len(table) + 1)
    return tuple(table)


def _items(data: Mapping[str, Any], name: str, *, required: bool = True) -> Iterable[Any]:
    items = data.get(name, None if required else [])
    if not isinstance(items, list):
        raise ProfileError(f"{name} must be a list")
    return items
