"""How long the simulated device takes for a job."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from gateway.core.types import Job
from gateway.sim.draws import mix

#: Returns the execution time of a job in ns, at least 1.
Execution = Callable[[Job], int]


def exact(job: Job) -> int:
    """Take exactly the profiled time."""
    return job.execution_ns


def uniform(low: float, seed: int) -> Execution:
    """Return times drawn evenly from ``[low, 1]`` times the profiled one.

    A job's draw depends on `seed` and its id alone, not on how many draws came before, so that two drivers that ask in
    different orders see the same device.

    Raises:
        ValueError: `low` is not in [0, 1].
    """
    if not 0 <= low <= 1:
        raise ValueError(f"low must lie in [0, 1], not {low}")

    def draw(job: Job) -> int:
        share = low + (1 - low) * (mix(seed * 0x9E3779B97F4A7C15 + job.id) / 2**64)
        return min(job.execution_ns, max(1, round(share * job.execution_ns)))

    return draw


def delayed(execution: Execution, first: int, jobs: int, delay_ns: int) -> Execution:
    """Return `execution` with `delay_ns` more for `jobs` jobs in a row, of which `first` started before them.

    It counts the jobs, so it serves one run.

    Raises:
        ValueError: A negative count or delay.
    """
    if min(first, jobs, delay_ns) < 0:
        raise ValueError(f"counts and delays must not be negative: {first}, {jobs}, {delay_ns}")
    started = count()

    def take(job: Job) -> int:
        return execution(job) + (delay_ns if first <= next(started) < first + jobs else 0)

    return take


def delayed_from(execution: Execution, at_ns: int, jobs: int, delay_ns: int) -> Execution:
    """Return `execution` with `delay_ns` more for the first `jobs` jobs that are released at `at_ns` or later.

    It counts the jobs, so it serves one run.

    Raises:
        ValueError: A negative time, count or delay.
    """
    if min(at_ns, jobs, delay_ns) < 0:
        raise ValueError(f"times, counts and delays must not be negative: {at_ns}, {jobs}, {delay_ns}")
    chosen = count()

    def take(job: Job) -> int:
        return execution(job) + (delay_ns if job.release_ns >= at_ns and next(chosen) < jobs else 0)

    return take
