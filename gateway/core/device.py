"""What the accelerator of one worker is doing, as far as the engine knows."""

from __future__ import annotations

from gateway.core.batch import NEVER_NS
from gateway.core.types import Job


class Device:
    """Runs one job at a time, and holds at most one that was sent ahead (`gateway.core.ahead`).

    Attributes:
        worker: Its id.
        running: The job sent to it and not yet answered.
        since_ns: When that job started; meaningless without one.
        idle_ns: For how long nothing had run before it; `NEVER_NS` for the first.
        next: The job that was sent ahead: it runs from the instant at which `running` has ended. None without that.
        sent_ns: When it was sent; meaningless without one.
        overtaken: One that was sent ahead was answered before `running` was.
        lost: Nothing can be sent to it.
    """

    __slots__ = ("_ended_ns", "idle_ns", "lost", "next", "overtaken", "running", "sent_ns", "since_ns", "worker")

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.running: Job | None = None
        self.since_ns = 0
        self.idle_ns = NEVER_NS
        self.next: Job | None = None
        self.sent_ns = 0
        self.overtaken = False
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

    def send_ahead(self, job: Job, now_ns: int) -> None:
        """Commit the job that runs once the running one has ended."""
        assert self.running is not None, f"job {job.id} was sent ahead of nothing"
        assert self.next is None, f"job {job.id} was sent ahead beside another one"
        self.next = job
        self.sent_ns = now_ns

    def stop(self, job_id: int, now_ns: int) -> Job | None:
        """End the running job and return it; the one that was sent ahead runs now.

        None: there is none, or another than `job_id` is running.
        """
        job = self.running
        if job is None or job.id != job_id:
            return None
        self.running, self.next = self.next, None
        self.overtaken = False
        self._ended_ns = self.since_ns = now_ns
        self.idle_ns = 0
        return job

    def overtake(self, job_id: int) -> Job | None:
        """End the job that was sent ahead, whose answer has come first, and return it; None when it is another one."""
        job = self.next
        if job is None or job.id != job_id:
            return None
        self.next = None
        self.overtaken = True
        return job

    def lose(self, now_ns: int) -> list[Job]:
        """The worker is lost: end everything, and return it in order."""
        self.lost = True
        jobs = [job for job in (self.running, self.next) if job is not None]
        self.running = self.next = None
        self.overtaken = False
        if jobs:
            self._ended_ns = now_ns
        return jobs

    def has(self, job_id: int) -> bool:
        """Whether a job is running or was sent ahead."""
        return any(job is not None and job.id == job_id for job in (self.running, self.next))

    def uses(self, model: str) -> bool:
        """Whether a job of a model is running or was sent ahead."""
        return any(job is not None and job.category.model == model for job in (self.running, self.next))

    def end_ns(self, now_ns: int) -> int:
        """Return when the running job ends by the profile.

        A job that has overrun its profiled time is taken to end 1 ns from now: it is still running, and nothing
        better is known. A lost device is taken to be back at once.
        """
        return now_ns if self.running is None else max(self.since_ns + self.running.execution_ns, now_ns + 1)

    def free_ns(self, now_ns: int) -> int:
        """Return when it is next free by the profile: `end_ns`, and after that the job that was sent ahead."""
        end_ns = self.end_ns(now_ns)
        return end_ns if self.next is None else end_ns + self.next.execution_ns
