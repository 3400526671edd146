"""What becomes of frames when they arrive: within their contract, beyond it, or not to be taken at all.

Frames that arrive together are taken together or not at all, except that those beyond the announced number of a stream
are refused alone. Of a real-time stream, frames that conform (`gateway.core.policing`) are what was promised. Others
are `surplus`: refused, or with `OnExcess.BEST_EFFORT` *demoted*, that is served from what is left over. Best-effort
streams are not policed; of all frames that are served so, a bounded number waits.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.core.actions import AcceptFrames, Action, DropFrames, RefuseFrames
from gateway.core.batch import Move
from gateway.core.books import Ledger, Stream
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.events import FramesArrived
from gateway.core.reservation import Journal
from gateway.core.types import Frame, OnLate, Outcome
from gateway.core.waiting import Waiting

_NEWEST = OnLate.NEWEST


class Intake:
    """See the module's docstring.

    Args:
        ledger, waiting, device: The engine's.
        journal: Told of the frames with a promise.
        config: Whether to police, and how many best-effort frames may wait.
    """

    def __init__(
        self, ledger: Ledger, waiting: Waiting, device: Device, journal: Journal, config: EngineConfig
    ) -> None:
        self._ledger = ledger
        self._waiting = waiting
        self._device = device
        self._journal = journal
        self._config = config

    def arrive(self, event: FramesArrived, now_ns: int, actions: list[Action]) -> Stream | None:
        """Take in what may be taken; return the stream if it is known."""
        count = event.count
        assert count >= 1, f"{count} frames of {event.stream_id!r} cannot arrive"
        stream = self._ledger.streams.get(event.stream_id)
        if stream is None:
            self._refuse(None, RefuseFrames(event.stream_id, count, "unknown_stream"), actions)
        elif (refusal := stream.refusal) is not None:
            self._refuse(stream, RefuseFrames(stream.id, count, refusal), actions)
        else:
            remaining = stream.remaining
            wanted = count if remaining is None or count <= remaining else remaining
            self._take(stream, wanted, event.deadline_ns, now_ns, actions)
            if wanted < count:
                self._refuse(stream, RefuseFrames(stream.id, count - wanted, "finished"), actions)
        return stream

    def _take(self, stream: Stream, count: int, deadline_ns: int | None, now_ns: int, actions: list[Action]) -> None:
        policer = stream.policer
        if policer is None:
            if self._has_room(count):
                self._accept(stream, now_ns, actions, others=count, deadline_ns=deadline_ns)
            else:
                self._refuse(stream, RefuseFrames(stream.id, count, "best_effort_full"), actions)
            return
        conforming = policer.conforming(count, now_ns) if self._config.policing else count
        if conforming == count or (stream.excess is not None and self._has_room(count - conforming)):
            policer.take(conforming, now_ns)
            self._accept(stream, now_ns, actions, promised=conforming, others=count - conforming)
        else:
            self._refuse(stream, RefuseFrames(stream.id, count, "surplus", policer.retry_ns(count)), actions)

    def _has_room(self, count: int) -> bool:
        return self._waiting.best_effort_frames + count <= self._config.best_effort_max_waiting

    def _accept(
        self,
        stream: Stream,
        now_ns: int,
        actions: list[Action],
        *,
        promised: int = 0,
        others: int = 0,
        deadline_ns: int | None = None,
    ) -> None:
        """Take `promised` frames as the stream was promised, and then `others` as best effort."""
        if stream.frames and stream.spec.on_late is _NEWEST:
            demoted = others if stream.excess is not None else 0
            come = {False: promised + others - demoted, True: demoted}
            self._supersede(stream, [kind for kind, count in come.items() if count], actions)
        waiting = self._waiting
        busy_ns = now_ns if waiting.guard is None else self._device.free_ns(now_ns)
        frames = [waiting.accept(stream, stream.batcher, now_ns, busy_ns) for _ in range(promised)]
        self._journal.note(frames)
        if others:
            batcher = stream.excess or stream.batcher
            frames += [waiting.accept(stream, batcher, now_ns, busy_ns, deadline_ns) for _ in range(others)]
        actions.append(AcceptFrames(tuple(frames)))

    def _supersede(self, stream: Stream, demoted: Collection[bool], actions: list[Action]) -> None:
        """Drop the frames of a stream that wait: newer ones have come, within its contract, beyond it, or both.

        What was promised gives way only to what was promised, what is beyond only to what is beyond.
        """
        gone: list[Frame] = []
        moved: list[Move] = []
        for frame in [frame for frame in stream.frames.values() if frame.demoted in demoted]:
            moves = self._waiting.withdraw(frame)
            if moves is not None:
                gone.append(frame)
                moved += moves
        if gone:
            actions.append(DropFrames(tuple(gone), Outcome.CANCELLED, "superseded", tuple(moved)))
            self._ledger.end_frames(gone, [Outcome.CANCELLED] * len(gone))

    def _refuse(self, stream: Stream | None, refusal: RefuseFrames, actions: list[Action]) -> None:
        self._ledger.refuse(stream, refusal.reason, refusal.count)
        actions.append(refusal)
