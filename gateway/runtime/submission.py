"""Frames on their way in: checked, given room in the arena, and posted to the engine, all of a call or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gateway.clock import Clock
from gateway.core.actions import Action, RefuseFrames
from gateway.core.engine import Engine
from gateway.core.events import FramesArrived
from gateway.errors import FramegateError
from gateway.runtime.bodies import Data, body_of
from gateway.runtime.condition import Condition
from gateway.runtime.refusals import refusal
from gateway.runtime.results import StreamRecord
from gateway.runtime.tickets import FrameTicket


class Submission:
    """See the module's docstring.

    Args:
        condition: Of the gateway.
        engine: Says how large a frame's batch can get.
        clock: Time.
        refused: Frames that are refused before the engine sees them are counted here, by reason.
        max_waiting: How many best-effort frames may wait: the engine's, for words.
    """

    def __init__(
        self, condition: Condition, engine: Engine, clock: Clock, refused: Counter[str], max_waiting: int
    ) -> None:
        self._condition = condition
        self._engine = engine
        self._clock = clock
        self._refused = refused
        self._max_waiting = max_waiting

    def submit(
        self,
        stream_id: str,
        data: Data,
        timestamp_ms: float | None,
        deadline_ns: int | None,
    ) -> list[FrameTicket]:
        """See `Gateway.submit`."""
        parts, body = self._condition.parts, body_of(data)
        record = parts.delivery.find(stream_id)
        record.seen_ns = self._clock.now_ns()
        count = max(1, body.size // record.frame_bytes)
        try:
            self._condition.check_running()
            record.check_frames(body.size, count)
            leave_bytes = parts.promised.leave_bytes(record, count)
            parts.arena.reserve(count, record.frame_bytes, self._engine.room(stream_id), leave_bytes)
        except FramegateError as error:
            self._refused[error.code] += count
            record.refused[error.code] += count
            raise
        parts.delivery.expect(body, timestamp_ms)
        try:
            actions = parts.driver.post(FramesArrived(stream_id, count, deadline_ns))
        finally:  # also where the engine fails: what waits holds no more than that
            parts.arena.unreserve()
            tickets = parts.delivery.issued()
        if len(tickets) != count:  # none were taken
            self._raise_refusal(actions, record, count)
        if timestamp_ms is not None:
            record.note_timestamp(timestamp_ms)
        return tickets

    def _raise_refusal(self, actions: Sequence[Action], record: StreamRecord, count: int) -> None:
        for action in actions:
            if isinstance(action, RefuseFrames):
                record.refused[action.reason] += count
                raise refusal(action, record, self._clock.now_ns(), self._max_waiting)
