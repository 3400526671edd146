"""Counter-offers: what could be admitted instead, found by searching the admission test itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from gateway.core.plan_state import AdmissionState
from gateway.core.types import MAX_INTERVAL_NS, ServiceClass, StreamSpec
from gateway.core.verdict import CounterOffer

#: What is tried outwards, as multiples of the period or deadline that was asked for.
WIDEST = 16
_OUTWARDS = (1.25, 1.5, 2, 3, 4, 6, 8, 12, WIDEST)
#: At most this many smaller shapes, and this many deadlines at which windows begin to hold more, are tried.
_MOST_SHAPES = 8
_MOST_EDGES = 6
#: A period or deadline is narrowed down to one part in so many.
_FINENESS = 200


def search(
    state: AdmissionState, candidate: StreamSpec, fits: Callable[[StreamSpec], bool]
) -> tuple[CounterOffer, ...]:
    """Return changes of one field with which `candidate` fits; none when it fits as it is.

    With a memory budget, that its model may take turns with others (`StreamSpec.swapping`). The smallest period and the
    smallest deadline not below what was asked for (up to `WIDEST` times it, or times what one frame takes if that is
    more), and the largest smaller profiled shape. Neither search is of something monotone: a longer deadline makes a
    longer window, hence larger batches, and with finite streams it moves joints and ends, so that deadlines in between
    can fit where longer ones do not. So several are tried from the narrowest outwards, among them those after which a
    window of the category can hold one more group of a stream; what lies between two of them can still be missed.
    "Smallest" is what the search finds. Each offer itself has passed the test. Cost: at most some 45 tests.
    """
    if fits(candidate):
        return ()
    offers = []
    rigid = not candidate.swapping and candidate.service_class is ServiceClass.REAL_TIME
    if state.memory is not None and rigid and fits(replace(candidate, swapping=True)):
        offers.append(CounterOffer("swapping", value=True))
    outwards = [round(candidate.period_ns * factor) for factor in _OUTWARDS]
    period_ns = _smallest(candidate.period_ns, outwards, lambda value: fits(replace(candidate, period_ns=value)))
    if period_ns is not None:
        offers.append(CounterOffer("period_ns", period_ns))
    least_ns = _least_deadline(state, candidate)
    outwards = [round(least_ns * factor) for factor in _OUTWARDS] + _edges(state, candidate, least_ns)
    deadline_ns = _smallest(least_ns, outwards, lambda value: fits(replace(candidate, deadline_ns=value)))
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


def _least_deadline(state: AdmissionState, candidate: StreamSpec) -> int:
    """Return the deadline that was asked for, or what one frame takes if that is more: in less time nothing fits."""
    category = candidate.category(state.worker)
    if not state.profile.has(category):
        return candidate.deadline_ns
    return max(candidate.deadline_ns, state.profile.execution_ns(category, 1))


def _edges(state: AdmissionState, candidate: StreamSpec, least_ns: int) -> list[int]:
    """Return the next deadlines that are the longest with so many groups of a stream in a window, smallest first.

    A window of ``k * period - jitter`` holds at most k groups, whenever they come; of a longer one that is not so.
    """
    category = candidate.category(state.worker)
    rates = {(s.period_ns, s.jitter_ns) for s in state.streams if s.category == category}
    edges = set()
    for period_ns, jitter_ns in rates | {(candidate.period_ns, candidate.jitter_ns)}:
        first = (least_ns // 2 + jitter_ns) // period_ns + 1
        edges |= {2 * (groups * period_ns - jitter_ns) for groups in range(first, first + _MOST_EDGES)}
    within = (edge for edge in edges if least_ns < edge <= WIDEST * least_ns)
    return sorted(within)[:_MOST_EDGES]


def _smallest(asked: int, outwards: Iterable[int], fits: Callable[[int], bool]) -> int | None:
    """Search for a small round value above `asked` that fits, outwards, then by halves; None if none was found."""
    step: int = 10 ** max(0, len(str(asked)) - 3)
    low = asked // step
    for high in sorted({min(value, MAX_INTERVAL_NS) // step for value in outwards}):
        if high > low and fits(high * step):
            break
        low = max(low, high)
    else:
        return None
    while high - low > max(1, high // _FINENESS):
        middle = (low + high) // 2
        if fits(middle * step):
            high = middle
        else:
            low = middle
    return high * step
