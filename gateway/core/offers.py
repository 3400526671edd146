"""Counter-offers: what could be admitted instead, found by searching the admission test itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from gateway.core.plan_state import AdmissionState
from gateway.core.types import MAX_INTERVAL_NS, StreamSpec
from gateway.core.verdict import CounterOffer

#: What is tried outwards, as multiples of the period or deadline that was asked for. With finite streams a wider value
#: can fail where a narrower one fits: it moves joints and ends.
WIDEST = 16
_OUTWARDS = (1.25, 1.5, 2, 3, 4, 6, 8, 12, WIDEST)
#: At most this many smaller shapes are tried.
_MOST_SHAPES = 8


def search(
    state: AdmissionState, candidate: StreamSpec, fits: Callable[[StreamSpec], bool]
) -> tuple[CounterOffer, ...]:
    """Return changes of one field with which `candidate` fits; none when it fits as it is.

    The smallest period and the smallest deadline not below what was asked for (up to `WIDEST` times it, in steps of at
    most 1 %), and the largest smaller profiled shape. EDF without preemption is not monotone, so "smallest" is what the
    search finds; each offer itself has passed the test. Cost: at most some 40 tests.
    """
    if fits(candidate):
        return ()
    offers = []
    period_ns = _smallest(candidate.period_ns, lambda value: fits(replace(candidate, period_ns=value)))
    if period_ns is not None:
        offers.append(CounterOffer("period_ns", period_ns))
    deadline_ns = _smallest(candidate.deadline_ns, lambda value: fits(replace(candidate, deadline_ns=value)))
    if deadline_ns is not None:
        offers.append(CounterOffer("deadline_ns", deadline_ns))
    size = math.prod(candidate.shape)
    shapes = state.profile.shapes(candidate.model, candidate.version, candidate.dtype)
    smaller = [shape for shape in shapes if math.prod(shape) < size]
    for shape in reversed(smaller[-_MOST_SHAPES:]):
        if fits(replace(candidate, shape=shape)):
            offers.append(CounterOffer("shape", shape))
            break
    return tuple(offers)


def _smallest(asked: int, fits: Callable[[int], bool]) -> int | None:
    """Search for a small round value above `asked` that fits, outwards, then by halves; None if none was found."""
    step: int = 10 ** max(0, len(str(asked)) - 3)
    low = asked // step
    for factor in _OUTWARDS:
        high = min(round(asked * factor), MAX_INTERVAL_NS) // step
        if high > low and fits(high * step):
            break
        low = max(low, high)
    else:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * step):
            high = middle
        else:
            low = middle
    return high * step
