"""Traces: which cameras come when. JSON lines, ``{"at_ms": 0, "stream": {...}}``.

The fields of a stream are those of ``POST /v1/streams``: ``model, version?, shape, dtype?, period_ms | fps,
deadline_ms, frames?, burst?, jitter_ms?, start_in_ms?, service_class?, on_late?, on_excess?, swapping?,
name?``. Without ``version`` the newest profiled one is meant. Empty lines are skipped.

Group k (from 0) of a stream comes at ``at_ms + start_in_ms + k * period``: ``burst`` frames at once (1 unless given),
fewer in the last one if ``frames``, the total, says so. With ``framegate simulate --jitter`` each group comes up to
``jitter_ms`` later, and with ``--drop P`` a share P of the frames never comes; a camera that has left frames out closes
its stream one period after its last group was due at the latest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gateway.core.profile import Profile
from gateway.core.types import (
    MAX_INTERVAL_NS,
    MIN_INTERVAL_NS,
    NS_PER_MS,
    NS_PER_S,
    OnExcess,
    OnLate,
    ServiceClass,
    StreamSpec,
)

_REQUIRED = {"model", "shape", "deadline_ms"}
_OPTIONAL = {
    *("version", "dtype", "period_ms", "fps", "frames", "burst", "jitter_ms", "start_in_ms", "service_class"),
    *("on_late", "on_excess", "swapping", "name"),
}
#: About eleven days: what `at_ms` may reach.
_LATEST_NS = 1_000_000 * NS_PER_S
#: As of the API: a year at 30 fps.
_MOST_FRAMES = 10**9
_LOWEST_FPS = NS_PER_S / MAX_INTERVAL_NS
_HIGHEST_FPS = NS_PER_S / MIN_INTERVAL_NS


class TraceError(ValueError):
    """A trace that cannot be used; the message names the line."""


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One registration.

    Attributes:
        stream_id: ``stream-1`` for the first of the trace, and so on.
        at_ns: When it is made, from the beginning of the trace.
        spec: What is asked for; its version is resolved.
    """

    stream_id: str
    at_ns: int
    spec: StreamSpec


def read_trace(lines: Iterable[str], profile: Profile) -> tuple[TraceEntry, ...]:
    """Read a trace in order of time; `profile` resolves versions that are not given.

    Lines may stand in any order. Streams are numbered, and ties broken, by time and then by line.

    Raises:
        TraceError: A line that is not an object of the layout above, or a field out of its bounds.
    """
    streams: list[tuple[int, StreamSpec]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            streams.append(_read_line(line, profile))
        except ValueError as error:
            raise TraceError(f"line {number}: {error}") from error
    streams.sort(key=lambda stream: stream[0])
    return tuple(TraceEntry(f"stream-{n}", at_ns, spec) for n, (at_ns, spec) in enumerate(streams, 1))


def write_trace(entries: Iterable[TraceEntry]) -> Iterator[str]:
    """Yield the lines that `read_trace` reads back to the same entries."""
    for entry in entries:
        spec = entry.spec
        stream: dict[str, Any] = {
            "model": spec.model,
            "version": spec.version,
            "shape": list(spec.shape),
            "dtype": spec.dtype,
            "period_ms": spec.period_ns / NS_PER_MS,
            "deadline_ms": spec.deadline_ns / NS_PER_MS,
            "start_in_ms": spec.start_in_ns / NS_PER_MS,
            "on_late": spec.on_late.value,
            "name": spec.name,
        }
        if spec.frames is not None:
            stream["frames"] = spec.frames
        if spec.burst != 1:
            stream["burst"] = spec.burst
        if spec.jitter_ns:
            stream["jitter_ms"] = spec.jitter_ns / NS_PER_MS
        if spec.service_class is not ServiceClass.REAL_TIME:
            stream["service_class"] = spec.service_class.value
        if spec.on_excess is not OnExcess.REFUSE:
            stream["on_excess"] = spec.on_excess.value
        if spec.swapping:
            stream["swapping"] = True
        yield json.dumps({"at_ms": entry.at_ns / NS_PER_MS, "stream": stream})


def _read_line(line: str, profile: Profile) -> tuple[int, StreamSpec]:
    try:
        data = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict) or set(data) != {"at_ms", "stream"}:
        raise ValueError('expected {"at_ms": ..., "stream": {...}}')
    at_ns = _interval_ns(data, "at_ms", most_ns=_LATEST_NS)
    return at_ns, _read_stream(data["stream"], profile)


def _read_stream(data: object, profile: Profile) -> StreamSpec:
    if not isinstance(data, dict):
        raise ValueError("stream must be an object")
    if unknown := sorted(set(data) - _REQUIRED - _OPTIONAL):
        raise ValueError(f"unknown field {unknown[0]!r}")
    if missing := sorted(_REQUIRED - set(data)):
        raise ValueError(f"{missing[0]} is missing")
    if ("period_ms" in data) == ("fps" in data):
        raise ValueError("give exactly one of period_ms and fps")
    model = _text(data, "model")
    shape = data["shape"]
    if not isinstance(shape, list) or not all(_is_integer(axis) for axis in shape):
        raise ValueError(f"shape must be a list of integers, not {shape!r}")
    frames = data.get("frames")
    if frames is not None and not (_is_integer(frames) and frames <= _MOST_FRAMES):
        raise ValueError(f"frames must be an integer of at most {_MOST_FRAMES}, not {frames!r}")
    burst = data.get("burst", 1)
    if not _is_integer(burst):
        raise ValueError(f"burst must be an integer, not {burst!r}")
    known = profile.versions(model)
    return StreamSpec(
        model=model,
        version=_text(data, "version") if data.get("version") is not None else (known[-1] if known else "1"),
        shape=tuple(shape),
        dtype=_text(data, "dtype") if "dtype" in data else "UINT8",
        period_ns=_interval_ns(data, "period_ms") if "period_ms" in data else _period_ns(data["fps"]),
        deadline_ns=_interval_ns(data, "deadline_ms"),
        frames=frames,
        burst=burst,
        jitter_ns=_interval_ns(data, "jitter_ms") if "jitter_ms" in data else 0,
        service_class=ServiceClass(data.get("service_class", ServiceClass.REAL_TIME)),
        start_in_ns=_interval_ns(data, "start_in_ms") if "start_in_ms" in data else 0,
        on_late=OnLate(data.get("on_late", OnLate.DROP)),
        on_excess=OnExcess(data.get("on_excess", OnExcess.REFUSE)),
        swapping=_flag(data, "swapping"),
        name=str(data.get("name", "")),
    )


def _flag(data: dict[str, Any], name: str) -> bool:
    value = data.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {value!r}")
    return value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(data: dict[str, Any], name: str) -> str:
    value = data[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a non-empty string, not {value!r}")
    return value


def _interval_ns(data: dict[str, Any], name: str, most_ns: int = MAX_INTERVAL_NS) -> int:
    value = data[name]
    most_ms = most_ns // NS_PER_MS
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most_ms:
        raise ValueError(f"{name} must be a number from 0 to {most_ms}, not {value!r}")
    return round(value * NS_PER_MS)


def _period_ns(fps: object) -> int:
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not _LOWEST_FPS <= fps <= _HIGHEST_FPS:
        raise ValueError(f"fps must be a number from {_LOWEST_FPS:.2g} to {_HIGHEST_FPS:g}, not {fps!r}")
    return round(NS_PER_S / fps)
