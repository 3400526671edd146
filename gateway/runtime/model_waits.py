"""Those who wait until something has become of a model: its load by command, a stream that is about to register."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.core.actions import Action, ModelChanged
from gateway.core.events import Event, WorkerLost
from gateway.errors import EngineFailed, FramegateError, TritonUnavailable

#: Triton is looked for about as often.
_RETRY_AFTER_S = 1.0
#: Looks at a change: whether it is what was waited for. It may raise what the waiter is to be told instead.
Settle = Callable[[ModelChanged], bool]


async def within(limit_s: float, settled: asyncio.Future[None], late: FramegateError) -> None:
    """Wait until what was waited for has come. Raises what the wait ends with, or `late` after `limit_s`."""
    try:
        async with asyncio.timeout(limit_s):
            await settled
    except TimeoutError:
        raise late from None


class ModelWaits:
    """Implements `gateway.runtime.driver.Observer`.

    No change is missed: each waiter looks at all that come while it waits, in order.
    """

    def __init__(self) -> None:
        self._waiters: dict[str, dict[asyncio.Future[None], Settle]] = {}

    @contextmanager
    def waiting(self, model: str, settle: Settle) -> Iterator[asyncio.Future[None]]:
        """Give a future that ends with the first change of `model`, from now on, that `settle` takes or raises at.

        It ends with `TritonUnavailable` when Triton is lost, and with `EngineFailed` when the engine fails.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(model, {})[future] = settle
        try:
            yield future
        finally:
            waiters = self._waiters[model]
            del waiters[future]
            if not waiters:
                del self._waiters[model]
            if future.done() and not future.cancelled():
                future.exception()  # seen: whoever waited may have gone
            future.cancel()

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        """Let the waiters look."""
        if not self._waiters:
            return
        if isinstance(event, WorkerLost):
            self.give_up(TritonUnavailable("Triton was lost meanwhile.", retry_after_s=_RETRY_AFTER_S))
        for action in actions:
            if isinstance(action, ModelChanged):
                self._changed(action)

    def give_up(self, error: FramegateError | None = None) -> None:
        """End all waits."""
        error = error or EngineFailed("The engine failed before anything had become of the model.")
        for waiters in self._waiters.values():
            for future in waiters:
                if not future.done():
                    future.set_exception(error)

    def _changed(self, change: ModelChanged) -> None:
        for future, settle in self._waiters.get(change.model, {}).items():
            if future.done():
                continue
            try:
                if settle(change):
                    future.set_result(None)
            except FramegateError as error:
                future.set_exception(error)
