"""What the driver costs with all that watches it in production: CPU time of one `Driver.post`.

Measured without those who carry the decisions out: the executor and the delivery do nothing here. Part of
``python -m benchmarks.engine``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import uvloop

from gateway.core.actions import Action, StartJob
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import FramesArrived, JobFinished, RegisterStream
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_S, Job, StreamSpec
from gateway.runtime.driver import Driver, Observer
from gateway.runtime.model_states import ModelStates
from gateway.runtime.model_waits import ModelWaits
from gateway.runtime.virtual import NoSink
from gateway.telemetry.decisions import DecisionLog
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.stalls import WatchedClock

#: How often every stream sends a frame, and after which time.
ROUNDS = 100
PERIOD_NS = 2 * NS_PER_S


class _Clock(WatchedClock):
    """The gateway's own, whose time is set, far ahead: timers are really made, but none is ever due."""

    t_ns = time.monotonic_ns() + 1_000 * NS_PER_S

    def now_ns(self) -> int:
        return self.t_ns


class _NoExecutor:
    """Implements `gateway.runtime.driver.Executor`: remembers the job."""

    job: Job | None = None

    def start(self, job: Job) -> None:
        self.job = job


class Posting:
    """A driver as `framegate serve` makes it, and the CPU time of what is posted to it.

    Args:
        profile, specs: Of the engine and its streams, ``s0``, ``s1`` and so on.
        log: Where decisions are written; None: nowhere, as is the default of the gateway.
    """

    def __init__(self, profile: Profile, specs: Sequence[StreamSpec], log: Path | None = None) -> None:
        metrics = Metrics("0")
        self._clock = _Clock(metrics.stalls.timers)
        self._executor = _NoExecutor()
        engine = Engine(profile, EngineConfig())
        self._log = None if log is None else DecisionLog(log, 1_000_000)
        observers: list[Observer] = [metrics, *([] if self._log is None else [self._log])]
        observers += [ModelStates(engine), ModelWaits()]
        self._driver = Driver(engine, self._clock, self._executor, NoSink(), observers)
        for i, spec in enumerate(specs):
            self._driver.post(RegisterStream(f"s{i}", spec))
        self._streams = len(specs)

    def close(self) -> None:
        """Stop its timer and its log."""
        self._driver.close()
        if self._log is not None:
            self._log.close()

    def round(self) -> tuple[list[float], list[float]]:
        """Send a frame of every stream, one while the device is idle, then end every job.

        Returns:
            Microseconds of each post of a frame, and of each end of a job that starts another one.
        """
        driver, clock, executor = self._driver, self._clock, self._executor
        clock.t_ns += PERIOD_NS
        frames, jobs = [], []
        for i in range(self._streams):
            clock.t_ns += 10_000
            event = FramesArrived(f"s{i}")
            begin = time.process_time_ns()
            driver.post(event)
            frames.append((time.process_time_ns() - begin) / 1e3)
        while (job := executor.job) is not None:
            executor.job = None
            clock.t_ns += job.execution_ns // 2
            end = JobFinished(job.id)
            begin = time.process_time_ns()
            actions = driver.post(end)
            if _starts(actions):
                jobs.append((time.process_time_ns() - begin) / 1e3)
        return frames, jobs


def _starts(actions: Sequence[Action]) -> bool:
    return any(isinstance(action, StartJob) for action in actions)


def figures(
    make_profile: Callable[[int], Profile], specs: Sequence[StreamSpec], rounds: int = ROUNDS
) -> dict[str, float]:
    """Return medians in us of `Driver.post`, by name.

    Args:
        make_profile: Returns the profile for batches of so many frames at most.
        specs: The streams. Their periods are at most `PERIOD_NS`.
        rounds: How often each of them sends a frame.
    """
    with tempfile.TemporaryDirectory() as folder:
        plain: dict[str, float] = uvloop.run(_figures(make_profile, specs, rounds, None))
        logged: dict[str, float] = uvloop.run(_figures(make_profile, specs, rounds, Path(folder) / "decisions.jsonl"))
    return plain | {f"{name.removesuffix('_us')}_logged_us": spent_us for name, spent_us in logged.items()}


async def _figures(
    make_profile: Callable[[int], Profile], specs: Sequence[StreamSpec], rounds: int, log: Path | None
) -> dict[str, float]:
    frames_us, job_us = _measure(Posting(make_profile(1), specs, log), rounds)
    return {
        "driver_frame_us": frames_us,
        "driver_job_us": job_us,
        "driver_job_of_8_us": _measure(Posting(make_profile(8), specs, log), rounds)[1],
    }


def _measure(posting: Posting, rounds: int) -> tuple[float, float]:
    """Return the medians of a frame that finds the device busy, and of the end of a job that starts another one."""
    found = [posting.round() for _ in range(rounds)]
    posting.close()
    return median(us for frames, _ in found for us in frames[1:]), median(us for _, jobs in found for us in jobs)
