"""The swap region at run time: models that share one place in memory take turns in it.

Every window of a category whose model is in the region (`Waiting.turning`) gets one turn when it has ended and holds
frames; until then its promised batches wait apart (`Waiting.apart`). Turns are taken one after the other, in the order
of ``min(earliest deadline of its frames, joint + W)``:

    unload what is there -> load its model -> first executions -> its batches are ready, due d_g after the load

A turn is over with its last batch. Each step is begun when the one before it is done, and none before, so shorter loads
and executions delay nothing (``docs/decisions/0019-swap-region.md``). Calls to the worker are serial, those for models
elsewhere included (`SwapRegion.idle`): these begin only while no turn is under way or waits, and hold up a turn by one
call at most, no longer than `SwapPlan.longest_ns`.

While no turn waits, the model that is there runs whatever comes: early batches, frames without a promise. And a model
is loaded ahead for the oldest batch that waits for one of the region, its window still open, or without a promise.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.core.actions import Action
from gateway.core.batch import Standing
from gateway.core.books import Ledger
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.plan import SwapPlan
from gateway.core.plan_state import MemoryState
from gateway.core.promises import Promises
from gateway.core.residency import Residency
from gateway.core.swap_calls import SwapCalls
from gateway.core.swap_record import record_memory
from gateway.core.turn import Turn
from gateway.core.types import Category, ModelState
from gateway.core.waiting import Waiting
from gateway.core.warm_ups import WarmUp, sizes_to_warm


class SwapRegion:
    """See the module's docstring.

    Args:
        waiting, device, promises: The engine's.
        residency: Carries out loads and unloads.
        config: Whether windows that are open have their model loaded ahead, and times of first executions.

    Attributes:
        swap: The plan in force; None: no models take turns.
        moves: Counts what was begun and ended.
    """

    def __init__(
        self, waiting: Waiting, device: Device, residency: Residency, promises: Promises, config: EngineConfig
    ) -> None:
        self.swap: SwapPlan | None = None
        self.moves = 0
        self._waiting = waiting
        self._device = device
        self._residency = residency
        self._promises = promises
        self._config = config.residency
        self._turn: Turn | None = None
        self._before: list[int] = []
        self._shut: set[str] = set()
        self._local_ns: dict[Category, int] = {}
        self._calls = SwapCalls(residency, waiting, prefetch=config.residency.prefetch)

    # ------------------------------------------------------------ plans

    def follow(self, swap: SwapPlan | None) -> None:
        """Let the models of `swap` take turns, and no others; None: none do."""
        waiting, before = self._waiting, self._models
        if swap == self.swap:
            return
        self.swap, self.moves = swap, self.moves + 1
        self._local_ns = {} if swap is None else dict(swap.local_ns)
        models = self._models
        waiting.turning = models
        self._residency.set_region(models, 0 if swap is None else swap.weight)
        self._residency.turns = None if swap is None else self
        # Jobs that are ready when their model joins the region come before it is unloaded.
        joined = models - before
        resident = {m.name for m in self._residency.models.values() if m.state is ModelState.RESIDENT}
        self._before = [b.id for b in waiting.ready if b.category.model in joined & resident] + self._open_before()
        self._turn_back(joined - resident)
        for batch in [batch for batch in waiting.apart if batch.category.model not in models]:
            waiting.take_turn(batch, batch.deadline_ns)
        if self._turn is not None and self._turn.category.model not in models:
            self._turn = None
        for name in self._shut - models:
            self._residency.regate(name)
        self._shut &= models

    def settle(self) -> None:
        """A stream has ended: without any of its models there is no region."""
        models = self._models
        if models and not any(
            batcher.category.model in models and batcher.standing is Standing.PROMISED
            for batcher in self._waiting.batchers.values()
        ):
            self.follow(None)

    def agrees(self, swap: SwapPlan | None) -> bool:
        """Whether `swap`, which was made from a record, holds for all that was begun since."""
        own = self.swap
        if swap is None:
            return own is None or not (self._turn or self._waiting.apart)
        if self._moves_in_all == swap.moves:
            return True
        same = own is not None and (swap.models, swap.local_ns, swap.largest) == (own.models, own.local_ns, own.largest)
        return same and own is not None and swap.longest_ns >= own.longest_ns

    @property
    def _moves_in_all(self) -> int:
        return self.moves + self._residency.begun

    @property
    def _models(self) -> frozenset[str]:
        return frozenset() if self.swap is None else frozenset(self.swap.models)

    def _open_before(self) -> list[int]:
        """Those of `_before` that are not over."""
        return [job for job in self._before if self._under_way(job)]

    def _under_way(self, job: int) -> bool:
        return job in self._waiting.batches or self._device.has(job)

    # ------------------------------------------------------------ what residency asks

    @property
    def idle(self) -> bool:
        """Whether no turn is under way or waits, so that models elsewhere may be loaded and unloaded, one at a time."""
        return self._turn is None and not self._waiting.apart

    @property
    def over(self) -> bool:
        """Whether all that the turn under way was for has ended or gone."""
        return self._turn is not None and not any(self._under_way(job) for job in self._turn.batches)

    def bears(self, model: str) -> bool:
        """Whether turns can wait while a model elsewhere is loaded or unloaded."""
        if self.swap is None:
            return True
        profile = self._promises.profile
        times = (profile.load_ns(model), profile.unload_ns(model))
        return all(time_ns is not None and time_ns <= self.swap.longest_ns for time_ns in times)

    def warm_ups(self, model: str) -> list[tuple[Category, int, int]]:
        """Return category, batch and planned time in ns of each first execution of a model of the region."""
        assert self.swap is not None, "there is no swap region"
        profile, factor = self._promises.profile, self._config.warm_up_factor
        return [
            (category, n, profile.warm_up_ns(category, n, factor))
            for category, largest in self.swap.largest
            if category.model == model
            for n in sizes_to_warm(largest)
        ]

    def due_ns(self, model: str, now_ns: int) -> int | None:
        """Return when the first executions of a model are due that is loaded now; None: it was loaded ahead."""
        turn = self._turn
        if turn is None or turn.category.model != model:
            return None
        return self._load_ended(turn, now_ns)

    def ready(self) -> None:
        """A model is loaded and warmed."""
        self.moves += 1

    def missed(self, model: str) -> None:
        """A model is not there any more, could not be loaded, or, if it is still resident, not be unloaded."""
        self.moves += 1
        self._turn_back({model})

    def lost(self) -> None:
        """The worker is gone, and all calls with it."""
        self.moves += 1
        self._turn_back(self._models)

    def _turn_back(self, models: Collection[str]) -> None:
        """Models are not there: let their batches that were ready wait for another turn."""
        turn, waiting = self._turn, self._waiting
        due_ns: dict[int, int] = {}
        if turn is not None and turn.category.model in models:
            self._turn, due_ns = None, dict.fromkeys(turn.batches, turn.due_ns)
        for batch in [batch for batch in waiting.ready if batch.frames and batch.category.model in models]:
            waiting.turn_back(batch, due_ns.get(batch.id, batch.deadline_ns))

    # ------------------------------------------------------------ turns

    def plan(self, now_ns: int, actions: list[Action]) -> None:
        """Begin what can be begun; called before models elsewhere are looked at."""
        if self.swap is None:
            return
        self._end_turn()
        self._before = self._open_before()
        if self._turn is None and self._waiting.apart:
            self._begin_turn()
        turn = self._turn
        if turn is None:
            if not self._before:
                self._calls.load_ahead(now_ns, actions)
        elif not turn.running:
            self._advance(turn, now_ns, actions)
        self._gate()

    def _end_turn(self) -> None:
        turn, ready = self._turn, self._waiting.ready
        if turn is None or not self.over:
            return
        self._turn, self.moves = None, self.moves + 1
        # Without frames nobody waits for its first executions.
        model = turn.category.model
        self._waiting.demote([b for b in ready if isinstance(b, WarmUp) and b.category.model == model])

    def _begin_turn(self) -> None:
        apart = self._waiting.apart
        first = apart.first()
        key = (first.category, first.release_ns)
        own = [batch.id for batch in apart if (batch.category, batch.release_ns) == key]
        self._turn, self.moves = Turn(first.category, first.deadline_ns, own), self.moves + 1

    def _advance(self, turn: Turn, now_ns: int, actions: list[Action]) -> None:
        """Take the next step towards the jobs of a turn."""
        model = self._residency.know(turn.category.model)
        if self._before:
            return
        if model.state is ModelState.RESIDENT:
            if not model.called:
                self._run(turn, now_ns)
        elif model.state is ModelState.LOADING and not model.called:
            if turn.local_ns is None:  # it was loaded ahead
                self._waiting.promote(model.name, self._load_ended(turn, now_ns))
        elif not model.called:
            self._calls.make_way(model, "swap", now_ns, actions)

    def _load_ended(self, turn: Turn, now_ns: int) -> int:
        """Return when the jobs of a turn are due whose model is there now."""
        self.moves += 1
        turn.local_ns = min(turn.due_ns, now_ns + self._local_ns.get(turn.category, turn.due_ns))
        return turn.local_ns

    def _run(self, turn: Turn, now_ns: int) -> None:
        """The model is there: let the jobs be ready."""
        local_ns = self._load_ended(turn, now_ns) if turn.local_ns is None else turn.local_ns
        waiting = self._waiting
        for job in turn.batches:
            if job in waiting.batches:
                batch = waiting.batches[job]
                waiting.take_turn(batch, min(batch.deadline_ns, local_ns))
        turn.running = True

    def _gate(self) -> None:
        """While a turn is under way nothing starts of a model but its jobs, and those from before it joined."""
        turn, residency = self._turn, self._residency
        batches = self._waiting.batches
        before = {batches[job].category.model for job in self._before if job in batches}
        for name in self._models:
            if turn is not None and name != turn.category.model and name not in before:
                self._shut.add(name)
                self._waiting.barred.add(name)
            elif name in self._shut:
                self._shut.remove(name)
                residency.regate(name)

    def record(self, ledger: Ledger, now_ns: int) -> MemoryState | None:
        """Return what an admission test at `now_ns` has to know of the memory."""
        return record_memory(
            self._residency,
            ledger,
            self._waiting,
            self._turn,
            now_ns=now_ns,
            called_ns=self._calls.since_ns,
            moves=self._moves_in_all,
        )
