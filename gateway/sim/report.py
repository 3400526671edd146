"""What a run came to: the figures of a simulation."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from gateway.sizes import in_unit


@dataclass(frozen=True, slots=True)
class StreamReport:
    """How one stream of the trace was answered.

    Attributes:
        stream_id, name: Of the stream.
        at_ms: When it asked.
        admitted: The answer; None when the run ended before it asked.
        verdict: Evidence, times in ms; `worst_latency_ms` in it is what was predicted.
        worst_latency_ms: The largest latency of a delivered frame; None without one.
        no_model: Why it was refused without a test: its model could not be had. Empty: that was not so.
    """

    stream_id: str
    name: str
    at_ms: float
    admitted: bool | None
    verdict: dict[str, Any] | None
    worst_latency_ms: float | None
    no_model: str = ""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What coming and going of models came to. All is 0 where all models are taken to be there.

    Attributes:
        loads, loads_failed, unloads: Numbers of them.
        swaps: Unloads that made room, each with the next load.
        warm_ups: Jobs that warmed a model.
        frames_waited: Delivered frames that came before their model was there.
        mean_wait_ms, max_wait_ms: How long those waited for it; None without any.
    """

    loads: int = 0
    loads_failed: int = 0
    unloads: int = 0
    swaps: int = 0
    warm_ups: int = 0
    frames_waited: int = 0
    mean_wait_ms: float | None = None
    max_wait_ms: float | None = None

    def lines(self) -> list[str]:
        """Return it for people, a line each; nothing if no model came or went."""
        if not self.loads and not self.unloads:
            return []
        failed = f" ({self.loads_failed} failed)" if self.loads_failed else ""
        told = [f"{_count(self.loads, 'load')}{failed}", _count(self.unloads, "unload"), _count(self.swaps, "swap")]
        out = [f"models    {', '.join(told)}"]
        if self.mean_wait_ms is not None:
            out.append(
                f"          {_count(self.frames_waited, 'frame')} waited for a load, "
                f"{self.mean_wait_ms:.2f} ms on average, {self.max_wait_ms:.2f} ms at most"
            )
        return out


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
        models: How models came and went.
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
    models: LoadReport = LoadReport()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return asdict(self) | {"streams": [asdict(stream) for stream in self.streams]}

    def lines(self) -> list[str]:
        """Return it for people, a line each."""
        out = [
            f"streams   {self.admitted} admitted, {self.refused} refused{self._tests()}",
            *(
                f"          refused {s.name or s.stream_id}: {s.no_model or _why(s.verdict)}"
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
        out += self.models.lines()
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _why(verdict: dict[str, Any] | None) -> str:
    if verdict is None:
        return "?"
    miss = verdict["first_miss"]
    if memory := verdict["memory"]:
        needed, free, budget = (in_unit(memory[name], memory["unit"]) for name in ("needed", "free", "budget"))
        held = ", ".join(f"{model} ({in_unit(size, memory['unit'])})" for model, size in memory["held"].items())
        left = f"the budget is {budget}, and beside {held} it has {free} left" if held else f"the budget is {budget}"
        return f"{verdict['reason']}: its model needs {needed}; {left}"
    if miss is None:
        used = f"utilization {verdict['utilization']:.2f}, " if verdict["utilization"] else ""
        return f"{verdict['reason']} ({used}{verdict['test']} test)"
    late = f"a batch of {miss['category']} would be {miss['late_ms']:.2f} ms late"
    return f"{verdict['reason']}: {late} ({verdict['test']} test)"
