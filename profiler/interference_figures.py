"""From the requests of one load to its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.core.types import NS_PER_MS, NS_PER_S
from profiler.interference_plan import Load

#: What begins in this share of the time does not count: instances are fresh, and the processor gains speed.
_WARM_UP_SHARE = 0.1
#: The medians of the first and the second half of a settled measurement differ by less than this.
_DRIFT = 0.10


@dataclass(frozen=True, slots=True)
class Figures:
    """How one load fared.

    Attributes:
        count: Requests behind the latencies.
        p50_ms, p99_ms, max_ms: Of a request, on the client. Under 100 requests p99 is the largest, near enough.
        frames_per_s: Of all the load's instances together.
        stable: Whether the medians of the first and the second half agree within 10 %.
    """

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    frames_per_s: float
    stable: bool


def figures(started_ns: Sequence[int], ended_ns: Sequence[int], load: Load) -> Figures:
    """Return the figures of the requests of `load`, after a warm-up of a tenth of the time.

    Throughput is measured until the first client has no more requests: what was under way when perf_analyzer stopped
    is not told. A request that is under way at an end of that time counts with the share of its own time that lies
    within: few and long requests would else make the figure jump.

    Args:
        started_ns: Of each request, in any order.
        ended_ns: In the same order.
        load: Whose requests they are.

    Raises:
        ValueError: No request began after the warm-up.
    """
    start, end = np.array(started_ns, np.int64), np.array(ended_ns, np.int64)
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    if not len(start):
        raise ValueError("no request was answered")
    begin_ns = int(start[0]) + int(_WARM_UP_SHARE * (int(end.max()) - int(start[0])))
    latencies = (end - start)[start >= begin_ns] / NS_PER_MS
    if not len(latencies):
        raise ValueError(f"no request began after the warm-up of {(begin_ns - int(start[0])) / NS_PER_S:.1f} s")
    stop_ns = int(np.sort(end)[-min(load.instances, len(end))])
    shares = (np.minimum(end, stop_ns) - np.maximum(start, begin_ns)).clip(min=0) / np.maximum(1, end - start)
    return Figures(
        count=len(latencies),
        p50_ms=round(float(np.median(latencies)), 3),
        p99_ms=round(float(np.percentile(latencies, 99, method="higher")), 3),
        max_ms=round(float(latencies.max()), 3),
        frames_per_s=round(float(shares.sum()) * load.batch * NS_PER_S / max(1, stop_ns - begin_ns), 3),
        stable=_settled(latencies),
    )


def _settled(latencies: NDArray[np.float64]) -> bool:
    if len(latencies) < 2:
        return False
    first, second = (float(np.median(half)) for half in np.array_split(latencies, 2))
    return abs(first - second) <= _DRIFT * min(first, second)
