"""Streams begin and end, and their frames come: the events of cameras."""

from __future__ import annotations

from collections.abc import Callable

from gateway.core import admission
from gateway.core.actions import Action, Admitted, DropFrames
from gateway.core.books import Ledger
from gateway.core.endings import Endings
from gateway.core.events import CloseStream, FrameCancelled, FramesArrived, RegisterStream, WidenWindows
from gateway.core.intake import Intake
from gateway.core.plan import Plan
from gateway.core.promises import Promises
from gateway.core.residency import Residency
from gateway.core.retries import shorten
from gateway.core.types import Outcome, StreamSpec
from gateway.core.waiting import Waiting


class Streams:
    """See the module's docstring.

    Args:
        ledger, waiting, intake, endings, promises, residency: The engine's.
        plan: `Engine.plan`, for registrations that come without one.
    """

    def __init__(
        self,
        ledger: Ledger,
        waiting: Waiting,
        *,
        intake: Intake,
        endings: Endings,
        promises: Promises,
        residency: Residency,
        plan: Callable[[StreamSpec, int, str], Plan],
    ) -> None:
        self._ledger = ledger
        self._waiting = waiting
        self._endings = endings
        self._promises = promises
        self._residency = residency
        self._intake = intake
        self._plan = plan

    def register(self, event: RegisterStream, now_ns: int, actions: list[Action]) -> None:
        """Admit a stream or refuse it."""
        assert event.stream_id not in self._ledger.streams, f"stream id {event.stream_id!r} is in use"
        plan = event.plan or self._plan(event.spec, now_ns, event.stream_id)
        answer = self._promises.register(event, plan, now_ns)
        actions.append(answer)
        if self._residency.managed and isinstance(answer, Admitted):
            self._residency.know(event.spec.model)
        actions += shorten(self._waiting, self._ledger, now_ns)

    def widen(self, event: WidenWindows, now_ns: int, actions: list[Action]) -> None:
        """Let windows grow that may."""
        plan = event.plan or admission.widen(self._promises.state(now_ns))
        actions += self._promises.widen(event, plan, now_ns)
        actions += shorten(self._waiting, self._ledger, now_ns)

    def close(self, event: CloseStream, _now_ns: int, actions: list[Action]) -> None:
        """Take no further frame of a stream, and end it if it has none left."""
        stream = self._ledger.streams.get(event.stream_id)
        if stream is not None:
            stream.closed = True
            self._endings.hush(stream)
            self._endings.sweep([stream.id], actions)

    def arrive(self, event: FramesArrived, now_ns: int, actions: list[Action]) -> None:
        """Take frames in, or refuse them."""
        stream = self._intake.arrive(event, now_ns, actions)
        if stream is not None and stream.remaining == 0:
            self._endings.hush(stream)

    def cancel(self, event: FrameCancelled, _now_ns: int, actions: list[Action]) -> None:
        """End a frame that nobody waits for, unless it has started."""
        frame = self._ledger.in_flight(event.stream_id, event.seq)
        moved = None if frame is None else self._waiting.withdraw(frame)
        if frame is not None and moved is not None:
            self._endings.drop(DropFrames((frame,), Outcome.CANCELLED, "cancelled", moved), actions)
