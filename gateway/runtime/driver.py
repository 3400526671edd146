"""The engine on a clock: events in, actions carried out, one wake-up timer.

Rules:

- All of it runs on one thread. Whoever has an event calls `Driver.post`.
- The actions of one event are carried out, in order, before the next event is handled. An event that is
  posted by carrying out an action waits its turn.
- After each event the engine says when it next cares; one timer stands for that instant, or an earlier one. With every
  job that instant moves on by a little, and a timer costs microseconds to cancel and make; one that comes too early
  only has to be set anew.
- When a stream has ended and windows could grow, `Driver.on_can_widen` is called; left alone, it has the engine decide.

The same driver runs the live gateway (`MonotonicClock`, Triton behind the executor) and the tests that
compare it with the simulator (`gateway.runtime.virtual`).
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.clock import Clock, TimerHandle
from gateway.core.actions import (
    AcceptFrames,
    Action,
    DeliverFrames,
    DropFrames,
    LoadModel,
    StartJob,
    StreamEnded,
    UnloadModel,
)
from gateway.core.engine import Engine
from gateway.core.events import Event, Tick, WidenWindows
from gateway.core.types import Job

log = logging.getLogger(__name__)

#: Actions of frames, which are most of them: they are all for the sink.
_OF_FRAMES = frozenset({AcceptFrames, DeliverFrames, DropFrames})


class Executor(Protocol):
    """Runs batches. A port: Triton behind it, or a table of times."""

    def start(self, job: Job) -> None:
        """Send the job. Its end comes later, as exactly one `JobFinished` or `JobFailed` posted to the driver."""


class ModelControl(Protocol):
    """Loads and unloads models. A port: Triton behind it, or a table of times."""

    def load(self, action: LoadModel) -> None:
        """Begin. Its end comes later, as exactly one `ModelLoaded` or `ModelLoadFailed` posted to the driver."""

    def unload(self, action: UnloadModel) -> None:
        """Begin. Its end comes later, as exactly one `ModelUnloaded` or `ModelUnloadFailed` posted to the driver."""


class Sink(Protocol):
    """Carries out every action but `StartJob`, `LoadModel` and `UnloadModel`."""

    def carry_out(self, action: Action, now_ns: int) -> None:
        """Do what the action says, at once."""


class Observer(Protocol):
    """Is told of everything that happened, after it happened: metrics, decision log."""

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        """`event` was handled at `now_ns` and these actions were carried out. Must not post."""


class NoModels:
    """Implements `ModelControl` where the engine has no memory budget and nobody commands: nothing is asked of it."""

    def load(self, action: LoadModel) -> None:
        """Refuse."""
        raise RuntimeError(f"this driver loads no models: {action}")

    def unload(self, action: UnloadModel) -> None:
        """Refuse."""
        raise RuntimeError(f"this driver unloads no models: {action}")


class Driver:
    """Owns an engine.

    Args:
        engine: The engine.
        clock: Its time.
        executor, models, sink: Carry out its actions.
        observers: Told of everything.

    Attributes:
        engine: For reading only; every change goes through `post`.
        broken: An exception has come out of an event. The engine's state can no longer be trusted: no further
            event is handled, for good.
        on_broken: Called once, when that happens.
        on_can_widen: Called when a stream has ended and windows could grow: sooner or later a `WidenWindows` should be
            posted. At first it posts one without a plan, to be handled next.
    """

    def __init__(  # noqa: PLR0917 - what it drives, then who carries out the decisions
        self,
        engine: Engine,
        clock: Clock,
        executor: Executor,
        sink: Sink,
        observers: Sequence[Observer] = (),
        models: ModelControl | None = None,
    ) -> None:
        self.engine = engine
        self.broken = False
        self.on_broken: Callable[[], object] = _nobody
        self.on_can_widen: Callable[[], object] = lambda: self.post(WidenWindows())
        self._clock = clock
        self._executor = executor
        self._sink = sink
        self._models = models or NoModels()
        self._observers = tuple(observers)
        self._queue: deque[Event] = deque()
        self._busy = False
        self._timer: TimerHandle | None = None
        self._timer_ns = 0
        self._wakeup_ns: int | None = None

    def post(self, event: Event) -> list[Action]:
        """Handle `event` now and return its actions, already carried out.

        While another event's actions are being carried out it is queued instead, and the list is empty. A broken
        driver ignores it.
        """
        if self.broken:
            return []
        if self._busy:
            self._queue.append(event)
            return []
        self._busy = True
        completed = False
        try:
            actions = self._handle(event)
            while self._queue:
                self._handle(self._queue.popleft())
            completed = True
        finally:
            self._busy = False
            if not completed:
                self._break(event)
        self._arm()
        return actions

    def close(self) -> None:
        """Stop the wake-ups."""
        self._wakeup_ns = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _break(self, event: Event) -> None:
        log.error(
            "the engine failed at or after %s; only a restart helps", type(event).__name__, exc_info=sys.exc_info()
        )
        self.broken = True
        self._queue.clear()
        self.close()
        self.on_broken()

    def _handle(self, event: Event) -> list[Action]:
        now_ns = self._clock.now_ns()
        actions = self.engine.handle(event, now_ns)
        ended = False
        sink = self._sink
        for action in actions:
            if type(action) in _OF_FRAMES:
                sink.carry_out(action, now_ns)
            elif isinstance(action, StartJob):
                self._executor.start(action.job)
            elif isinstance(action, LoadModel):
                self._models.load(action)
            elif isinstance(action, UnloadModel):
                self._models.unload(action)
            else:
                sink.carry_out(action, now_ns)
                ended = ended or isinstance(action, StreamEnded)
        for observer in self._observers:
            observer.on_actions(now_ns, event, actions)
        if ended and self.engine.can_widen():
            self.on_can_widen()
        return actions

    def _arm(self) -> None:
        wakeup_ns = self._wakeup_ns = self.engine.next_wakeup_ns()
        if wakeup_ns is None or (self._timer is not None and self._timer_ns <= wakeup_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = wakeup_ns
        self._timer = self._clock.call_at(wakeup_ns, self._wake)

    def _wake(self) -> None:
        self._timer = None
        wakeup_ns = self._wakeup_ns
        if wakeup_ns is None:
            return
        if wakeup_ns <= self._clock.now_ns():
            self.post(Tick())
        else:
            self._timer_ns = wakeup_ns
            self._timer = self._clock.call_at(wakeup_ns, self._wake)


def _nobody() -> None:
    pass
