"""How much of the device the admitted streams of a plan need: at least this much, whatever the batches turn out to be.

The figure is Phase 1's of admission, for all streams that send at the same time, finite or not, at the instant at which
it is largest. It is a lower bound: full batches where they are cheapest. That it lies below 1 does not make a set fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.capacity.planning import StreamAnswer
from gateway.core.config import EngineConfig
from gateway.core.plan_state import AdmissionState, StreamPhase, WindowState
from gateway.core.profile import Profile
from gateway.core.schedulability import envelope, utilization
from gateway.core.types import Category, ServiceClass, StreamSpec


@dataclass(frozen=True, slots=True)
class Share:
    """What the streams of one item of a plan need.

    Attributes:
        item: Place in the plan.
        name: Of the item.
        category: Of its streams.
        streams: How many of them send at that instant.
        share: Of the device's time.
    """

    item: int
    name: str
    category: Category
    streams: int
    share: float


def shares(answers: Sequence[StreamAnswer], names: Sequence[str], profile: Profile) -> list[Share]:
    """Return what each item needs at the busiest instant; none for items of which nothing sends then.

    Args:
        answers: Of the plan; those refused do not count.
        names: Of its items.
        profile: Execution times.
    """
    return _needs([a for a in answers if a.verdict.admitted], names, profile)


def refused_shares(answers: Sequence[StreamAnswer], names: Sequence[str], profile: Profile) -> list[Share]:
    """Return what the refused streams of each item would need without the others; 0 where that is not profiled."""
    refused = [a for a in answers if not a.verdict.admitted]
    found = []
    for item in dict.fromkeys(a.item for a in refused):
        mine = [a for a in refused if a.item == item]
        category = mine[0].spec.category()
        known = _needs(mine, names, profile) if profile.has(category) else []
        found += known or [Share(item, names[item], category, len(mine), 0.0)]
    return found


def _needs(answers: Sequence[StreamAnswer], names: Sequence[str], profile: Profile) -> list[Share]:
    groups: dict[Category, list[StreamAnswer]] = defaultdict(list)
    for answer in _busiest(answers, profile):
        groups[answer.spec.category()].append(answer)
    found = []
    for category, streams in groups.items():
        used = utilization(_at_once(category, streams, profile))
        rates: dict[int, list[float]] = defaultdict(list)
        for answer in streams:
            rates[answer.item].append(_rate(answer.spec))
        total = sum(map(sum, rates.values()))
        found += [
            Share(item, names[item], category, len(rate), used * sum(rate) / total) for item, rate in rates.items()
        ]
    return sorted(found, key=lambda share: share.item)


def promised(parts: Sequence[Share]) -> float:
    """Return what the real-time streams need."""
    return sum(part.share for part in parts if part.category.service_class is ServiceClass.REAL_TIME)


def _rate(spec: StreamSpec) -> float:
    """Frames in a nanosecond."""
    return spec.burst / spec.period_ns


def _busiest(admitted: Sequence[StreamAnswer], profile: Profile) -> list[StreamAnswer]:
    """Return the streams that send at the instant at which together they need most."""
    window_ns = _windows(admitted)
    changes: list[tuple[float, int, StreamAnswer]] = []
    for answer in admitted:
        begin, end = _sends(answer)
        changes += [(begin, 1, answer), (end, -1, answer)]
    changes.sort(key=lambda change: change[:2])  # at one instant, those that end go first
    rate: dict[Category, float] = defaultdict(float)
    used: dict[Category, float] = defaultdict(float)
    most, when = -1.0, 0.0
    for instant, sign, answer in changes:
        category = answer.spec.category()
        rate[category] += sign * _rate(answer.spec)
        mean = max(0.0, rate[category]) * window_ns[category]
        used[category] = envelope(profile.table(category), mean) / window_ns[category]
        if sign > 0 and (total := sum(used.values())) > most + 1e-12:
            most, when = total, instant
    return [answer for answer in admitted if _sends(answer)[0] <= when < _sends(answer)[1]]


def _sends(answer: StreamAnswer) -> tuple[float, float]:
    """Return from when to when a stream sends."""
    spec = answer.spec
    begin = answer.at_ns + spec.start_in_ns
    return begin, float("inf") if spec.frames is None else begin + -(-spec.frames // spec.burst) * spec.period_ns


def _windows(answers: Sequence[StreamAnswer]) -> dict[Category, int]:
    found: dict[Category, int] = {}
    for answer in answers:
        category, window_ns = answer.spec.category(), answer.spec.deadline_ns // 2
        found[category] = min(window_ns, found.get(category, window_ns))
    return found


def _at_once(category: Category, streams: Sequence[StreamAnswer], profile: Profile) -> AdmissionState:
    """Return the state in which these streams of one category run without end."""
    window_ns = _windows(streams)[category]
    phases = tuple(
        StreamPhase(a.name, category, a.spec.period_ns, a.spec.deadline_ns, 0, None, a.spec.burst, a.spec.jitter_ns)
        for a in streams
    )
    window = WindowState(category, window_ns, window_ns, window_ns, widest_ns=window_ns)
    return AdmissionState(0, 0, (), (window,), phases, profile, EngineConfig())
