"""Accounts: where every accepted frame is, and how it ended.

At every instant, for each stream and each model, ``accepted == sum(outcomes) + in flight``.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.batcher import Batcher
from gateway.core.plan_state import StreamPhase
from gateway.core.policing import Policer
from gateway.core.types import Frame, Outcome, ServiceClass, StreamSpec

#: The outcomes of frames that have a result.
ANSWERED = frozenset({Outcome.MET, Outcome.MISSED})
#: A stream whose `Stream.blamed` has come to this is suspect.
SUSPECT = 3


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
        excess: That of its frames beyond the contract, if they are served as best effort.
        policer: Says which frames are within the contract; None for best effort, which has none.
        totals: Of its model.
        admitted_ns: When.
        closed: Whether `CloseStream` came.
        accepted: Frames taken so far; also the next ``seq``.
        remaining: Frames still to come by its contract; None when unbounded.
        demoted: How many of them were beyond the contract.
        refused: Frames that were not taken, by reason.
        outcomes: How its frames ended.
        frames: Those in flight, by ``seq``.
        anchor_ns: The earliest arrival of the group that is awaited or arriving, on the grid as observed.
        arrived: Frames of that group that have come.
        quiet: Whether the engine has taken note that it takes no further frame.
        blamed: How many refused batches in a row it has lost frames to, without proof of its innocence.
    """

    __slots__ = (
        "accepted",
        "admitted_ns",
        "anchor_ns",
        "arrived",
        "batcher",
        "blamed",
        "closed",
        "demoted",
        "excess",
        "frames",
        "id",
        "outcomes",
        "policer",
        "quiet",
        "refused",
        "remaining",
        "spec",
        "totals",
    )

    def __init__(
        self,
        stream_id: str,
        spec: StreamSpec,
        batcher: Batcher,
        totals: ModelBooks,
        now_ns: int,
        *,
        anchor_ns: int,
        excess: Batcher | None = None,
    ) -> None:
        self.id = stream_id
        self.spec = spec
        self.batcher = batcher
        self.excess = excess
        policed = spec.service_class is ServiceClass.REAL_TIME
        self.policer = Policer(spec.period_ns, spec.burst, spec.jitter_ns) if policed else None
        self.totals = totals
        self.admitted_ns = now_ns
        self.closed = False
        self.accepted = 0
        self.remaining = spec.frames
        self.demoted = 0
        self.refused: dict[str, int] = {}
        self.outcomes = dict.fromkeys(Outcome, 0)
        self.frames: dict[int, Frame] = {}
        self.anchor_ns = anchor_ns
        self.arrived = 0
        self.quiet = False
        self.blamed = 0

    @property
    def suspect(self) -> bool:
        """Whether its frames go alone: one of them was refused alone, or several batches in a row with some of them."""
        return self.blamed >= SUSPECT

    @property
    def batchers(self) -> tuple[Batcher, ...]:
        """All that its frames may stand in."""
        return (self.batcher,) if self.excess is None else (self.batcher, self.excess)

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
            earliest_ns=None if self.policer is None else self.policer.earliest_ns,
        )

    def accept(self, job_id: int, now_ns: int, *, deadline_ns: int | None = None, demoted: bool = False) -> Frame:
        """Take the next frame into batch `job_id`; `deadline_ns` is relative, the stream's own unless given."""
        spec, seq = self.spec, self.accepted
        due_ns = now_ns + (spec.deadline_ns if deadline_ns is None else deadline_ns)
        frame = Frame(self.id, seq, now_ns, due_ns, job_id, spec.on_late, demoted)
        self.frames[seq] = frame
        self.accepted = seq + 1
        if self.remaining is not None:
            self.remaining -= 1
        self.totals.accepted += 1
        if demoted:
            self.demoted += 1
        else:
            self._observe(now_ns)
        return frame

    def _observe(self, now_ns: int) -> None:
        """Let the grid follow a frame of `now_ns`: its group's anchor lies in [now - jitter, now]."""
        spec = self.spec
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
        if self.blamed and outcome in ANSWERED:
            self.blamed = 0


class Ledger:
    """All streams, and the totals that outlive them.

    Attributes:
        streams: Admitted and not ended, in order of admission.
        models: Totals by model.
        by_class: How frames ended, by what was promised to them: demoted ones are best effort.
        refused: Frames that were not accepted, by reason.
    """

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.models: dict[str, ModelBooks] = {}
        self.by_class = {each: dict.fromkeys(Outcome, 0) for each in ServiceClass}
        self._promised = self.by_class[ServiceClass.REAL_TIME]
        self._unpromised = self.by_class[ServiceClass.BEST_EFFORT]
        self.refused: dict[str, int] = {}

    def open(
        self,
        stream_id: str,
        spec: StreamSpec,
        batcher: Batcher,
        now_ns: int,
        *,
        anchor_ns: int,
        excess: Batcher | None = None,
    ) -> None:
        """Enter an admitted stream whose first frame is expected at `anchor_ns`; `excess`: see `Stream`."""
        totals = self.models.setdefault(spec.model, ModelBooks())
        self.streams[stream_id] = Stream(stream_id, spec, batcher, totals, now_ns, anchor_ns=anchor_ns, excess=excess)

    def refuse(self, stream: Stream | None, reason: str, count: int) -> None:
        """Count frames that were not accepted, of a stream or of none that is known."""
        for refused in (self.refused,) if stream is None else (self.refused, stream.refused):
            refused[reason] = refused.get(reason, 0) + count

    def in_flight(self, stream_id: str, seq: int) -> Frame | None:
        """Return a frame that has not ended; None when there is none of that name."""
        stream = self.streams.get(stream_id)
        return None if stream is None else stream.frames.get(seq)

    def renew(self, frame: Frame) -> None:
        """A frame in flight has been put into another batch."""
        self.streams[frame.stream_id].frames[frame.seq] = frame

    def end_frames(self, frames: Iterable[Frame], outcomes: Iterable[Outcome]) -> list[str]:
        """Record how frames ended; return the ids of streams that have ended with them, each once, in order."""
        drained: dict[str, None] = {}
        streams = self.streams
        for frame, outcome in zip(frames, outcomes, strict=True):
            stream = streams[frame.stream_id]
            stream.end(frame.seq, outcome)
            promised = stream.policer is not None and not frame.demoted
            (self._promised if promised else self._unpromised)[outcome] += 1
            if not stream.frames and (stream.closed or stream.remaining == 0):
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
