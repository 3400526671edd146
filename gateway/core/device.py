"""What the accelerator of one worker is doing, as far as the engine knows."""

from __future__ import annotations

from gateway.core.batch import NEVER_NS
from gateway.core.types import Job


class Device:
    """Runs one job at a time.

    Attributes:
        worker: Its id.
        running: The job sent to it and not yet answered.
        since_ns: When that job started; meaningless without one.
        idle_ns: For how long nothing had run before it; `NEVER_NS` for the first.
        lost: Nothing can be sent to it.
    """

    __slots__ = ("_ended_ns", "idle_ns", "lost", "running", "since_ns", "worker")

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.running: Job | None = None
        self.since_ns = 0
        self.idle_ns = NEVER_NS
        self._ended_ns: int | None = None
        self.lost = False

    @property
    def free(self) -> bool:
        """Whether a job can start."""
        return self.running is None and not self.lost

    def start(self, job: Job, now_ns: int) -> None:
        """Begin a job on the free device."""
        assert self.free, f"job {job.id} was started on a device that is not free"
        self.running = job
        self.since_ns = now_ns
        self.idle_ns = NEVER_NS if self._ended_ns is None else now_ns - self._ended_ns

    def stop(self, job_id: int | None, now_ns: int) -> Job | None:
        """End the running job and return it; None when there is none, or another than `job_id` is running."""
        job = self.running
        if job is None or (job_id is not None and job.id != job_id):
            return None
        self.running = None
        self._ended_ns = now_ns
        return job

    def free_ns(self, now_ns: int) -> int:
        """Return when it is next free by the profile.

        A job that has overrun its profiled time is taken to end 1 ns from now: it is still running, and nothing
        better is known. A lost device is taken to be back at once.
        """
        return now_ns if self.running is None else max(self.since_ns + self.running.execution_ns, now_ns + 1)
