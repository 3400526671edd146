"""The memory budget and the swap region as an admission test has to know them."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.batch import Batch, Standing
from gateway.core.books import Ledger
from gateway.core.plan_state import MemoryState, TurnState
from gateway.core.residency import Residency
from gateway.core.turn import Turn
from gateway.core.types import Category
from gateway.core.waiting import Waiting


def record_memory(
    residency: Residency,
    ledger: Ledger,
    waiting: Waiting,
    turn: Turn | None,
    *,
    now_ns: int,
    called_ns: int,
    moves: int,
) -> MemoryState | None:
    """Return the memory at `now_ns`; None without a budget.

    Args:
        residency: Of the engine.
        ledger: Its streams.
        waiting: Its batches.
        turn: The one that is under way.
        now_ns: The instant.
        called_ns: When the last load or unload of a model of the region began.
        moves: See `MemoryState`.
    """
    memory, models = residency.memory, residency.models
    if memory.budget is None:
        return None
    under_way = None
    if turn is not None:
        under_way = _state(waiting, turn.category, turn.due_ns, () if turn.running else turn.batches)
    return MemoryState(
        unit=memory.unit,
        budget=memory.budget,
        lost=memory.lost,
        sizes=() if memory.counts else tuple((name, m.size) for name, m in models.items() if m.size is not None),
        fixed=tuple(name for name, model in models.items() if model.pinned and not model.barred),
        resident=tuple(name for name, model in models.items() if not model.away),
        used=_used(ledger, memory.region_models),
        region=tuple(sorted(memory.region_models)),
        weight=memory.region,
        turn=under_way,
        free_ns=_free_ns(residency, turn, now_ns, called_ns),
        waiting=_waiting(waiting, turn),
        moves=moves,
    )


def _used(ledger: Ledger, region: frozenset[str]) -> tuple[str, ...]:
    batchers = [b for stream in ledger.streams.values() if not stream.spec.internal for b in stream.batchers]
    used = dict.fromkeys(b.category.model for b in batchers if b.standing is Standing.BEST_EFFORT)
    return tuple(name for name in used if name not in region)


def _waiting(waiting: Waiting, turn: Turn | None) -> tuple[TurnState, ...]:
    """The turns to come, of windows that have ended, in their order."""
    mine = set() if turn is None else set(turn.batches)
    windows: dict[tuple[Category, int | None], list[Batch]] = {}
    for batch in waiting.apart:
        if batch.id not in mine:
            windows.setdefault((batch.category, batch.release_ns), []).append(batch)
    return tuple(
        _state(waiting, category, batches[0].deadline_ns, [batch.id for batch in batches])
        for (category, _), batches in windows.items()
    )


def _state(waiting: Waiting, category: Category, due_ns: int, batches: Sequence[int]) -> TurnState:
    sizes = tuple(len(waiting.batches[job].frames) for job in batches if job in waiting.batches)
    return TurnState(category, due_ns, waiting.batchers[category].window_ns, sizes)


def _free_ns(residency: Residency, turn: Turn | None, now_ns: int, called_ns: int) -> int:
    """Return when the turn's model is loaded at worst, or its jobs are over; see `MemoryState.free_ns`.

    A load or unload that has overrun is taken to end 1 ns from now; of one elsewhere it is not known when it began.
    """
    if turn is not None and turn.local_ns is not None:
        return max(now_ns, turn.local_ns)
    profile, region = residency.profile, residency.region_models
    left_ns = 0
    for model in residency.models.values():
        if model.called:
            whole_ns = profile.unload_ns(model.name) if model.called == "unload" else profile.load_ns(model.name)
            since_ns = called_ns if model.name in region else now_ns
            left_ns += max(1, since_ns + (whole_ns or 0) - now_ns)
        elif turn is not None and not model.away and model.name in region and model.name != turn.category.model:
            left_ns += profile.unload_ns(model.name) or 0
    if turn is not None and residency.models[turn.category.model].away:
        left_ns += profile.load_ns(turn.category.model) or 0
    return now_ns + left_ns
