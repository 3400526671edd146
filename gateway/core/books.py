"""Accounts: where every accepted frame is, and how it ended.

At every instant, for each stream and each model, ``accepted == sum(outcomes) + in flight``.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.batcher import Batcher
from gateway.core.plan_state import StreamPhase
from gateway.core.types import Frame, Outcome, StreamSpec


class ModelBooks:
    """Totals of one model over the life of the engine; they outlive its streams."""

    __slots__ = ("accepted", "outcomes")

    def __init__(self) -> None:
        self.accepted = 0
        self.outcomes = dict.fromkeys(Outcome, 0)


class Stream:
    """An admitted stream and its frames that have not ended.

    Attributes:
        id, spec: As registered.
        batcher: Of its category.
        totals: Of its model.
        admitted_ns: When.
        closed: Whether `CloseStream` came.
        accepted: Frames taken so far; also the next ``seq``.
        outcomes: How its frames ended.
        frames: Those in flight, by ``seq``.
        anchor_ns: The earliest arrival of the group that is awaited or arriving, on the grid as observed.
        arrived: Frames of that group that have come.
        earliest_ns: No phase lets its next frame come earlier (GCRA, for groups of one frame).
        quiet: Whether the engine has taken note that it takes no further frame.
    """

    __slots__ = (
        "accepted",
        "admitted_ns",
        "anchor_ns",
        "arrived",
        "batcher",
        "closed",
        "earliest_ns",
        "frames",
        "id",
        "outcomes",
        "quiet",
        "spec",
        "totals",
    )

    def __init__(
        self, stream_id: str, spec: StreamSpec, batcher: Batcher, totals: ModelBooks, now_ns: int, *, anchor_ns: int
    ) -> None:
        self.id = stream_id
        self.spec = spec
        self.batcher = batcher
        self.totals = totals
        self.admitted_ns = now_ns
        self.closed = False
        self.accepted = 0
        self.outcomes = dict.fromkeys(Outcome, 0)
        self.frames: dict[int, Frame] = {}
        self.anchor_ns = anchor_ns
        self.arrived = 0
        self.earliest_ns = anchor_ns
        self.quiet = False

    @property
    def remaining(self) -> int | None:
        """Frames still to come by its contract; None when unbounded."""
        return None if self.spec.frames is None else self.spec.frames - self.accepted

    @property
    def refusal(self) -> str | None:
        """Why it takes no further frame: ``finished`` (all have come), ``closed``, or None: it takes them."""
        if self.remaining == 0:
            return "finished"
        return "closed" if self.closed else None

    def next_expected_ns(self, now_ns: int) -> int | None:
        """Return when its next frame should come, not before `now_ns`; None when it takes no more."""
        return None if self.refusal else max(self.anchor_ns, now_ns)

    def phase(self, now_ns: int) -> StreamPhase | None:
        """Return what is still to come of it by the grid as observed; None when it takes no more."""
        if self.refusal:
            return None
        spec, remaining = self.spec, self.remaining
        next_ns, left, overdue = self.anchor_ns, spec.burst - self.arrived, 0
        passed_ns = now_ns - next_ns - spec.jitter_ns
        if passed_ns > 0:
            # Of the groups that should have come, those that are a whole period late are given up.
            given_up, late_ns = divmod(passed_ns, spec.period_ns)
            next_ns += given_up * spec.period_ns
            left = spec.burst if given_up else left
            if late_ns:
                overdue, left = left, spec.burst
                next_ns += spec.period_ns
        if remaining is not None:
            overdue = min(overdue, remaining)
            left = max(1, min(left, remaining - overdue))
        return StreamPhase(
            stream_id=self.id,
            category=self.batcher.category,
            period_ns=spec.period_ns,
            deadline_ns=spec.deadline_ns,
            next_ns=next_ns,
            remaining=remaining,
            burst=spec.burst,
            jitter_ns=spec.jitter_ns,
            group_left=left,
            overdue=overdue,
            earliest_ns=self.earliest_ns if spec.burst == 1 or not self.accepted else None,
        )

    def accept(self, job_id: int, now_ns: int) -> Frame:
        """Take the next frame into batch `job_id`."""
        spec = self.spec
        frame = Frame(self.id, self.accepted, now_ns, now_ns + spec.deadline_ns, job_id, spec.on_late)
        self.frames[frame.seq] = frame
        self.accepted += 1
        self.totals.accepted += 1
        self._observe(now_ns)
        return frame

    def _observe(self, now_ns: int) -> None:
        """Let the grid follow a frame of `now_ns`: its group's anchor lies in [now - jitter, now]."""
        spec = self.spec
        self.earliest_ns = max(min(self.earliest_ns, now_ns), now_ns - spec.jitter_ns) + spec.period_ns
        late_ns = now_ns - self.anchor_ns - spec.jitter_ns
        if late_ns >= spec.period_ns:
            self.arrived = 0
        if late_ns > 0:
            missing = -(-late_ns // spec.period_ns)
            if self.anchor_ns + missing * spec.period_ns <= now_ns:
                # On time in a later group, after some that are missing.
                self.anchor_ns += missing * spec.period_ns
                self.arrived = 0
            else:
                self.anchor_ns += late_ns
        elif now_ns < self.anchor_ns:
            self.anchor_ns = now_ns
        self.arrived += 1
        if self.arrived == spec.burst:
            self.arrived = 0
            self.anchor_ns += spec.period_ns

    def end(self, seq: int, outcome: Outcome) -> None:
        """Record how a frame ended."""
        del self.frames[seq]
        self.outcomes[outcome] += 1
        self.totals.outcomes[outcome] += 1


class Ledger:
    """All streams, and the totals that outlive them.

    Attributes:
        streams: Admitted and not ended, in order of admission.
        models: Totals by model.
        refused: Frames that were not accepted, by reason.
    """

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.models: dict[str, ModelBooks] = {}
        self.refused: dict[str, int] = {}

    def open(self, stream_id: str, spec: StreamSpec, batcher: Batcher, now_ns: int, anchor_ns: int) -> None:
        """Enter an admitted stream whose first frame is expected at `anchor_ns`."""
        totals = self.models.setdefault(spec.model, ModelBooks())
        self.streams[stream_id] = Stream(stream_id, spec, batcher, totals, now_ns, anchor_ns=anchor_ns)

    def refuse(self, reason: str, count: int) -> None:
        """Count frames that were not accepted."""
        self.refused[reason] = self.refused.get(reason, 0) + count

    def in_flight(self, stream_id: str, seq: int) -> Frame | None:
        """Return a frame that has not ended; None when there is none of that name."""
        stream = self.streams.get(stream_id)
        return None if stream is None else stream.frames.get(seq)

    def end_frames(self, frames: Iterable[Frame], outcomes: Iterable[Outcome]) -> list[str]:
        """Record how frames ended; return the ids of streams that have no frame left, each once, in order."""
        drained: dict[str, None] = {}
        for frame, outcome in zip(frames, outcomes, strict=True):
            stream = self.streams[frame.stream_id]
            stream.end(frame.seq, outcome)
            if not stream.frames:
                drained[stream.id] = None
        return list(drained)

    def take_ended(self, stream_ids: Iterable[str]) -> list[Stream]:
        """Take out those of the streams that take no further frame and have none in flight."""
        ended = [
            stream
            for stream_id in stream_ids
            if (stream := self.streams[stream_id]).refusal is not None and not stream.frames
        ]
        for stream in ended:
            del self.streams[stream.id]
        return ended
