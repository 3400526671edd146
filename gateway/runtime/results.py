"""What became of frames, and how callers that ask later learn of it; those who wait have `gateway.runtime.tickets`."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from gateway.core.types import Category, Outcome, StreamSpec
from gateway.core.verdict import CounterOffer, Verdict
from gateway.errors import FrameSizeMismatch, StreamClosed, StreamFinished
from gateway.runtime.kept import Kept, KeptOutputs

#: Values of `StreamRecord.close_reason`.
CLOSED_ON_DEMAND, CLOSED_AS_IDLE = "asked", "idle"
#: Likewise: the version that it named is not served any more; the model takes other frames now.
CLOSED_WITH_VERSION, CLOSED_WITH_MODEL = "version_gone", "model_changed"
_CLOSED = {
    CLOSED_AS_IDLE: "The stream was closed, as no frame came for long. Register it again.",
    CLOSED_WITH_VERSION: "The stream was closed, as the version of the model that it named is not served any more.",
    CLOSED_WITH_MODEL: "The stream was closed, as the model's new version takes other frames.",
}


@dataclass(slots=True)
class FrameResult:
    """The end of one accepted frame. Never changed; it is not frozen, as making it would take three times as long.

    Attributes:
        reason: Why there are no outputs: a stable word or Triton's own message. Empty when there are. An answered
            frame that is asked for late may have lost them: `gateway.runtime.kept.OUTPUTS_DROPPED`.
        latency_ms: From arrival to the reply, or to the instant the frame was dropped.
        deadline_ms: Relative, as promised.
        batch: Frames in its job; 0 if it never was in one.
        queue_ms: From arrival to the start of the job (or the drop).
        execute_ms: From the start of the job to the reply; 0 if there was none.
        degraded: Whether it ran at a smaller shape than its own.
        shape: The shape it ran at.
        demoted: Whether it came beyond its stream's contract and was taken as best effort.
        outputs: This frame's row of each output, without the batch axis.
        timestamp_ms: The sender's own, if it sent one.
        version: The version of the model that ran; empty if there is no answer.
    """

    stream_id: str
    seq: int
    outcome: Outcome
    reason: str
    latency_ms: float
    deadline_ms: float
    batch: int
    queue_ms: float
    execute_ms: float
    degraded: bool
    shape: tuple[int, ...]
    outputs: dict[str, NDArray[Any]] | None
    demoted: bool = False
    timestamp_ms: float | None = None
    version: str = ""


@dataclass(slots=True)
class Penalty:
    """What a category has to pay back (`gateway.core.adaptation`), and the shape that it runs at meanwhile, if any."""

    ns: int = 0
    shape: tuple[int, ...] | None = None


@dataclass(slots=True, eq=False)
class StreamRecord:
    """One stream, from its admission until it is forgotten.

    Attributes:
        verdict: Why it was admitted.
        admitted_ns: On the gateway's monotonic clock.
        state: ``active``, ``closing`` (no new frames; some have not ended), ``closed`` or ``finished``.
        accepted: Frames taken, ever.
        demoted: How many of them came beyond the contract and were taken as best effort.
        refused: Frames refused, by reason.
        outcomes: Frames ended, by outcome. Their sum is `accepted` once the stream has ended.
        worst_latency_ms: The largest latency of a frame that was answered; None before the first.
        seen_ns: When frames for it came last, taken or not; None before the first.
        close_reason: Why it was closed, as one of the words above; empty where it was not.
        out_of_order: Bodies whose timestamp was not above that of the body before. Timestamps are data: nothing but
            this depends on them.
        over: Set once the stream has ended.
        ring: The last results.
        penalty: Its category's; one object for all streams of it.
        follows: It named no version, so its frames run on the newest that is served; `category` has the one that was
            tested.
    """

    stream_id: str
    spec: StreamSpec
    category: Category
    frame_bytes: int
    verdict: Verdict
    admitted_ns: int
    ring: ResultRing
    penalty: Penalty = field(default_factory=Penalty)
    follows: bool = False
    state: str = "active"
    accepted: int = 0
    demoted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    worst_latency_ms: float | None = None
    seen_ns: int | None = None
    close_reason: str = ""
    out_of_order: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _timestamp_ms: float | None = None

    @property
    def in_flight(self) -> int:
        """Accepted frames that have not ended."""
        return self.accepted - self.outcomes.total()

    @property
    def ended(self) -> bool:
        """Whether no further result can come."""
        return self.state in {"closed", "finished"}

    def note_timestamp(self, timestamp_ms: float | None) -> None:
        """A body that was labelled so was taken; None: it had no label."""
        if timestamp_ms is None:
            return
        if self._timestamp_ms is not None and timestamp_ms <= self._timestamp_ms:
            self.out_of_order += 1
        self._timestamp_ms = timestamp_ms

    def check_frames(self, size: int, count: int) -> None:
        """Raise when a body of `size` bytes cannot be the next `count` frames.

        Raises:
            FrameSizeMismatch, StreamFinished, StreamClosed: It cannot.
        """
        if size != count * self.frame_bytes:
            raise FrameSizeMismatch(
                f"A frame of this stream has {self.frame_bytes} bytes; the body has {size}, which is not a whole "
                f"number of frames.",
                expected_bytes=self.frame_bytes,
                received_bytes=size,
            )
        frames = self.spec.frames
        if self.state == "finished" or (frames is not None and self.accepted + count > frames):
            raise StreamFinished(
                f"The stream announced {frames} frames and has sent {self.accepted}.",
                frames=frames,
                accepted=self.accepted,
            )
        if self.state != "active":
            said = _CLOSED.get(self.close_reason, "The stream is closed.")
            raise StreamClosed(said, stream_id=self.stream_id)


@dataclass(frozen=True, slots=True)
class Registration:
    """The answer to a registration or a check.

    Attributes:
        spec: As tested: the version is filled in.
        candidate: How the evidence calls the stream that was asked for.
        test_s: Seconds from the call to the verdict: its turn, and the test.
        stream: The new stream; None when refused, and for a check.
        offers: For a refusal: changes that the test admitted at its instant. May be empty for want of time.
        searched: Whether the search for `offers` ran to its end, so that none means that none was found.
    """

    spec: StreamSpec
    verdict: Verdict
    candidate: str = ""
    test_s: float = 0.0
    stream: StreamRecord | None = None
    offers: tuple[CounterOffer, ...] = ()
    searched: bool = False

    @property
    def rejected(self) -> bool:
        """Whether the test said no."""
        return not self.verdict.admitted


@dataclass(slots=True)
class Books:
    """Totals since the gateway started. ``accepted[m] == sum(ended[m, *])`` when nothing is in flight.

    `streams` counts those that are over: by why they were closed, or ``finished``.
    """

    accepted: Counter[str] = field(default_factory=Counter)
    ended: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    streams: Counter[str] = field(default_factory=Counter)


class ResultRing:
    """The last results of one stream, in order of `seq`, for callers that poll. Their outputs are in `outputs`.

    A result is shown once all older frames of the stream have ended too: a caller that asks for what comes
    after the last `seq` it saw would otherwise never see a frame that was overtaken by a cancelled one.
    """

    def __init__(self, size: int, outputs: KeptOutputs) -> None:
        self._size = size
        self._outputs = outputs
        self._shown: deque[Kept] = deque()
        self._overtaking: dict[int, Kept] = {}
        self._next = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def add(self, result: FrameResult) -> None:
        """Take the result of a frame; each `seq` comes once."""
        kept = self._outputs.put_away(result)
        if result.seq != self._next:
            self._overtaking[result.seq] = kept
            return
        shown: Kept | None = kept
        while shown is not None:
            self._shown.append(shown)
            self._next += 1
            shown = self._overtaking.pop(self._next, None) if self._overtaking else None
        if len(self._shown) > self._size:
            self._shorten(self._size)
        if self._waiters:
            self.wake()

    def forget(self) -> None:
        """Keep nothing."""
        self._shorten(0)

    def _shorten(self, size: int) -> None:
        while len(self._shown) > size:
            self._outputs.discard(self._shown.popleft())

    def wake(self) -> None:
        """Let all who wait look again."""
        if not self._waiters:
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def after(self, seq: int) -> list[FrameResult]:
        """Return the kept results with a larger `seq`."""
        return [*self._newer(seq)][::-1]

    def following(self, seq: int) -> FrameResult | None:
        """Return the first of the kept results with a larger `seq`; None if there is none."""
        if not self._shown or self._shown[-1].result.seq <= seq:
            return None
        # what is shown has no gaps: each `seq` comes once, in order
        return self._shown[max(0, seq + 1 - self._shown[0].result.seq)].result

    def _newer(self, seq: int) -> Iterator[FrameResult]:
        for kept in reversed(self._shown):
            if kept.result.seq <= seq:
                return
            yield kept.result

    async def wait(self, timeout_s: float) -> bool:
        """Return at the next `wake`, or, with False, after `timeout_s`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            done, _ = await asyncio.wait((waiter,), timeout=timeout_s)
        finally:
            self._waiters.discard(waiter)
        return bool(done)
