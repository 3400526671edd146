"""Reads a decision log for what was planned and what came of it.

A log may still be written, so its last line may be half there; it may begin in the middle of a run, and hold several
runs one after the other. What cannot be used is counted, never guessed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gateway.core.types import NS_PER_MS, Outcome

_Floats = npt.NDArray[np.float64]
_Line = dict[str, Any]
#: A stream and the number of its frame.
_Frame = tuple[str, int]


@dataclass(slots=True)
class StreamSeen:
    """One admitted stream.

    Attributes:
        category: Of its frames, as logs write it.
        test: Which test admitted it.
        planned_ns: The worst latency that admission planned; None if it did not say.
        deadline_ns: Relative; None before its first frame.
        worst_ns: The largest latency of a delivered frame; None without one.
        frames: Delivered ones.
        met: Delivered ones within their deadlines; None if the log does not say.
        missing: Frames that were dropped without being cancelled.
        cancelled: Frames that nobody waited for any more, or that the stream's next one replaced.
        name: Of the camera; empty if it has none, or the log does not say.
    """

    category: str
    test: str
    planned_ns: int | None
    deadline_ns: int | None = None
    worst_ns: int | None = None
    frames: int = 0
    met: int | None = 0
    missing: int = 0
    cancelled: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class JobSeen:
    """One delivered job.

    Attributes:
        category: As logs write it.
        expected_ns, actual_ns: Execution time.
        behind_ns: Actual minus planned end; None if no plan held.
    """

    category: str
    expected_ns: int
    actual_ns: int
    behind_ns: int | None


@dataclass
class Decisions:
    """What a log holds.

    Attributes:
        jobs: Delivered ones, in order.
        streams: Admitted ones by id, in order.
        lines: That hold an action.
        skipped: Lines that are none.
        half_line: Whether the last line is incomplete.
        dropped: Actions that the writer of the log says are missing.
    """

    jobs: list[JobSeen] = field(default_factory=list)
    streams: dict[str, StreamSeen] = field(default_factory=dict)
    lines: int = 0
    skipped: int = 0
    half_line: bool = False
    dropped: int = 0

    def why_nothing(self) -> str:
        """Return why there is nothing to compare, when no job was delivered."""
        if self.lines:
            return f"none of its {self.lines} lines is of a job that was delivered; there is nothing to compare"
        if self.skipped:
            return f"it is not a decision log: none of its {self.skipped} lines is an action"
        if self.half_line:
            return "all that it holds is one line, which is incomplete or no action"
        return "it is empty"

    def samples(self) -> tuple[dict[str, _Floats], dict[str, _Floats]]:
        """Return by category: actual over expected execution times, and actual minus planned ends in ms."""
        ratios: dict[str, list[float]] = defaultdict(list)
        behind: dict[str, list[float]] = defaultdict(list)
        for job in self.jobs:
            ratios[job.category].append(job.actual_ns / job.expected_ns)
            if job.behind_ns is not None:
                behind[job.category].append(job.behind_ns / NS_PER_MS)
        return _arrays(ratios), {name: np.array(behind.get(name, []), dtype=np.float64) for name in ratios}


def _arrays(samples: dict[str, list[float]]) -> dict[str, _Floats]:
    return {name: np.array(values, dtype=np.float64) for name, values in samples.items()}


def read_decisions(lines: Iterable[bytes]) -> Decisions:
    """Read a log, line by line; `lines` keep their ends, so that a half one can be told."""
    reader = _Reader()
    line = b""
    for line in lines:
        if line.strip():
            reader.take(line)
    if line.strip() and not line.endswith(b"\n") and reader.last_failed:
        reader.found.skipped -= 1
        reader.found.half_line = True
    return reader.found


class _Reader:
    """Follows frames from their arrival through their job to its end."""

    def __init__(self) -> None:
        self.found = Decisions()
        self.last_failed = False
        self._arrival: dict[_Frame, int] = {}
        self._running: dict[int, list[_Frame]] = {}
        self._take: dict[str, Callable[[_Line], None]] = {
            "admitted": self._admitted,
            "accept_frames": self._accepted,
            "start_job": self._started,
            "drop_frames": self._dropped,
            "deliver_frames": self._delivered,
            "dropped": self._missing,
        }

    def take(self, raw: bytes) -> None:
        """Take one line."""
        self.last_failed = False
        try:
            line = json.loads(raw)
            _integer(line, "t_ns")
            take = self._take.get(line["action"])
            if take is not None:
                take(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            self.found.skipped += 1
            self.last_failed = True
        else:
            self.found.lines += 1

    def _admitted(self, line: _Line) -> None:
        planned = line.get("worst_latency_ns")
        self.found.streams[str(line["stream"])] = StreamSeen(
            category=str(line["category"]),
            test=str(line.get("test", "")),
            planned_ns=planned if isinstance(planned, int) else None,
            name=str(line.get("name", "")),
        )

    def _accepted(self, line: _Line) -> None:
        t_ns = line["t_ns"]
        for stream, seq, _, deadline_ns in line["frames"]:
            self._arrival[stream, seq] = t_ns
            seen = self.found.streams.get(stream)
            if seen is not None and seen.deadline_ns is None:
                seen.deadline_ns = deadline_ns - t_ns

    def _started(self, line: _Line) -> None:
        self._running[_integer(line, "job")] = [(stream, seq) for stream, seq in line["frames"]]

    def _dropped(self, line: _Line) -> None:
        for stream, seq in line["frames"]:
            arrival_ns = self._arrival.pop((stream, seq), None)
            seen = self.found.streams.get(stream)
            if arrival_ns is not None and seen is not None:
                gone = line.get("outcome") == Outcome.CANCELLED
                seen.cancelled += gone
                seen.missing += not gone

    def _missing(self, line: _Line) -> None:
        self.found.dropped += _integer(line, "count")

    def _delivered(self, line: _Line) -> None:
        finished_ns, expected_ns = _integer(line, "finished_ns"), _integer(line, "expected_ns")
        planned_ns = line.get("planned_end_ns")
        if expected_ns < 1:
            raise ValueError("a job takes time")
        self.found.jobs.append(
            JobSeen(
                category=str(line["category"]),
                expected_ns=expected_ns,
                actual_ns=_integer(line, "actual_ns"),
                behind_ns=finished_ns - planned_ns if isinstance(planned_ns, int) else None,
            )
        )
        frames = self._running.pop(_integer(line, "job"), [])
        outcomes = line.get("outcomes")
        if not isinstance(outcomes, list) or len(outcomes) != len(frames):
            outcomes = [None] * len(frames)
        for frame, outcome in zip(frames, outcomes, strict=True):
            arrival_ns = self._arrival.pop(frame, None)
            seen = self.found.streams.get(frame[0])
            if arrival_ns is not None and seen is not None:
                seen.frames += 1
                seen.worst_ns = max(seen.worst_ns or 0, finished_ns - arrival_ns)
                seen.met = None if outcome is None or seen.met is None else seen.met + (outcome == Outcome.MET)


def _integer(line: _Line, name: str) -> int:
    value = line[name]
    if not isinstance(value, int):
        raise TypeError(f"{name} is no integer")
    return value
