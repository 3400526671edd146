"""Batches past their joint, by what they may expect of the device, and which of them may start at all."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.batch import NEVER_NS, Batch, Standing
from gateway.core.edf import ReadyQueue, by_age
from gateway.core.types import Job
from gateway.core.warm_ups import WarmUp

_PROMISED = Standing.PROMISED


class Queues:
    """See the module's docstring.

    Attributes:
        ready: Promised ones.
        spare: Of promised streams, without a promise.
        best_effort: Of best-effort streams.
        barred: Models of which nothing may start, since they are not in memory.
        lacking: Whether a batch of such a model has come, its window has ended, or a model's state has changed since
            somebody looked last.
        warm_ups: First executions that wait for what is left over, in the order of their loads.
        turning: Models that take turns in the swap region (`gateway.core.swap_region`).
        apart: Promised batches of theirs, until their turn has come.
    """

    def __init__(self) -> None:
        self.ready = ReadyQueue()
        self.spare = ReadyQueue()
        self.best_effort = ReadyQueue(by_age)
        self.barred: set[str] = set()
        self.lacking = False
        self.warm_ups: list[WarmUp] = []
        self.turning: frozenset[str] = frozenset()
        self.apart = ReadyQueue()
        self._held = (NEVER_NS, -NEVER_NS)
        self._queues = {
            Standing.PROMISED: self.ready,
            Standing.SPARE: self.spare,
            Standing.BEST_EFFORT: self.best_effort,
        }

    def _push(self, batch: Batch) -> None:
        """Let a batch past its joint wait where its like wait."""
        turns = batch.standing is _PROMISED and batch.category.model in self.turning
        (self.apart if turns else self._queues[batch.standing]).push(batch)

    @property
    def queues(self) -> tuple[ReadyQueue, ...]:
        """Batches past their joint."""
        return (self.ready, self.apart, self.spare, self.best_effort)

    def _queue_of(self, batch: Batch) -> ReadyQueue:
        apart = self.apart
        return apart if apart.keys and batch in apart else self._queues[batch.standing]

    def _note(self, batch: Batch) -> None:
        if batch.category.model in self.barred:
            self.lacking = True

    def first_ready(self) -> Batch | None:
        """Return the first promised batch past its joint that may start."""
        if not self.barred:
            ready = self.ready
            return ready.first() if ready.keys else None
        # First executions, which have no frames, are promised only while a turn waits for them.
        return next((b for b in self.ready if not b.frames or b.category.model not in self.barred), None)

    # ------------------------------------------------------------ best effort gives way

    def hold(self, most_ns: int, until_ns: int) -> None:
        """Let nothing without a promise start that takes longer than `most_ns`, until `until_ns` or `release`."""
        self._held = (most_ns, until_ns)

    def release(self) -> None:
        """The plan that was waited for has been decided on."""
        self._held = (NEVER_NS, -NEVER_NS)

    def held_ns(self, now_ns: int) -> int:
        """Return how long a job without a promise may take that starts at `now_ns`; `NEVER_NS`: nothing is held."""
        most_ns, until_ns = self._held
        return most_ns if now_ns < until_ns else NEVER_NS

    # ------------------------------------------------------------ first executions

    def start_warm_up(self, warm_up: WarmUp) -> Job:
        """Take a first execution out that starts now."""
        self.forget_warm_up(warm_up)
        return warm_up.job()

    def forget_warm_up(self, warm_up: WarmUp) -> None:
        """Take a first execution out."""
        if warm_up.standing is Standing.PROMISED:
            self.ready.withdraw(warm_up)
        else:
            self.warm_ups.remove(warm_up)

    # ------------------------------------------------------------ turns in the swap region

    def take_turn(self, batch: Batch, deadline_ns: int) -> None:
        """Let a batch that waited for its turn be ready, due at `deadline_ns`."""
        self.apart.withdraw(batch)
        batch.deadline_ns = deadline_ns
        self.ready.push(batch)

    def turn_back(self, batch: Batch, deadline_ns: int) -> None:
        """Let a batch that is ready wait for another turn, which is due at `deadline_ns`."""
        self.ready.withdraw(batch)
        batch.deadline_ns = deadline_ns
        self.apart.push(batch)

    def promote(self, model: str, deadline_ns: int) -> None:
        """Let first executions of a model that wait for what is left over be promised."""
        for warm_up in [warm_up for warm_up in self.warm_ups if warm_up.category.model == model]:
            self.warm_ups.remove(warm_up)
            warm_up.standing, warm_up.deadline_ns = Standing.PROMISED, deadline_ns
            self.ready.push(warm_up)

    def demote(self, warm_ups: Iterable[WarmUp]) -> None:
        """Let first executions that are promised wait for what is left over."""
        for warm_up in warm_ups:
            self.ready.withdraw(warm_up)
            warm_up.standing = Standing.BEST_EFFORT
            self.warm_ups.append(warm_up)
