"""How many frames the windows of a category can hold, whatever its streams do within their contracts.

Two kinds of bound, both of which the policer (`gateway.core.policing`) enforces. In any interval of length L a stream
sends at most ``burst * ceil((L + jitter) / period)`` frames. In the interval of length L that begins now it can send
its k-th next group no earlier than ``earliest_ns + k * period``, and no earlier than ``now - jitter + k * period``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gateway.core.expected import ints, places
from gateway.core.plan_state import AdmissionState, StreamPhase, WindowState
from gateway.core.profile import split
from gateway.core.types import JobDeadline
from gateway.core.work_bound import WorkBound, work_bound

_Ints = npt.NDArray[np.int64]

#: More frames than any window can hold: what an unbounded stream has left.
_UNBOUNDED = 2**40
#: The first window's share of the frames to come is tried in at most so many steps.
_MOST_SHARES = 32


def curves_of(state: AdmissionState) -> list[Curve]:
    """Return the curves of those of ``state.windows`` that hold frames or will."""
    streams: list[list[StreamPhase]] = [[] for _ in state.windows]
    for stream, place in zip(state.streams, places(state), strict=True):
        streams[place].append(stream)
    curves = [Curve(state, window, mine) for window, mine in zip(state.windows, streams, strict=True)]
    return [curve for curve in curves if curve.n1 or curve.waiting]


class Curve:
    """Arrivals and work of one category. Times are relative to the instant of the state.

    Attributes:
        category, window_ns, joint_ns: Its windows; `joint_ns` is the end of the one that is open.
        first_due_ns: No job of the open window is due earlier.
        waiting: Sizes of its batches.
        n1: The most frames of any later window.
    """

    def __init__(self, state: AdmissionState, window: WindowState, streams: list[StreamPhase]) -> None:
        now_ns = state.now_ns
        self.category = window.category
        self.window_ns = window.window_ns
        self.joint_ns = window.joint_ns - now_ns
        self.table = state.profile.table(window.category)
        known = [f.deadline_ns - now_ns for batch in window.waiting for f in batch]
        self.first_due_ns = self.joint_ns + min(window.narrowest_ns, window.window_ns)
        if known and state.config.job_deadline is JobDeadline.FRAME:
            self.first_due_ns = min(self.first_due_ns, *known)
        self.waiting = [len(batch) for batch in window.waiting]
        rows = [
            (
                -s.jitter_ns if s.earliest_ns is None else max(s.earliest_ns - now_ns, -s.jitter_ns),
                s.period_ns,
                s.burst,
                s.jitter_ns,
                _UNBOUNDED if s.remaining is None else min(s.remaining, _UNBOUNDED),
            )
            for s in streams
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T[:, :, None]
        self._earliest, self._period, self._burst, self._jitter, self._rest = columns
        self._mean = sum(s.burst * window.window_ns / s.period_ns for s in streams if s.remaining is None)
        self.n1 = int(self.within(ints([window.window_ns]))[0])

    def within(self, length: _Ints) -> _Ints:
        """Return the most frames that come in any half-open interval of each length, from now on."""
        groups = -((-self._jitter - length) // self._period)
        frames: _Ints = np.minimum(groups * self._burst, self._rest).sum(axis=0)
        return frames

    def from_now(self, length: _Ints) -> _Ints:
        """Return the most frames that come in the interval of each length that begins now."""
        groups = np.maximum(-((self._earliest - length) // self._period), 0)
        frames: _Ints = np.minimum(groups * self._burst, self._rest).sum(axis=0)
        return frames

    def rate(self) -> float:
        """Return the largest share of the device's time that its unbounded streams can take in the long run."""
        if not self._mean:
            return 0.0
        bound = self._bound()
        return float(np.interp(self._mean, bound.xs, bound.ys)) / self.window_ns

    def largest_job(self) -> int:
        """Return the frames of its largest job, the open window's included."""
        size = max(self.n1, *self.waiting, self._last() + self._share()) if self.waiting else self.n1
        return min(size, len(self.table) - 1)

    def longest_job_ns(self) -> int:
        """Return E of that job."""
        return self.table[self.largest_job()]

    def steady(self, count: int) -> _Ints:
        """Return the most work of 0 to `count` consecutive windows: M."""
        k = np.arange(count + 1)
        if not self.n1:
            return np.zeros(count + 1, dtype=np.int64)
        return self._bound().most(k, self.within(k * self.window_ns))

    def carried(self, count: int) -> _Ints:
        """Return the most work of the open window and those that follow it, 0 to `count` in all."""
        k = np.arange(count)  # windows after the first
        to_come = self.from_now(self.joint_ns + k * self.window_ns)
        share = self._share()
        # At most `high` frames join the open window, and at least `low`: one row for each such range.
        high = np.arange(0, share + 1, 1 + share // _MOST_SHARES) if share else ints([0])
        high[-1] = share
        low = np.concatenate([ints([0]), high[:-1] + 1])
        work = ints([self._first_work(frames) for frames in high.tolist()])[:, None]
        if self.n1:
            work = work + self._bound().most(k[None, :], np.maximum(to_come[None, :] - low[:, None], 0))
        return np.concatenate([ints([0]), np.broadcast_to(work, (len(high), count)).max(axis=0)])

    def transient(self, count: int) -> _Ints:
        """Return the larger of both: `count` windows of which the first may be the one that is open."""
        steady = self.steady(count)
        return np.maximum(steady, self.carried(count)) if self.waiting else steady

    def turns(self, count: int) -> _Ints:
        """Return how many of 0 to `count` consecutive windows can hold frames. The first may be the open one."""
        k = np.arange(count + 1)
        held: _Ints = np.minimum(k, self.within(k * self.window_ns) + bool(self.waiting))
        return held

    def turns_from_now(self, count: int) -> _Ints:
        """Return how many of the open window and those that follow it can hold frames, 0 to `count` in all."""
        k = np.arange(1, count + 1)
        to_come = self.from_now(self.joint_ns + (k - 1) * self.window_ns)
        return np.concatenate([ints([0]), np.minimum(k, to_come + bool(self.waiting))])

    def turn_rate(self) -> float:
        """Return how many of its windows, per ns, can hold frames of unbounded streams in the long run."""
        return min(1.0, self._mean) / self.window_ns

    def _bound(self) -> WorkBound:
        return work_bound(self.table, self.n1)

    def _last(self) -> int:
        return self.waiting[-1] if self.waiting else 0

    def _share(self) -> int:
        """The most frames that may still join the open window."""
        return int(self.from_now(ints([self.joint_ns]))[0])

    def _first_work(self, joining: int) -> int:
        """Work of the open window if so many frames join it: only its last batch takes any."""
        return sum(self.table[size] for size in self.waiting[:-1]) + split(self.table, self._last() + joining)
