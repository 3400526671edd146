"""From samples of one point to a profile entry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gateway.core.profile_entry import MIN_SAMPLES, ProfileEntry
from gateway.core.types import Category
from profiler.perf_analyzer import Split

#: The medians of the first and the second half of a settled measurement differ by less than this.
_DRIFT = 0.10


def entry(
    category: Category,
    batch: int,
    samples_ms: Sequence[float],
    *,
    settled: bool = True,
    split: Split | None = None,
) -> ProfileEntry:
    """Return the entry for `samples_ms`, in the order in which they were taken.

    It is stable when there are enough of them, the medians of their halves agree, and whoever measured did not say
    otherwise (`settled`). `split` is how the server spent the time, if that is known.

    The 99th percentile is a sample that really occurred, the next one at or above the rank. Under
    `MIN_SAMPLES` samples it is the maximum, near enough, and the profile's readers plan with 1.1 times that.
    """
    values = np.asarray(samples_ms, dtype=np.float64)
    if not len(values):
        raise ValueError("an entry needs at least one sample")
    return ProfileEntry(
        model=category.model,
        version=category.version,
        shape=category.shape,
        dtype=category.dtype,
        batch=batch,
        count=len(values),
        p50_ms=_rounded(float(np.percentile(values, 50))),
        p99_ms=_rounded(float(np.percentile(values, 99, method="higher"))),
        max_ms=_rounded(float(values.max())),
        stable=settled and len(values) >= MIN_SAMPLES and _settled(values),
        queue_ms=split.queue_ms if split else None,
        compute_input_ms=split.compute_input_ms if split else None,
        compute_infer_ms=split.compute_infer_ms if split else None,
        compute_output_ms=split.compute_output_ms if split else None,
    )


def _settled(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    first, second = (float(np.median(half)) for half in np.array_split(values, 2))
    return abs(first - second) <= _DRIFT * min(first, second)


def _rounded(value_ms: float) -> float:
    """Round to a microsecond; what a file shows beyond it is noise."""
    return max(0.001, round(value_ms, 3))
