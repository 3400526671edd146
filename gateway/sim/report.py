"""What a run came to: the figures of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gateway.core.actions import (
    AcceptFrames,
    Action,
    Admitted,
    DeliverFrames,
    DropFrames,
    RefuseFrames,
    Rejected,
    StartJob,
    WindowWidened,
)
from gateway.core.types import NS_PER_MS, NS_PER_S, Outcome
from gateway.core.verdict import Verdict
from gateway.sim.trace import TraceEntry


@dataclass(frozen=True, slots=True)
class StreamReport:
    """How one stream of the trace was answered.

    Attributes:
        stream_id, name: Of the stream.
        at_ms: When it asked.
        admitted: The answer; None when the run ended before it asked.
        verdict: Evidence, times in ms; `worst_latency_ms` in it is what was predicted.
        worst_latency_ms: The largest latency of a delivered frame; None without one.
    """

    stream_id: str
    name: str
    at_ms: float
    admitted: bool | None
    verdict: dict[str, Any] | None
    worst_latency_ms: float | None


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """Figures of a run. Latencies are of delivered frames, from arrival to the end of their job.

    Attributes:
        streams: Answers, in the order of the trace.
        admitted, refused: Numbers of streams.
        frames: Accepted frames.
        frames_refused: Frames that were not accepted, by reason.
        outcomes: Accepted frames by how they ended.
        miss_rate: Share of accepted frames that were missed, expired or failed.
        p50_latency_ms, p99_latency_ms, max_latency_ms: None without a delivered frame.
        jobs, mean_batch: Jobs that were started, and frames in one on average (0 without any).
        early_jobs: Those of them that were sent before their joint.
        frames_degraded: Frames that were run at a smaller shape.
        windows_widened: How often a window grew after its tightest stream had gone.
        span_ms: From the first event to the last.
        busy: Share of that time that the device worked.
        goodput_fps: Frames that met their deadline, per second of that time.
    """

    streams: tuple[StreamReport, ...]
    admitted: int
    refused: int
    frames: int
    frames_refused: dict[str, int]
    outcomes: dict[str, int]
    miss_rate: float
    p50_latency_ms: float | None
    p99_latency_ms: float | None
    max_latency_ms: float | None
    jobs: int
    early_jobs: int
    frames_degraded: int
    windows_widened: int
    mean_batch: float
    span_ms: float
    busy: float
    goodput_fps: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return asdict(self) | {"streams": [asdict(stream) for stream in self.streams]}

    def lines(self) -> list[str]:
        """Return it for people, a line each."""
        out = [
            f"streams   {self.admitted} admitted, {self.refused} refused{self._tests()}",
            *(
                f"          refused {s.name or s.stream_id}: {_why(s.verdict)}"
                for s in self.streams
                if s.admitted is False
            ),
            f"frames    {self.frames} accepted, {sum(self.frames_refused.values())} refused",
            "outcomes  " + ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items()),
            f"missed    {self.miss_rate:.3%}",
        ]
        if self.p50_latency_ms is not None:
            out.append(
                f"latency   p50 {self.p50_latency_ms:.2f} ms, p99 {self.p99_latency_ms:.2f} ms, "
                f"max {self.max_latency_ms:.2f} ms"
            )
        out.append(f"batches   {self.jobs} jobs, {self.mean_batch:.2f} frames each, {self.early_jobs} early")
        out.append(
            f"device    {self.busy:.1%} busy, {self.goodput_fps:.1f} frames/s in time over {self.span_ms:.0f} ms"
        )
        out += self._promises()
        if self.frames_degraded:
            out.append(f"degraded  {self.frames_degraded} frames ran at a smaller shape")
        if self.windows_widened:
            out.append(f"windows   grew {self.windows_widened} times")
        return out

    def _promises(self) -> list[str]:
        """Return how the largest latencies compare with those that admission planned; later streams may add to them."""
        planned = [
            (s.verdict["worst_latency_ms"], s.worst_latency_ms)
            for s in self.streams
            if s.admitted and s.verdict and s.verdict["worst_latency_ms"] is not None and s.worst_latency_ms is not None
        ]
        kept = sum(worst_ms <= planned_ms for planned_ms, worst_ms in planned)
        return [f"planned   worst latency not exceeded by {kept} of {len(planned)} streams"] if planned else []

    def _tests(self) -> str:
        """Return which tests decided, and how often."""
        decided = Counter(s.verdict["test"] for s in self.streams if s.verdict is not None)
        if not decided:
            return ""
        return " (by test: " + ", ".join(f"{test} {count}" for test, count in sorted(decided.items())) + ")"


def _why(verdict: dict[str, Any] | None) -> str:
    if verdict is None:
        return "?"
    miss = verdict["first_miss"]
    if miss is None:
        used = f"utilization {verdict['utilization']:.2f}, " if verdict["utilization"] else ""
        return f"{verdict['reason']} ({used}{verdict['test']} test)"
    late = f"a batch of {miss['category']} would be {miss['late_ms']:.2f} ms late"
    return f"{verdict['reason']}: {late} ({verdict['test']} test)"


class Tally:
    """Collects the actions of a run."""

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict] = {}
        self._accepted = 0
        self._refused: dict[str, int] = {}
        self._outcomes = dict.fromkeys(Outcome, 0)
        self._latency_ns: list[int] = []
        self._worst_ns: dict[str, int] = {}
        self._widened = 0
        self._jobs = 0
        self._early = 0
        self._degraded = 0
        self._batched = 0
        self._busy_ns = 0
        self._first_ns: int | None = None
        self._last_ns = 0

    def add(self, action: Action, t_ns: int) -> None:
        """Count one action decided at `t_ns`."""
        if self._first_ns is None:
            self._first_ns = t_ns
        self._last_ns = t_ns
        match action:
            case AcceptFrames():
                self._accepted += len(action.frames)
            case DeliverFrames():
                self._deliver(action, t_ns)
            case StartJob():
                pass
            case WindowWidened():
                self._widened += 1
            case DropFrames():
                self._outcomes[action.outcome] += len(action.frames)
            case RefuseFrames():
                self._refused[action.reason] = self._refused.get(action.reason, 0) + action.count
            case Admitted() | Rejected():
                self._verdicts[action.stream_id] = action.verdict
            case _:
                pass

    def _deliver(self, action: DeliverFrames, t_ns: int) -> None:
        job = action.job
        self._jobs += 1
        self._early += job.early
        self._degraded += len(job.frames) if job.small else 0
        self._batched += len(job.frames)
        self._busy_ns += t_ns - action.started_ns
        for outcome in action.outcomes:
            self._outcomes[outcome] += 1
        worst_ns = self._worst_ns
        for frame in job.frames:
            latency_ns = t_ns - frame.arrival_ns
            self._latency_ns.append(latency_ns)
            if latency_ns > worst_ns.get(frame.stream_id, -1):
                worst_ns[frame.stream_id] = latency_ns

    def verdict(self, stream_id: str) -> Verdict | None:
        """Return how a stream was answered; None before."""
        return self._verdicts.get(stream_id)

    def report(self, trace: Sequence[TraceEntry]) -> SimulationReport:
        """Return the figures."""
        latency = np.array(self._latency_ns, dtype=np.float64) / NS_PER_MS
        span_ns = self._last_ns - (self._first_ns or 0)
        bad = sum(self._outcomes[outcome] for outcome in (Outcome.MISSED, Outcome.EXPIRED, Outcome.FAILED))
        streams = tuple(self._stream(entry) for entry in trace)
        return SimulationReport(
            streams=streams,
            admitted=sum(stream.admitted is True for stream in streams),
            refused=sum(stream.admitted is False for stream in streams),
            frames=self._accepted,
            frames_refused=dict(self._refused),
            outcomes={outcome.value: count for outcome, count in self._outcomes.items()},
            miss_rate=bad / self._accepted if self._accepted else 0.0,
            p50_latency_ms=_percentile(latency, 50),
            p99_latency_ms=_percentile(latency, 99),
            max_latency_ms=_percentile(latency, 100),
            jobs=self._jobs,
            early_jobs=self._early,
            frames_degraded=self._degraded,
            windows_widened=self._widened,
            mean_batch=self._batched / self._jobs if self._jobs else 0.0,
            span_ms=span_ns / NS_PER_MS,
            busy=self._busy_ns / span_ns if span_ns else 0.0,
            goodput_fps=self._outcomes[Outcome.MET] * NS_PER_S / span_ns if span_ns else 0.0,
        )

    def _stream(self, entry: TraceEntry) -> StreamReport:
        verdict = self._verdicts.get(entry.stream_id)
        worst_ns = self._worst_ns.get(entry.stream_id)
        return StreamReport(
            stream_id=entry.stream_id,
            name=entry.spec.name,
            at_ms=entry.at_ns / NS_PER_MS,
            admitted=None if verdict is None else verdict.admitted,
            verdict=None if verdict is None else _evidence(verdict),
            worst_latency_ms=None if worst_ns is None else worst_ns / NS_PER_MS,
        )


def _percentile(values: np.ndarray[Any, np.dtype[np.float64]], share: float) -> float | None:
    return float(np.percentile(values, share)) if len(values) else None


def _evidence(verdict: Verdict) -> dict[str, Any]:
    miss = verdict.first_miss
    worst_ns = verdict.worst_latency_ns
    return {
        "test": verdict.test,
        "phase": verdict.phase,
        "reason": None if verdict.reason is None else verdict.reason.value,
        "utilization": verdict.utilization,
        "horizon_ms": verdict.horizon_ns / NS_PER_MS,
        "frames_checked": verdict.frames_checked,
        "worst_latency_ms": None if worst_ns is None else worst_ns / NS_PER_MS,
        "first_miss": None
        if miss is None
        else {
            "category": str(miss.category),
            "streams": list(miss.streams),
            "batch": miss.frames,
            "release_ms": miss.release_ns / NS_PER_MS,
            "deadline_ms": miss.deadline_ns / NS_PER_MS,
            "finish_ms": miss.finish_ns / NS_PER_MS,
            "late_ms": miss.late_ns / NS_PER_MS,
        },
    }
