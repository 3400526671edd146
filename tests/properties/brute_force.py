"""A second EDF, as plain as can be: no numpy, no formulas, window after window and job after job.

It knows the rules from their descriptions only and shares no code with the admission tests. Times are absolute ns.
"""

from dataclasses import dataclass, field

from gateway.core.types import JobDeadline


@dataclass
class Work:
    """One job to come. `opened` breaks the last ties: existing batches by id, then by first arrival and stream."""

    category: object
    release: int
    deadline: int
    execution: int
    opened: tuple
    frames: list = field(default_factory=list)  # (stream id, earliest arrival in the window)
    available: int = 0
    id: int = -1
    chunk: int = 0
    start: int | None = None

    @property
    def finish(self):
        return self.start + self.execution

    @property
    def key(self):
        return (self.deadline, self.release, self.opened)


def intervals(stream, now, until):
    """First and last instant at which each frame of `stream` may come, up to `until`."""
    left = stream.remaining
    found = []

    def take(first, last, count):
        nonlocal left
        for _ in range(count):
            if left is None or left > 0:
                found.append((first, last))
                left = None if left is None else left - 1

    take(now, now, stream.overdue)
    group, arrival = 0, stream.next_ns
    while arrival < until and (left is None or left > 0):
        take(arrival, arrival + stream.jitter_ns, stream.group_left if group == 0 else stream.burst)
        group, arrival = group + 1, arrival + stream.period_ns
    return found


def last_instant(state):
    """After it no frame of the finite streams of `state` comes."""
    ends = [state.now_ns]
    for stream in state.streams:
        groups = stream.remaining // stream.burst + 2
        ends.append(stream.next_ns + groups * stream.period_ns + stream.jitter_ns)
    return max(ends) + 1


def windows(window, now, until):
    """Opening, joint and whether it is the first, of each window that opens before `until`."""
    opened, joint = now, window.joint_ns
    while opened < until:
        yield opened, joint, opened == now
        opened, joint = joint, joint + window.window_ns


def jobs_of(state, until=None):
    """All jobs of the windows of `state` that open before `until`."""
    end = last_instant(state) if until is None else until
    found = []
    for window in state.windows:
        table = state.profile.table(window.category)
        largest = len(table) - 1
        frames = [
            (first, last, place, stream)
            for place, stream in enumerate(state.streams)
            if stream.category == window.category
            for first, last in intervals(stream, state.now_ns, end)
        ]
        for opened, joint, is_first in windows(window, state.now_ns, end):
            inside = sorted(
                (max(first, opened), place, n)
                for n, (first, last, place, _) in enumerate(frames)
                if first < joint and last >= opened
            )
            batches = []
            if is_first:
                for batch in window.waiting:
                    members = [(f.stream_id, f.arrival_ns, f.deadline_ns) for f in batch]
                    batches.append(((0, batch[0].job), members, batch[0].job))
            for arrival, place, n in inside:
                stream = frames[n][3]
                if not batches or len(batches[-1][1]) == largest:
                    batches.append(((1, arrival, place), [], -1))
                batches[-1][1].append((stream.stream_id, arrival, arrival + stream.deadline_ns))
            if not batches:
                continue
            if state.config.job_deadline is JobDeadline.WINDOW:
                deadline = joint + (window.narrowest_ns if is_first else window.window_ns)
            else:
                deadline = min(due for _, members, _ in batches for _, _, due in members)
            for chunk, (order, members, job_id) in enumerate(batches):
                found.append(
                    Work(
                        category=window.category,
                        release=joint,
                        deadline=deadline,
                        execution=table[len(members)],
                        opened=order,
                        frames=[(name, arrival) for name, arrival, _ in members],
                        available=joint,
                        id=job_id,
                        chunk=chunk,
                    )
                )
    return found


def ready_of(state):
    planned = state.planned_ns or [state.now_ns] * len(state.ready)
    return [
        Work(
            category=job.category,
            release=job.release_ns,
            deadline=job.deadline_ns,
            execution=job.execution_ns,
            opened=(0, job.id),
            frames=[(f.stream_id, f.arrival_ns) for f in job.frames],
            available=max(state.now_ns, t),
            id=job.id,
        )
        for job, t in zip(state.ready, planned, strict=True)
    ]


def run(jobs, free):
    """Run non-preemptive, non-idling EDF; return the jobs in order of execution and the first that is late, if any."""
    waiting, done, t = list(jobs), [], free
    while waiting:
        here = [job for job in waiting if job.available <= t]
        if not here:
            t = min(job.available for job in waiting)
            continue
        job = min(here, key=lambda job: job.key)
        waiting.remove(job)
        job.start = t
        t += job.execution
        done.append(job)
        if t > job.deadline:
            return done, job
    return done, None


def edf(state, until=None):
    """Run everything that `state` has and expects."""
    return run(ready_of(state) + jobs_of(state, until), state.free_ns)
