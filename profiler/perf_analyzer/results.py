"""What `perf_analyzer` wrote: checked before it counts, never guessed.

Latencies come from the JSON of ``--profile-export-file`` (timestamps in ns; it is also there when the run ended
unstable, and it alone has count and maximum). How the server spent the time comes from the CSV of ``-f`` (averages in
us, found by the names of their columns); the figures are fine without it.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NS_PER_MS = 1e6
_US_PER_MS = 1e3
#: A request cannot have taken longer than this: a unit was mistaken.
_MAX_MS = 3_600_000.0

_COLUMNS = ("Server Queue", "Server Compute Input", "Server Compute Infer", "Server Compute Output")


class PerfAnalyzerError(Exception):
    """It cannot be had, cannot run here, or did not measure; says why, in its own words where it has any.

    Attributes:
        regions: Names of shared memory that it had Triton open and, being killed, did not have it close.
        unreadable: It ended, and what it wrote is no JSON. That happens now and then; another run may be fine.
    """

    def __init__(self, message: str, *, regions: tuple[str, ...] = (), unreadable: bool = False) -> None:
        super().__init__(message)
        self.regions = regions
        self.unreadable = unreadable


@dataclass(frozen=True, slots=True)
class Split:
    """How the server spent a request, on average over the run with its warm-up, in ms."""

    queue_ms: float
    compute_input_ms: float
    compute_infer_ms: float
    compute_output_ms: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run measured.

    Attributes:
        started_ns, ended_ns: Of each request, in the order in which they began; wall time of the tool's clock.
        unstable: The tool itself says that it did not settle (its exit status 2).
        split: None where the CSV is missing or does not have it.
    """

    started_ns: tuple[int, ...]
    ended_ns: tuple[int, ...]
    unstable: bool = False
    split: Split | None = None

    @property
    def latencies_ms(self) -> tuple[float, ...]:
        """Of each request, in the order in which they began."""
        return tuple((end - start) / _NS_PER_MS for start, end in zip(self.started_ns, self.ended_ns, strict=True))


def read_export(path: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return start and end of each request in ns, in the order of starts.

    Raises:
        PerfAnalyzerError: The file is missing, not whole, or holds something else than requests that took time.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        raise PerfAnalyzerError("it wrote no measurements") from None
    except (ValueError, RecursionError, OSError) as error:
        raise PerfAnalyzerError(f"the measurements it wrote cannot be read: {error}", unreadable=True) from None
    pairs = sorted(_requests(data))
    if not pairs:
        raise PerfAnalyzerError("it measured no request")
    return tuple(start for start, _ in pairs), tuple(end for _, end in pairs)


def _requests(data: object) -> Iterable[tuple[int, int]]:
    experiments = data.get("experiments") if isinstance(data, Mapping) else None
    if not isinstance(experiments, list) or not all(isinstance(e, Mapping) for e in experiments):
        raise PerfAnalyzerError("the measurements it wrote have no list of experiments")
    if len(experiments) != 1:
        raise PerfAnalyzerError(f"it wrote {len(experiments)} experiments, not one")
    requests = experiments[0].get("requests")
    if not isinstance(requests, list):
        raise PerfAnalyzerError("the measurements it wrote have no list of requests")
    return [_times(request) for request in requests]


def _times(request: Mapping[str, Any]) -> tuple[int, int]:
    try:
        start, end = request["timestamp"], request["response_timestamps"][-1]
    except (TypeError, KeyError, IndexError):
        raise PerfAnalyzerError("one of the requests it wrote has no start or no end: it got no answer") from None
    if type(start) is not int or type(end) is not int or not 0 < end - start <= _MAX_MS * _NS_PER_MS:
        raise PerfAnalyzerError(f"one of the requests it wrote began at {start!r} and ended at {end!r}: no time in ns")
    return start, end


def read_split(path: Path) -> Split | None:
    """Return how the server spent the time, or None where the file does not say so beyond doubt."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            header, *rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error):  # ValueError: empty
        return None
    names = [name.strip() for name in header]
    if len(rows) < 1 or len(rows[0]) != len(names) or any(names.count(column) != 1 for column in _COLUMNS):
        return None
    values = [_number(rows[0][names.index(column)]) for column in _COLUMNS]
    if any(value is None for value in values):
        return None
    split = Split(*(round((value or 0.0) / _US_PER_MS, 3) for value in values))
    return split if split.compute_infer_ms > 0 else None


def _number(text: str) -> float | None:
    """Return a finite number that is not negative, else None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= _MAX_MS * _US_PER_MS else None
