"""What the engine costs: time per frame and per job, admission by number of frames, simulated frames per second.

``python -m benchmarks.engine --json`` prints one JSON object. ``handle_frame_us`` and ``handle_job_us`` are to be at
most 15 and 60, ``simulator_frames_per_s`` at least 50,000, ``driver_frame_us`` and ``driver_job_us``
(`benchmarks.driver`) at most 30 and 80. These are of an engine as it is by default, which sends nothing ahead; those
with ``ahead`` in their name are of one that does so `send_ahead_ms` before the end of a job, as the gateway has it by
default. All times are CPU time of one core: medians of frames and jobs, the best of
several runs of what takes longer. Only ratios between figures of one run travel.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from benchmarks import driver
from gateway.core.actions import Action, StartJob
from gateway.core.admission import evaluate
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import FramesArrived, JobFinished, RegisterStream, Tick
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import NS_PER_MS, NS_PER_S, Job, StreamSpec
from gateway.settings.scheduling import SchedulingSettings
from gateway.sim.driver import simulate
from gateway.sim.trace import TraceEntry

_RUNS = 5
_SHAPES = ((64, 64, 3), (128, 128, 3), (224, 224, 3), (240, 320, 3))


def _profile(frame_ms: float, most: int = 16) -> Profile:
    """A device that takes `frame_ms` for one frame and 40 % of that for each further one of a batch."""
    entries = []
    for shape in _SHAPES:
        for batch in range(1, most + 1):
            ms = frame_ms * (1 + 0.4 * (batch - 1))
            entries.append(ProfileEntry("m", "1", shape, "UINT8", batch, 1000, ms, ms, ms))
    return Profile(tuple(entries))


def _specs(count: int, period_ms: int, deadline_ms: int, frames: int | None) -> list[StreamSpec]:
    return [
        StreamSpec(
            model="m",
            version="1",
            shape=_SHAPES[i % len(_SHAPES)],
            period_ns=(period_ms + i % 7) * NS_PER_MS,
            deadline_ns=(deadline_ms + 5 * (i % 5)) * NS_PER_MS,
            frames=frames,
            start_in_ns=(i * period_ms // count) * NS_PER_MS,
        )
        for i in range(count)
    ]


def _best(run: Callable[[], float]) -> float:
    return min(run() for _ in range(_RUNS))


def shipped_ahead_ns() -> int:
    """How long before the end of a job the gateway sends the next one, unless it is told otherwise."""
    return round(SchedulingSettings().send_ahead_ms * NS_PER_MS)


def handle_frame_us(streams: int = 40, rounds: int = 500, frames: int | None = None, send_ahead_ns: int = 0) -> float:
    """`Engine.handle` of one `FramesArrived` while the device is busy, in us.

    Args:
        streams: How many cameras send one each, in turn.
        rounds: How often.
        frames: Of each camera. With them the exact test admits, and its plan is followed.
        send_ahead_ns: The engine's.
    """
    engine = Engine(_profile(0.2), EngineConfig(send_ahead_ns=send_ahead_ns))
    for i, spec in enumerate(_specs(streams + 1, 1000, 2000, frames)):
        engine.handle(RegisterStream(f"s{i}", spec), 0)
    events = [FramesArrived(f"s{i}") for i in range(streams)]
    first = FramesArrived(f"s{streams}")
    spent_us: list[float] = []
    now_ns = 0
    engine.handle(first, 0)
    job: int | None = 0
    for _ in range(rounds):
        begin = time.process_time_ns()
        for event in events:
            now_ns += 1_000
            engine.handle(event, now_ns)
            engine.next_wakeup_ns()
        spent_us.append((time.process_time_ns() - begin) / 1e3 / streams)
        while job is not None:
            now_ns += NS_PER_MS
            job = _started(engine.handle(JobFinished(job), now_ns))
        now_ns += NS_PER_S  # the streams' period
        job = _started(engine.handle(first, now_ns))
    return median(spent_us)


def _started(actions: list[Action]) -> int | None:
    job = _start(actions)
    return None if job is None else job.id


def _start(actions: list[Action]) -> Job | None:
    for action in actions:
        if isinstance(action, StartJob):
            return action.job
    return None


def _engine_with_jobs_of_8(profile: Profile, config: EngineConfig) -> Engine:
    """Four streams that may send 24 frames at a time."""
    engine = Engine(profile, config)
    for i, spec in enumerate(_specs(4, 1000, 2000, None)):
        engine.handle(RegisterStream(f"s{i}", replace(spec, burst=24)), 0)
    return engine


def handle_job_us(rounds: int = 300) -> float:
    """`Engine.handle` of one `JobFinished` of 8 frames that starts the next job, in us."""
    engine = _engine_with_jobs_of_8(_profile(0.2, most=8), EngineConfig())
    spent_us: list[float] = []
    now_ns = 0
    for _ in range(rounds):
        job = _started(engine.handle(FramesArrived("s0", 8), now_ns))
        for i in range(4):
            engine.handle(FramesArrived(f"s{i}", 16), now_ns)
        while job is not None:
            now_ns += NS_PER_MS
            begin = time.process_time_ns()
            actions = engine.handle(JobFinished(job), now_ns)
            engine.next_wakeup_ns()
            spent_us.append((time.process_time_ns() - begin) / 1e3)
            job = _started(actions)
        now_ns += NS_PER_S  # the streams' period
    return median(spent_us)


def handle_job_ahead_us(rounds: int = 300) -> float:
    """What a job of 8 frames costs that is sent ahead: `Engine.handle` of the wake-up for it and of its end, in us."""
    engine = _engine_with_jobs_of_8(_profile(2.0, most=8), EngineConfig(send_ahead_ns=shipped_ahead_ns()))
    spent_us: list[float] = []
    now_ns = 0
    for _ in range(rounds):
        job = _start(engine.handle(FramesArrived("s0", 8), now_ns))
        for i in range(4):
            engine.handle(FramesArrived(f"s{i}", 16), now_ns)
        while job is not None:
            end_ns, following = now_ns + job.execution_ns, None
            begin = time.process_time_ns()
            wakeup_ns = engine.next_wakeup_ns()
            if wakeup_ns is not None and wakeup_ns < end_ns:
                following = _start(engine.handle(Tick(), wakeup_ns))
                engine.next_wakeup_ns()
            actions = engine.handle(JobFinished(job.id), end_ns)
            spent = time.process_time_ns() - begin
            if following is not None:
                spent_us.append(spent / 1e3)
            job, now_ns = following or _start(actions), end_ns
        now_ns += NS_PER_S  # the streams' period
    return median(spent_us)


def admission_ms(frames: int) -> float:
    """One exact test over `frames` future frames of finite streams, in ms."""
    streams = max(2, min(40, frames // 25))
    config = EngineConfig(max_horizon_frames=10 * frames, early_dispatch=False)
    engine = Engine(_profile(0.2), config)
    specs = _specs(streams, 100, 200, frames // streams)
    for i, spec in enumerate(specs[:-1]):
        engine.handle(RegisterStream(f"s{i}", spec), 0)
    state = engine.admission_state(0)

    def once() -> float:
        begin = time.process_time()
        verdict = evaluate(state, specs[-1])
        spent = time.process_time() - begin
        assert verdict.admitted, f"the benchmark's own set does not fit: {verdict}"
        return spent * 1e3

    return _best(once)


def simulator_frames_per_s(streams: int = 40, frame_ms: float = 0.3, seconds: int = 20) -> float:
    """Frames of simulated traffic per second of CPU time; batches grow with `frame_ms`."""
    trace = [TraceEntry(f"stream-{i}", 0, spec) for i, spec in enumerate(_specs(streams, 33, 100, None), 1)]

    def once() -> float:
        begin = time.process_time()
        report = simulate(trace, _profile(frame_ms), duration_ns=seconds * NS_PER_S)
        return (time.process_time() - begin) / report.frames

    return 1 / _best(once)


def main(argv: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    arguments = parser.parse_args(argv)
    figures = {
        "handle_frame_us": handle_frame_us(),
        "handle_planned_frame_us": handle_frame_us(frames=1_000),
        "handle_job_us": handle_job_us(),
        "handle_frame_ahead_us": handle_frame_us(send_ahead_ns=shipped_ahead_ns()),
        "handle_job_ahead_us": handle_job_ahead_us(),
        **driver.figures(lambda most: _profile(0.2, most), _specs(32, 1000, 2000, None)),
        "simulator_frames_per_s": simulator_frames_per_s(),
        "simulator_busy_frames_per_s": simulator_frames_per_s(frame_ms=1.2),
        **{f"admission_{frames}_ms": admission_ms(frames) for frames in (100, 1_000, 10_000, 100_000)},
    }
    rounded = {name: round(value, 3) for name, value in figures.items()}
    lines = [json.dumps(rounded)] if arguments.json else [f"{name:24} {value:12}" for name, value in rounded.items()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
