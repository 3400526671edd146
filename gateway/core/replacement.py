"""Which models give way when others need their memory: in what order, and how many of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gateway.core.batch import NEVER_NS
from gateway.core.books import Ledger, Stream
from gateway.core.config import Replacement
from gateway.core.model import Model


def in_order(
    models: Iterable[Model], policy: Replacement, waiting: Mapping[str, object], next_use_ns: Mapping[str, int]
) -> list[Model]:
    """Return models in the order in which they give way.

    First those for which no frame waits. Then by `policy`: the least recently used, or that whose next use is furthest
    away, and of those the least recently used.

    Args:
        models: Those that may.
        policy: By which.
        waiting: Has an entry for each model for which frames wait.
        next_use_ns: See `next_uses`; not looked at with `Replacement.LRU`.
    """

    def key(model: Model) -> tuple[bool, int, int, str]:
        used_ns = -NEVER_NS if model.last_use_ns is None else model.last_use_ns
        wanted = model.name in waiting
        if policy is Replacement.LRU:
            return (wanted, 0, used_ns, model.name)
        return (wanted, -next_use_ns.get(model.name, NEVER_NS), used_ns, model.name)

    return sorted(models, key=key)


def just_enough(models: Sequence[Model], weights: Mapping[str, int], short: int) -> list[Model]:
    """Return the first of `models` that free `short` together, without those that are then not needed for it."""
    chosen: list[Model] = []
    freed = 0
    for model in models:
        if freed >= short:
            break
        chosen.append(model)
        freed += weights[model.name]
    for model in reversed(chosen[:-1]):
        if freed - weights[model.name] >= short:
            chosen.remove(model)
            freed -= weights[model.name]
    return chosen


def next_uses(ledger: Ledger, now_ns: int) -> dict[str, int]:
    """Return by model when the next frame of its streams is expected; models without streams have no entry.

    Calls that belong to no camera are not expected. A camera that has missed its turn is expected at its next one.
    """
    found: dict[str, int] = {}
    for stream in ledger.streams.values():
        if not stream.spec.internal and (expected_ns := _expected_ns(stream, now_ns)) is not None:
            model = stream.spec.model
            found[model] = min(found.get(model, NEVER_NS), expected_ns)
    return found


def _expected_ns(stream: Stream, now_ns: int) -> int | None:
    next_ns = stream.next_expected_ns(now_ns)
    late_ns = now_ns - stream.anchor_ns - stream.spec.jitter_ns
    if next_ns is None or late_ns <= 0:
        return next_ns
    return now_ns + -late_ns % stream.spec.period_ns
