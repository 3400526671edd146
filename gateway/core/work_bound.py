"""The most work that a number of windows can hold: M of the sporadic test (see `gateway.core.sporadic`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]

#: Up to so many windows of up to so many frames the dynamic programme is run; beyond, the concave hull bounds it.
_MOST_WINDOWS = 16
_MOST_FRAMES = 64
#: A hull of more points is not searched point by point.
_WIDE = 1_024
_NEVER = -(2**62)
_NO_TABLE = np.empty((0, 0), dtype=np.int64)


@dataclass(frozen=True)
class WorkBound:
    """Largest execution time of k windows with `n1` frames at most in each and n frames in all.

    A concave split function makes an even spread the worst, and then `most` is exact (to a nanosecond a window). Any
    other is bounded by its upper concave hull, and for up to 16 windows of up to 64 frames by a dynamic programme,
    which is exact again.

    Attributes:
        n1: The most frames of one window.
        xs, ys: Corners of the upper concave hull of the split execution function on 0..n1; ns.
        exact: Row k holds the largest work of k windows by frames in all, padded with its last value; without rows when
            the split function is concave or too wide.
    """

    n1: int
    xs: _Ints
    ys: _Ints
    exact: _Ints

    def most(self, k: _Ints, n: _Ints) -> _Ints:
        """Return an upper bound on the work of `k` windows with `n` frames in all, elementwise; ns."""
        n = np.minimum(n, k * self.n1)
        # The segment of the hull in which the mean n / k lies; the last corner belongs to the last segment.
        i = np.searchsorted(self.xs[1:-1], n // np.maximum(k, 1), side="right")
        width, rise = np.diff(self.xs)[i], np.diff(self.ys)[i]
        over = n - k * self.xs[i]
        # over * rise // width without leaving 64 bits.
        bound: _Ints = k * self.ys[i] + over // width * rise + over % width * rise // width
        if len(self.exact):
            k = np.broadcast_to(k, n.shape)
            small = k < len(self.exact)
            bound[small] = self.exact[k[small], n[small]]
        return bound


@lru_cache(maxsize=1024)
def work_bound(table: tuple[int, ...], n1: int) -> WorkBound:
    """Return the bound for windows of at most `n1` >= 1 frames.

    Args:
        table: E by batch size, index 0 (0 ns) to the largest batch.
        n1: The most frames of one window.
    """
    if n1 > _WIDE:
        xs, ys = _line_of_full_batches(table, n1)
        return WorkBound(n1, xs, ys, _NO_TABLE)
    sizes = np.arange(n1 + 1)
    times = np.array(table, dtype=np.int64)
    work = sizes // (len(table) - 1) * times[-1] + times[sizes % (len(table) - 1)]
    xs, ys = _upper_hull(work.tolist())
    concave = len(xs) == len(work) or bool((np.abs(np.interp(sizes, xs, ys) - work) < 0.5).all())
    return WorkBound(n1, xs, ys, _NO_TABLE if concave or n1 > _MOST_FRAMES else _programme(work))


def _line_of_full_batches(table: tuple[int, ...], n1: int) -> tuple[_Ints, _Ints]:
    """Corners above the split function of a very wide window: it grows by E(B) every B frames."""
    largest = len(table) - 1
    top = max(range(1, largest + 1), key=lambda n: (table[n] * largest - table[-1] * n, n))
    xs, ys = _upper_hull(list(table[: top + 1]))
    end = table[top] - (-(n1 - top) * table[-1]) // largest
    return np.append(xs, n1), np.append(ys, end)


def _upper_hull(work: list[int]) -> tuple[_Ints, _Ints]:
    """Corners of the upper concave hull of ``(n, work[n])``; points on its edges are left out."""
    hull: list[tuple[int, int]] = []
    for c in enumerate(work):
        while len(hull) >= 2:
            a, b = hull[-2:]
            if (b[1] - a[1]) * (c[0] - b[0]) > (c[1] - b[1]) * (b[0] - a[0]):
                break
            hull.pop()
        hull.append(c)
    xs, ys = zip(*hull, strict=True)
    return np.array(xs, dtype=np.int64), np.array(ys, dtype=np.int64)


def _programme(work: _Ints) -> _Ints:
    """Largest work of 0 to `_MOST_WINDOWS` windows, by frames in all: the max-plus powers of `work`."""
    n1 = len(work) - 1
    table = np.zeros((_MOST_WINDOWS + 1, _MOST_WINDOWS * n1 + 1), dtype=np.int64)
    best = np.zeros(1, dtype=np.int64)
    for k in range(1, _MOST_WINDOWS + 1):
        padded = np.concatenate([np.full(n1, _NEVER), best, np.full(n1, _NEVER)])
        # Row n: the work of k - 1 windows with n - n1 to n frames.
        options = np.lib.stride_tricks.sliding_window_view(padded, n1 + 1) + work[::-1]
        best = options.max(axis=1)
        table[k, : len(best)] = best
        table[k, len(best) :] = best[-1]
    return table
