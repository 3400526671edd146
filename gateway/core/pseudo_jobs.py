"""Pseudo jobs: what the windows will release if every stream keeps its contract.

DeepRT's second step of Phase 2 (Yang et al., SEC 2021, arXiv 2105.01803, section 4): expected arrivals are put into
the windows of their categories, and windows into jobs, exactly as `gateway.core.batcher` would do it. Done for all
streams at once with numpy, because an admission test holds up the caller. All times here are relative to the
instant of the record, int64 ns.

A frame that may come anywhere in ``[a, a + jitter]`` is *reserved* in every window (half-open) that this interval
touches, each time with the deadline that it would have if it came there as early as it can: wherever it comes, its
place is planned. A frame without jitter has one reservation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gateway.core.expected import Expected, expect, ints
from gateway.core.plan_state import AdmissionState
from gateway.core.types import JobDeadline

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PseudoJobs:
    """Future jobs by release, and among equal releases in the order in which the engine would open them.

    Arrays of one row per job, all int64: `release`, `deadline` (ns, relative), `execution` (ns), `size` (frames),
    `window` (index into ``state.windows``), `chunk` (0, 1, ... among the jobs of a window), `job` (id of the batch if
    it is open already, else -1). Arrays of one row per frame and reservation: `frame_job` (job row), `frame_stream`
    (index into `stream_ids`), `frame_arrival` (its earliest in that window; ns, relative).

    Attributes:
        horizon_ns: Windows that end by it are in; without a limit, the end of the last.
        frames: Reservations of future frames that are in.
        stream_ids: Of `frame_stream`.
    """

    release: _Ints
    deadline: _Ints
    execution: _Ints
    size: _Ints
    window: _Ints
    chunk: _Ints
    job: _Ints
    frame_job: _Ints
    frame_stream: _Ints
    frame_arrival: _Ints
    horizon_ns: int
    frames: int
    stream_ids: tuple[str, ...]

    def __len__(self) -> int:
        """Number of jobs."""
        return len(self.release)


def generate(state: AdmissionState, limit_ns: int | None = None) -> PseudoJobs | None:
    """Return the jobs that the open and future windows of `state` will release.

    Args:
        state: Streams, windows and the frames that wait in them.
        limit_ns: Only windows that end by then (relative). None: to the last frame; every stream must be finite.

    Returns:
        None when the reservations exceed `EngineConfig.max_horizon_frames`, or times 64 bits.
    """
    expected = expect(state, limit_ns)
    return None if expected is None else _Cut(state, expected, limit_ns).jobs()


class _Cut:
    """Expected and waiting frames by category and in the order in which the engine takes them.

    The batches that are open already come first in the window that ends next, by job id.
    """

    def __init__(self, state: AdmissionState, expected: Expected, limit_ns: int | None) -> None:
        self.state = state
        self.limit_ns = limit_ns
        self.joint = ints([w.joint_ns - state.now_ns for w in state.windows])
        self.width = ints([w.window_ns for w in state.windows])
        self.tables = [state.profile.table(w.category) for w in state.windows]
        self.largest = ints([len(table) - 1 for table in self.tables])
        self.ids = [s.stream_id for s in state.streams]
        self.future = len(expected.stream)
        columns = expected.stream, expected.arrival, expected.deadline, expected.category, expected.index
        self.stream, self.arrival, self.deadline, self.category, self.index = columns
        # Without waiting frames the reservations stand as they are: sorted by category, then by time.
        self.order = self.arrival
        self.place: _Ints | None = None
        if any(window.waiting for window in state.windows):
            self._put_waiting_first()

    def _put_waiting_first(self) -> None:
        """Merge the frames of open batches in; `place` is where a frame stands in an open window, B to a batch."""
        known = {stream_id: i for i, stream_id in enumerate(self.ids)}
        rows: list[tuple[int, int, int, int, int, int]] = []
        now_ns = self.state.now_ns
        shift = [0] * len(self.state.windows)
        newest = max(f.job for w in self.state.windows for batch in w.waiting for f in batch)
        for c, window in enumerate(self.state.windows):
            largest = int(self.largest[c])
            if not window.waiting or (self.limit_ns is not None and window.joint_ns - now_ns > self.limit_ns):
                continue
            for b, batch in enumerate(window.waiting):
                for n, frame in enumerate(batch):
                    stream = known.setdefault(frame.stream_id, len(known))
                    arrival_ns, deadline_ns = frame.arrival_ns - now_ns, frame.deadline_ns - now_ns
                    rows.append((stream, arrival_ns, deadline_ns, c, frame.job - newest - 1, b * largest + n))
            shift[c] = (len(window.waiting) - 1) * largest + len(window.waiting[-1])
        self.ids = list(known)
        stream, arrival, deadline, category, order, place = np.array(rows, dtype=np.int64).reshape(-1, 6).T
        # The reservations of a category follow its waiting frames.
        first = np.searchsorted(self.category, np.arange(len(shift)))
        nth = np.arange(self.future) - first[self.category]
        self.place = np.concatenate([place, np.where(self.index == 0, nth + ints(shift)[self.category], nth)])
        self.order = np.concatenate([order, self.arrival])
        self.stream = np.concatenate([stream, self.stream])
        self.arrival = np.concatenate([arrival, self.arrival])
        self.deadline = np.concatenate([deadline, self.deadline])
        self.category = np.concatenate([category, self.category])
        self.index = np.concatenate([np.zeros(len(rows), dtype=np.int64), self.index])
        merged = np.argsort(self.category.astype(np.int16), kind="stable")
        for name in ("place", "order", "stream", "arrival", "deadline", "category", "index"):
            setattr(self, name, getattr(self, name)[merged])

    def jobs(self) -> PseudoJobs:
        """Cut the frames into windows and the windows into jobs."""
        category, index = self.category, self.index
        total = len(category)
        new_window = np.ones(total, dtype=bool)
        np.not_equal(index[1:], index[:-1], out=new_window[1:])
        new_window[1:] |= category[1:] != category[:-1]
        window_start = np.flatnonzero(new_window)
        chunk, start = self._chunks(window_start)
        size = np.diff(start, append=total)
        job_category, job_index = category[start], index[start]
        release = self.joint[job_category] + job_index * self.width[job_category]
        deadline = self._deadlines(window_start, start, release)
        offset = np.cumsum([0] + [len(table) for table in self.tables])[:-1]
        flat = ints([e for table in self.tables for e in table])
        execution = flat[offset[job_category] + size] if total else size
        rows = np.lexsort((self.stream[start], self.order[start], release))
        row_of = np.empty_like(rows)
        row_of[rows] = np.arange(len(rows))
        return PseudoJobs(
            release=release[rows],
            deadline=deadline[rows],
            execution=execution[rows],
            size=size[rows],
            window=job_category[rows],
            chunk=chunk[rows],
            job=self._ids_of_open(job_category)[rows],
            frame_job=np.repeat(row_of, size),
            frame_stream=self.stream,
            frame_arrival=self.arrival,
            horizon_ns=int(release.max(initial=0)) if self.limit_ns is None else self.limit_ns,
            frames=self.future,
            stream_ids=tuple(self.ids),
        )

    def _chunks(self, window_start: _Ints) -> tuple[_Ints, _Ints]:
        """Return for each job its number within its window, and its first frame."""
        total = len(self.category)
        count = np.diff(window_start, append=total)
        if self.place is None and bool((count <= self.largest[self.category[window_start]]).all()):
            return np.zeros(len(window_start), dtype=np.int64), window_start
        window_of = np.repeat(np.arange(len(window_start)), count)
        within = np.arange(total) - window_start[window_of]
        if self.place is not None:
            within = np.where(self.index == 0, self.place, within)
        chunk = within // self.largest[self.category]
        new_job = np.zeros(total, dtype=bool)
        new_job[1:] = chunk[1:] != chunk[:-1]
        new_job[window_start] = True
        start = np.flatnonzero(new_job)
        return chunk[start], start

    def _deadlines(self, window_start: _Ints, start: _Ints, release: _Ints) -> _Ints:
        """Return each job's deadline: all jobs of a window share one."""
        if self.state.config.job_deadline is JobDeadline.WINDOW:
            narrowest = ints([w.narrowest_ns for w in self.state.windows])
            category = self.category[start]
            span: _Ints = np.where(self.index[start] == 0, narrowest[category], self.width[category])
            return release + span
        if not len(start):
            return self.deadline
        earliest: _Ints = np.minimum.reduceat(self.deadline, window_start)
        if len(start) > len(window_start):
            earliest = earliest[np.searchsorted(window_start, start, side="right") - 1]
        return earliest

    def _ids_of_open(self, job_category: _Ints) -> _Ints:
        """Return the id of each job's batch if it is open already, else -1."""
        ids = np.full(len(job_category), -1, dtype=np.int64)
        if self.place is not None:
            for c, window in enumerate(self.state.windows):
                first = int(np.searchsorted(job_category, c))
                if first < len(ids) and window.waiting and job_category[first] == c and self.index_is_open(c):
                    ids[first : first + len(window.waiting)] = [batch[0].job for batch in window.waiting]
        return ids

    def index_is_open(self, c: int) -> bool:
        """Whether the open window of category `c` ends within the limit."""
        return self.limit_ns is None or int(self.joint[c]) <= self.limit_ns
