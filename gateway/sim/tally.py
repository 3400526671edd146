"""Collects what a run does into its figures (`gateway.sim.report`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gateway.core.actions import (
    AcceptFrames,
    Action,
    Admitted,
    DeliverFrames,
    DropFrames,
    LoadModel,
    ModelChanged,
    RefuseFrames,
    Rejected,
    StartJob,
    UnloadModel,
    WindowWidened,
)
from gateway.core.types import NS_PER_MS, NS_PER_S, Job, ModelState, Outcome
from gateway.core.verdict import Verdict
from gateway.sim.report import LoadReport, SimulationReport, StreamReport
from gateway.sim.trace import TraceEntry

#: Reasons of unloads.
_MAKES_ROOM = frozenset({"eviction", "swap"})


class LoadTally:
    """Collects how models come and go.

    A frame has waited for a load if it came before its model was there; it waited until then.
    """

    def __init__(self) -> None:
        self.warm_ups = 0
        self._loads = 0
        self._failed = 0
        self._unloads = 0
        self._swaps = self._made_room = 0
        self._there_ns: dict[str, int] = {}
        self._waits_ns: list[int] = []

    def add(self, action: Action, t_ns: int) -> None:
        """Count one action, if it is about a model."""
        match action:
            case LoadModel():
                self._loads += 1
                if self._made_room:
                    self._made_room, self._swaps = self._made_room - 1, self._swaps + 1
            case UnloadModel():
                self._unloads += 1
                self._made_room += action.reason in _MAKES_ROOM
            case ModelChanged(state=ModelState.RESIDENT):
                self._there_ns[action.model] = t_ns
            case ModelChanged(state=ModelState.FAILED):
                self._failed += 1
            case _:
                pass

    def deliver(self, job: Job) -> None:
        """Count the frames of a job that was run."""
        there_ns = self._there_ns.get(job.category.model)
        if there_ns is not None:
            self._waits_ns += [there_ns - frame.arrival_ns for frame in job.frames if frame.arrival_ns < there_ns]

    def report(self) -> LoadReport:
        """Return the figures."""
        waits_ns = self._waits_ns
        return LoadReport(
            loads=self._loads,
            loads_failed=self._failed,
            unloads=self._unloads,
            swaps=self._swaps,
            warm_ups=self.warm_ups,
            frames_waited=len(waits_ns),
            mean_wait_ms=sum(waits_ns) / len(waits_ns) / NS_PER_MS if waits_ns else None,
            max_wait_ms=max(waits_ns) / NS_PER_MS if waits_ns else None,
        )


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
        self._no_model: dict[str, str] = {}
        self._loads = LoadTally()

    def add(self, action: Action, t_ns: int) -> None:
        """Count one action decided at `t_ns`."""
        if self._first_ns is None:
            self._first_ns = t_ns
        self._last_ns = t_ns
        if isinstance(action, AcceptFrames):
            self._accepted += len(action.frames)
        elif isinstance(action, DeliverFrames):
            self._deliver(action, t_ns)
        elif not isinstance(action, StartJob):
            self._add_other(action, t_ns)

    def _add_other(self, action: Action, t_ns: int) -> None:
        """Count what does not happen with every frame or job."""
        match action:
            case WindowWidened():
                self._widened += 1
            case DropFrames():
                self._outcomes[action.outcome] += len(action.frames)
            case RefuseFrames():
                self._refused[action.reason] = self._refused.get(action.reason, 0) + action.count
            case Admitted() | Rejected():
                self._verdicts[action.stream_id] = action.verdict
            case _:
                self._loads.add(action, t_ns)

    def warm_up(self, takes_ns: int) -> None:
        """Count a job without frames that has started."""
        self._busy_ns += takes_ns
        self._loads.warm_ups += 1

    def no_model(self, stream_id: str, reason: str) -> None:
        """A stream was refused because its model could not be had."""
        self._no_model[stream_id] = reason

    def _deliver(self, action: DeliverFrames, t_ns: int) -> None:
        job = action.job
        frames, outcomes = job.frames, self._outcomes
        self._jobs += 1
        self._early += job.early
        self._degraded += len(frames) if job.small else 0
        self._batched += len(frames)
        self._busy_ns += t_ns - action.started_ns
        for outcome in action.outcomes:
            outcomes[outcome] += 1
        self._loads.deliver(job)
        worst_ns, latencies_ns = self._worst_ns, self._latency_ns
        for frame in frames:
            latency_ns = t_ns - frame.arrival_ns
            latencies_ns.append(latency_ns)
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
            models=self._loads.report(),
        )

    def _stream(self, entry: TraceEntry) -> StreamReport:
        verdict = self._verdicts.get(entry.stream_id)
        worst_ns = self._worst_ns.get(entry.stream_id)
        no_model = self._no_model.get(entry.stream_id, "")
        return StreamReport(
            stream_id=entry.stream_id,
            name=entry.spec.name,
            at_ms=entry.at_ns / NS_PER_MS,
            admitted=verdict.admitted if verdict is not None else False if no_model else None,
            verdict=None if verdict is None else _evidence(verdict),
            worst_latency_ms=None if worst_ns is None else worst_ns / NS_PER_MS,
            no_model=no_model,
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
        "memory": None if verdict.memory is None else asdict(verdict.memory) | {"held": dict(verdict.memory.held)},
        "swap": None if verdict.swap is None else asdict(verdict.swap),
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
