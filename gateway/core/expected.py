"""Expected frames: when they will come by their streams' contracts, and in which windows they are reserved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gateway.core.plan_state import AdmissionState

_Ints = npt.NDArray[np.int64]

#: No time of a test may reach it: sums of two still fit 64 bits.
_FAR_NS = 2**61


def ints(values: list[int]) -> _Ints:
    """Return a column of int64."""
    return np.array(values, dtype=np.int64)


def places(state: AdmissionState) -> list[int]:
    """Return for each of ``state.streams`` the index of its category in ``state.windows``."""
    known = {window.category: i for i, window in enumerate(state.windows)}
    # Streams mostly share one object for each category: hashing one takes 0.5 us, a fifth of a small test in all.
    seen: dict[int, int] = {}
    found = []
    for stream in state.streams:
        category = stream.category
        place = seen.get(id(category))
        if place is None:
            place = seen[id(category)] = known[category]
        found.append(place)
    return found


@dataclass(frozen=True, slots=True)
class Expected:
    """Reservations of frames to come, by category and then by time; equal times by stream. Relative ns, int64.

    Attributes:
        stream: Index into ``state.streams``.
        arrival: Its earliest arrival in the window.
        deadline: If it comes then.
        category: Index into ``state.windows``.
        index: Of the window, 0 being the one that is open.
    """

    stream: _Ints
    arrival: _Ints
    deadline: _Ints
    category: _Ints
    index: _Ints


def expect(state: AdmissionState, limit_ns: int | None = None) -> Expected | None:
    """Return the reservations of all streams, in windows that end by `limit_ns` (relative); None: to the last frame.

    Returns:
        None when there are more than `EngineConfig.max_horizon_frames`, or when times exceed 64 bits.

    Raises:
        ValueError: No limit, and a stream that is unbounded.
    """
    streams = _Streams(state)
    counts = streams.groups(state, limit_ns)
    return None if counts is None else streams.reservations(counts, limit_ns, state.config.max_horizon_frames)


class _Streams:
    """Columns of one row per stream, sorted by category."""

    def __init__(self, state: AdmissionState) -> None:
        category = places(state)
        self.row = sorted(range(len(category)), key=category.__getitem__)
        self.phases = [state.streams[i] for i in self.row]
        columns = [
            (
                s.next_ns - state.now_ns,
                s.period_ns,
                s.deadline_ns,
                s.jitter_ns,
                s.burst,
                s.group_left,
                s.overdue,
            )
            for s in self.phases
        ]
        table = np.array(columns, dtype=np.int64).reshape(-1, 7).T
        self.first, self.period, self.deadline, self.jitter, self.burst, self.left, self.overdue = table
        self.category = ints([category[i] for i in self.row])
        self.joint = ints([w.joint_ns - state.now_ns for w in state.windows])
        self.width = ints([w.window_ns for w in state.windows])
        self.last: _Ints = np.zeros(len(category), dtype=np.int64)

    def groups(self, state: AdmissionState, limit_ns: int | None) -> list[int] | None:
        """Return how many groups of each stream are looked at; sets `last`, the frames of its last group (0: full)."""
        cap = state.config.max_horizon_frames
        counts: list[int] = []
        total = 0
        for row, stream in enumerate(self.phases):
            first_ns = stream.next_ns - state.now_ns
            count = None
            if stream.remaining is not None:
                rest = stream.remaining - stream.overdue - stream.group_left
                count = 1 + max(0, -(-rest // stream.burst)) if rest > -stream.group_left else 0
            if limit_ns is not None:
                within = max(0, -(-(limit_ns - first_ns) // stream.period_ns))
                if count is None or within < count:
                    total += within * stream.burst
                    if total > cap + stream.burst:
                        return None
                    counts.append(within)
                    continue
            if count is None:
                raise ValueError(f"stream {stream.stream_id!r} has no end, and no limit was given")
            assert stream.remaining is not None
            total += stream.remaining
            end_ns = first_ns + count * stream.period_ns + stream.jitter_ns + stream.deadline_ns
            if total > cap or end_ns > _FAR_NS:
                return None
            rest = stream.remaining - stream.overdue
            if count:
                self.last[row] = rest if count == 1 else rest - stream.group_left - (count - 2) * stream.burst
            counts.append(count)
        return None if limit_ns is not None and limit_ns > _FAR_NS else counts

    def reservations(self, groups: list[int], limit_ns: int | None, cap: int) -> Expected | None:
        """Expand groups into windows and frames, at most `cap` of them."""
        counts = ints(groups)
        stream = np.repeat(np.arange(len(counts)), counts)
        ends = np.cumsum(counts)
        arrival = np.arange(len(stream)) - np.repeat(ends - counts, counts)
        arrival *= self.period[stream]
        arrival += self.first[stream]
        size = self._sizes(stream, counts, ends)
        latest = arrival + self.jitter[stream] if self.jitter.any() else arrival
        if self.overdue.any():
            late = np.flatnonzero(self.overdue)
            stream = np.concatenate([late, stream])
            zeros = np.zeros(len(late), dtype=np.int64)
            arrival, latest = np.concatenate([zeros, arrival]), np.concatenate([zeros, latest])
            size = np.concatenate([self.overdue[late], np.ones_like(arrival[len(late) :]) if size is None else size])
            by_stream = np.argsort(stream, kind="stable")
            stream, arrival, latest, size = (column[by_stream] for column in (stream, arrival, latest, size))
        np.maximum(arrival, 0, out=arrival)
        category = self.category[stream]
        index = self._index(arrival, category)
        if self.jitter.any():
            spans = self._index(np.maximum(latest, 0), category) - index + 1
            # As floats: one enormous jitter must not wrap round.
            if float((spans.astype(float) * (1 if size is None else size)).sum()) > cap:
                return None
            nth = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
            stream, category, index = stream.repeat(spans), category.repeat(spans), index.repeat(spans) + nth
            opened = np.where(index > 0, self.joint[category] + (index - 1) * self.width[category], 0)
            arrival = np.maximum(arrival.repeat(spans), opened)
            size = None if size is None else size.repeat(spans)
        if limit_ns is not None:
            whole = self.joint[category] + index * self.width[category] <= limit_ns
            stream, arrival, category, index = stream[whole], arrival[whole], category[whole], index[whole]
            size = None if size is None else size[whole]
        if (len(stream) if size is None else int(size.sum())) > cap:
            return None
        return self._sorted(stream, arrival, category, index, size)

    def _sizes(self, stream: _Ints, counts: _Ints, ends: _Ints) -> _Ints | None:
        """Frames of each group; None when each holds one."""
        if not (self.burst > 1).any():
            return None
        size: _Ints = self.burst[stream]
        some = counts > 0
        size[(ends - counts)[some]] = self.left[some]
        final = some & (self.last > 0)
        size[(ends - 1)[final]] = self.last[final]
        return size

    def _index(self, arrival: _Ints, category: _Ints) -> _Ints:
        index = arrival - self.joint[category]
        index //= self.width[category]
        index += 1
        np.maximum(index, 0, out=index)
        return index

    def _sorted(self, stream: _Ints, arrival: _Ints, category: _Ints, index: _Ints, size: _Ints | None) -> Expected:
        """By category, then arrival, then stream. Streams are sorted by category, so a stable sort by time will do."""
        # 16-bit keys are sorted by radix; there are never so many categories.
        order = np.argsort(arrival, kind="stable")
        order = order[np.argsort(category[order].astype(np.int16), kind="stable")]
        if size is not None:
            order = order.repeat(size[order])
        stream, arrival = stream[order], arrival[order]
        return Expected(
            stream=ints(self.row)[stream] if len(stream) else stream,
            arrival=arrival,
            deadline=arrival + self.deadline[stream],
            category=category[order],
            index=index[order],
        )
