"""Pseudo jobs: what the windows will release if every stream keeps its contract.

DeepRT's second step of Phase 2 (Yang et al., SEC 2021, arXiv 2105.01803, section 4): expected arrivals are put into
the windows of their categories, and windows into jobs, exactly as `gateway.core.batcher` would do it. Done for all
streams at once with numpy, because an admission test holds up the caller. All times here are relative to the
instant of the record, int64 ns: the longest interval (a day) times the largest frame count stays below 2^63.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gateway.core.plan_state import AdmissionState
from gateway.core.types import JobDeadline

_Ints = npt.NDArray[np.int64]

#: Larger than any count of frames a test looks at, small enough for int64.
_UNBOUNDED = 2**62


@dataclass(frozen=True, slots=True)
class PseudoJobs:
    """Future jobs in the order in which the engine would open them, after those it holds already.

    Arrays of one row per job, all int64: `release`, `deadline` (ns, relative), `execution` (ns), `size` (frames),
    `window` (index into ``state.windows``). Arrays of one row per frame: `frame_job` (job row), `frame_stream`
    (index into `stream_ids`), `frame_arrival` (ns, relative).

    Attributes:
        horizon_ns: Arrivals before it are in; only windows that end by it, if `complete` is not set.
        complete: Every frame of every stream is in.
        frames: Future frames that are in.
        stream_ids: Of `frame_stream`.
    """

    release: _Ints
    deadline: _Ints
    execution: _Ints
    size: _Ints
    window: _Ints
    frame_job: _Ints
    frame_stream: _Ints
    frame_arrival: _Ints
    horizon_ns: int
    complete: bool
    frames: int
    stream_ids: tuple[str, ...]


def horizon(state: AdmissionState) -> tuple[int, bool]:
    """Return how far ahead arrivals are generated (relative ns), and whether that is to the end.

    To the end when every stream is finite. Else `EngineConfig.horizon_ns`, but no less than what each stream needs for
    its next frame to be done. In both cases at most `EngineConfig.max_horizon_frames` frames.
    """
    cap = state.config.max_horizon_frames
    limits = [min(s.remaining, cap + 1) if s.remaining is not None else None for s in state.streams]
    finite = all(limit is not None for limit in limits)
    if finite:
        ends = (s.next_ns + s.period_ns * ((n or 1) - 1) + 1 for s, n in zip(state.streams, limits, strict=True))
    else:
        ends = (s.next_ns + s.deadline_ns for s in state.streams)
    reach_ns = max((end - state.now_ns for end in ends), default=0)
    if not finite:
        reach_ns = max(reach_ns, state.config.horizon_ns)
    first, period, count = _arrays(state)
    if int(_arrivals_before(reach_ns, first, period, count).sum()) <= cap:
        return reach_ns, finite
    low, high = 0, reach_ns
    while high - low > 1:
        middle = (low + high) // 2
        if int(_arrivals_before(middle, first, period, count).sum()) <= cap:
            low = middle
        else:
            high = middle
    return low, False


def generate(state: AdmissionState) -> PseudoJobs:
    """Return the jobs that the open and future windows of `state` will release within its horizon."""
    horizon_ns, complete = horizon(state)
    first, period, count = _arrays(state)
    counts = _arrivals_before(horizon_ns, first, period, count)
    frames = _Frames(state, first, period, counts, None if complete else horizon_ns)
    return frames.jobs(horizon_ns, complete)


def _arrays(state: AdmissionState) -> tuple[_Ints, _Ints, _Ints]:
    """First arrival, period and remaining count of every stream."""
    first = _ints([s.next_ns - state.now_ns for s in state.streams])
    period = _ints([s.period_ns for s in state.streams])
    count = _ints([_UNBOUNDED if s.remaining is None else min(s.remaining, _UNBOUNDED) for s in state.streams])
    return first, period, count


def _arrivals_before(limit_ns: int, first: _Ints, period: _Ints, count: _Ints) -> _Ints:
    """How many frames of each stream come before `limit_ns` (relative)."""
    return np.clip(-((first - limit_ns) // period), 0, count)


def _ints(values: list[int]) -> _Ints:
    return np.array(values, dtype=np.int64)


class _Frames:
    """Expected and waiting frames, sorted by category and by the order in which the engine takes them.

    `order` is the engine's order of opening batches: future frames sort by arrival, then by the order of streams; the
    batches that are open already come before, by job id, as negative numbers.
    """

    def __init__(self, state: AdmissionState, first: _Ints, period: _Ints, counts: _Ints, limit_ns: int | None) -> None:
        self.state = state
        windows = state.windows
        place = {window.category: i for i, window in enumerate(windows)}
        self.joint = _ints([w.joint_ns - state.now_ns for w in windows])
        self.width = _ints([w.window_ns for w in windows])
        self.narrowest = _ints([w.narrowest_ns for w in windows])
        self.tables = [state.profile.table(w.category) for w in windows]
        self.largest = _ints([len(table) - 1 for table in self.tables])
        self.ids = [s.stream_id for s in state.streams]

        stream = np.repeat(np.arange(len(counts)), counts)
        nth = np.arange(len(stream)) - np.repeat(np.cumsum(counts) - counts, counts)
        arrival = first[stream] + period[stream] * nth
        category = _ints([place[s.category] for s in state.streams])[stream]
        deadline = arrival + _ints([s.deadline_ns for s in state.streams])[stream]
        index = np.maximum(0, (arrival - self.joint[category]) // self.width[category] + 1)
        if limit_ns is not None:
            whole = self.joint[category] + index * self.width[category] <= limit_ns
            stream, arrival, category = stream[whole], arrival[whole], category[whole]
            deadline, index = deadline[whole], index[whole]
        self.future = len(stream)
        waiting = self._waiting(limit_ns)
        self.stream = np.concatenate([waiting[0], stream])
        self.arrival = np.concatenate([waiting[1], arrival])
        self.deadline = np.concatenate([waiting[2], deadline])
        self.category = np.concatenate([waiting[3], category])
        self.chunk = np.concatenate([waiting[4], np.full(len(stream), -1)])
        self.order = np.concatenate([waiting[5], arrival])
        self.index = np.concatenate([np.zeros(len(waiting[0]), dtype=np.int64), index])
        rank = np.lexsort((self.stream, self.order, self.category))
        for name in ("stream", "arrival", "deadline", "category", "chunk", "order", "index"):
            setattr(self, name, getattr(self, name)[rank])

    def _waiting(self, limit_ns: int | None) -> list[_Ints]:
        """Columns of the frames in open batches; `shift` is set to where the next frame of each window would stand."""
        known = {stream_id: i for i, stream_id in enumerate(self.ids)}
        rows: list[tuple[int, int, int, int, int, int]] = []
        now_ns = self.state.now_ns
        shift = [0] * len(self.state.windows)
        newest = max((f.job for w in self.state.windows for batch in w.waiting for f in batch), default=0)
        for c, window in enumerate(self.state.windows):
            if not window.waiting or (limit_ns is not None and window.joint_ns - now_ns > limit_ns):
                continue
            for b, batch in enumerate(window.waiting):
                for frame in batch:
                    stream = known.setdefault(frame.stream_id, len(known))
                    arrival_ns, deadline_ns = frame.arrival_ns - now_ns, frame.deadline_ns - now_ns
                    rows.append((stream, arrival_ns, deadline_ns, c, b, frame.job - newest - 1))
            total = sum(map(len, window.waiting))
            shift[c] = (len(window.waiting) - 1) * int(self.largest[c]) + len(window.waiting[-1]) - total
        self.ids = list(known)
        self.shift = _ints(shift)
        columns = np.array(rows, dtype=np.int64).reshape(-1, 6).T
        return list(columns)

    def jobs(self, horizon_ns: int, complete: bool) -> PseudoJobs:
        """Cut the sorted frames into windows and the windows into jobs."""
        category, index = self.category, self.index
        total = len(category)
        new_window = np.ones(total, dtype=bool)
        new_window[1:] = (category[1:] != category[:-1]) | (index[1:] != index[:-1])
        window_start = np.flatnonzero(new_window)
        window_of = np.cumsum(new_window) - 1
        within = np.arange(total) - window_start[window_of]
        position = within + np.where(index == 0, self.shift[category], 0)
        chunk = np.where(self.chunk >= 0, self.chunk, position // self.largest[category])
        new_job = new_window.copy()
        new_job[1:] |= chunk[1:] != chunk[:-1]
        start = np.flatnonzero(new_job)
        job_of = np.cumsum(new_job) - 1
        size = np.diff(start, append=total)

        job_category, job_index = category[start], index[start]
        release = self.joint[job_category] + job_index * self.width[job_category]
        if self.state.config.job_deadline is JobDeadline.WINDOW:
            span = np.where(job_index == 0, self.narrowest[job_category], self.width[job_category])
            deadline = release + span
        else:
            earliest = np.minimum.reduceat(self.deadline, window_start) if total else self.deadline
            deadline = earliest[window_of[start]]
        offset = np.cumsum([0] + [len(table) for table in self.tables])[:-1]
        flat = _ints([e for table in self.tables for e in table])
        execution = flat[offset[job_category] + size] if total else size
        opened = np.lexsort((self.stream[start], self.order[start]))
        row_of = np.empty_like(opened)
        row_of[opened] = np.arange(len(opened))
        return PseudoJobs(
            release=release[opened],
            deadline=deadline[opened],
            execution=execution[opened],
            size=size[opened],
            window=job_category[opened],
            frame_job=row_of[job_of] if total else job_of,
            frame_stream=self.stream,
            frame_arrival=self.arrival,
            horizon_ns=horizon_ns,
            complete=complete,
            frames=self.future,
            stream_ids=tuple(self.ids),
        )
