"""Calls that load models, among them those that were given up: Triton did not answer in time, and is still at it.

::

    call ──> answered in time: the caller's affair
      └─> given up ──> late ──┬─> it fails, or was a reload, whose model serves on ──> over
                              ├─> it brings a model that nobody wants now ──> unloaded ──> over
                              └─> it hangs: told as over all the same; one of the above when it ends at last

Triton cannot be told to stop. A late load holds the memory that it was given, so the engine is told when it is over
(`LateLoadEnded`), once. A model that is loaded late and does not go stays late until it does. A call that hung is
waited for as long as its Triton is there, also when another one has been made since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from gateway.core.events import LateLoadEnded
from gateway.runtime.model_times import ModelTimes
from gateway.triton.types import BackendError

log = logging.getLogger(__name__)


class LateLoads:
    """See the module's docstring.

    Args:
        times: Limits: of a load; and, as nobody waits longer for memory than that, of an unload.
        unwanted: Told of a model that is there after all, though its load was given up.
        over: Told of the end of a late load.
        lost: Told the reason when Triton did not answer at all.

    Attributes:
        models: Those whose load was given up on, though Triton may still be at it, or have them still.
    """

    def __init__(
        self,
        times: ModelTimes,
        *,
        unwanted: Callable[[str], None],
        over: Callable[[LateLoadEnded], object],
        lost: Callable[[str], None],
    ) -> None:
        self.models: set[str] = set()
        self._times = times
        self._unwanted = unwanted
        self._over = over
        self._lost = lost
        self._latest: dict[str, asyncio.Task[None]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._hangs: dict[str, asyncio.TimerHandle] = {}

    @property
    def left(self) -> set[str]:
        """Models that a late load has brought, and that did not go."""
        return self.models - self._latest.keys()

    async def call(self, model: str, work: Coroutine[Any, Any, None], *, reload: bool) -> bool:
        """Await Triton's answer to a load, which is `work`; return whether it came in time.

        Args:
            model: What is loaded.
            work: The call. It goes on if it is late.
            reload: The model serves on whatever comes of it.

        Raises:
            BackendError: Triton's, in time.
        """
        loop = asyncio.get_running_loop()
        call = loop.create_task(work, name=f"load call of model {model}")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        self._latest[model] = call
        await asyncio.wait({call}, timeout=self._times.load_s)
        if not call.done():
            self.models.add(model)
            self._hangs[model] = loop.call_later(self._times.unload_s, self._hung, model)
            call.add_done_callback(partial(self._ended, model, reload=reload))
            return False
        del self._latest[model]
        await call
        self.settle(model)  # one that hung before this one is over, too: Triton does one after the other
        return True

    def settle(self, model: str) -> None:
        """What was given up of a model has come to an end, and holds nothing. Without effect where nothing was."""
        self.models.discard(model)
        if (timer := self._hangs.pop(model, None)) is not None:
            timer.cancel()
            self._over(LateLoadEnded(model))

    def drop(self) -> set[asyncio.Task[None]]:
        """Triton is lost: tell of nothing any more. Returns what has been cancelled and is to be awaited."""
        for timer in self._hangs.values():
            timer.cancel()
        dropped = set(self._calls)
        for forgotten in (self.models, self._latest, self._calls, self._hangs):
            forgotten.clear()
        for call in dropped:
            call.cancel()
        return dropped

    def _ended(self, model: str, call: asyncio.Task[None], *, reload: bool) -> None:
        """A load that was given up has ended: if it has succeeded, and that was not a reload, the model has to go."""
        error = None if call.cancelled() else call.exception()
        if self._latest.get(model) is not call:
            return  # Triton was lost, or is asked anew
        del self._latest[model]
        if isinstance(error, BackendError) and error.unreachable:
            self._lost(error.message)
        elif error is None and not reload:
            self._unwanted(model)
        else:
            self.settle(model)

    def _hung(self, model: str) -> None:
        """A load may hang for ever, and others need its memory."""
        log.warning("model %s: Triton does not end its load; others may have its memory all the same", model)
        del self._hangs[model]
        self._over(LateLoadEnded(model))
