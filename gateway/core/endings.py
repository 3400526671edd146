"""How frames end, and with the last one their stream.

An accepted frame ends exactly once, in one of `Outcome`. A stream ends when it takes no further frame and has none
left.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.actions import Action, DropFrames, StreamEnded
from gateway.core.adaptation import Adaptation
from gateway.core.books import Ledger, Stream
from gateway.core.promises import Promises
from gateway.core.types import Frame, Outcome
from gateway.core.waiting import Waiting


class Endings:
    """See the module's docstring.

    Args:
        ledger, waiting: The engine's.
        promises: Told that a stream has gone.
        adaptation: Forgets what a category owes once it has no stream.
    """

    def __init__(self, ledger: Ledger, waiting: Waiting, promises: Promises, adaptation: Adaptation) -> None:
        self._ledger = ledger
        self._waiting = waiting
        self._promises = promises
        self._adaptation = adaptation

    # ------------------------------------------------------------ frames

    def end(self, frames: Iterable[Frame], outcomes: Iterable[Outcome], actions: list[Action]) -> None:
        """Record how frames ended, and end the streams of which they were the last."""
        last = self._ledger.end_frames(frames, outcomes)
        if last:
            self.sweep(last, actions)

    def drop(self, drop: DropFrames, actions: list[Action]) -> None:
        """End frames without a result."""
        actions.append(drop)
        self.end(drop.frames, [drop.outcome] * len(drop.frames), actions)

    def expire(self, now_ns: int, actions: list[Action], *, lost: bool) -> None:
        """End the waiting frames that are late at `now_ns` and not to be served late; `lost`: the worker is."""
        for reason, gone, moved in self._waiting.expire(now_ns, lost=lost):
            self.drop(DropFrames(gone, Outcome.EXPIRED, reason, moved), actions)

    # ------------------------------------------------------------ streams

    def hush(self, stream: Stream) -> None:
        """Note, once, that a stream takes no further frame."""
        if not stream.quiet:
            stream.quiet = True
            for batcher in stream.batchers:
                self._waiting.quiet(batcher)

    def sweep(self, stream_ids: Iterable[str], actions: list[Action]) -> None:
        """End the streams among these that take no further frame and have none left."""
        for stream in self._ledger.take_ended(stream_ids):
            for batcher in stream.batchers:
                self._waiting.leave(batcher, stream.spec.deadline_ns)
            self._promises.generation += 1
            if self._promises.region is not None:
                self._promises.region.settle()
            if not stream.batcher.deadlines and (changed := self._adaptation.forget(stream.batcher.category)):
                actions.append(changed)
            actions.append(StreamEnded(stream.id, stream.refusal or "closed"))
