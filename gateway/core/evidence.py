"""What the exact tests found, in words of streams and frames."""

from __future__ import annotations

import numpy as np

from gateway.core.imitator import Imitation
from gateway.core.plan_state import AdmissionState
from gateway.core.pseudo_jobs import PseudoJobs
from gateway.core.verdict import FirstMiss


def worst_latency_ns(
    planned: AdmissionState, jobs: PseudoJobs, imitation: Imitation, used: int | None = None
) -> int | None:
    """Return the largest planned latency of a frame of the last stream; None when it has none.

    `planned`, `jobs` and `imitation` are of a test that found no miss. Only the first `used` jobs in order of execution
    count; None: all.
    """
    held = len(planned.ready)
    ends = np.zeros(held + len(jobs), dtype=np.int64)
    ends[imitation.order[:used]] = imitation.finish[:used]
    mine = jobs.frame_stream == len(planned.streams) - 1
    latency = ends[held:][jobs.frame_job[mine]] - jobs.frame_arrival[mine]
    return int(latency.max()) if len(latency) else None


def first_miss(planned: AdmissionState, jobs: PseudoJobs, imitation: Imitation) -> FirstMiss:
    """Return the job that would be late; times relative to the instant of the state.

    Its finish is that after a best-effort job, as far as these may hold up promised work.
    """
    assert imitation.missed is not None, "there is no miss to tell of"
    row, now_ns = imitation.missed, planned.now_ns
    finish_ns = int(imitation.finish[-1]) + planned.config.best_effort_blocking_ns
    held = len(planned.ready)
    if row < held:
        job = planned.ready[row]
        return FirstMiss(
            category=job.category,
            streams=tuple(dict.fromkeys(frame.stream_id for frame in job.frames)),
            frames=len(job.frames),
            release_ns=job.release_ns - now_ns,
            deadline_ns=job.deadline_ns - now_ns,
            finish_ns=finish_ns,
        )
    row -= held
    streams = np.unique(jobs.frame_stream[jobs.frame_job == row])
    return FirstMiss(
        category=planned.windows[int(jobs.window[row])].category,
        streams=tuple(jobs.stream_ids[i] for i in streams.tolist()),
        frames=int(jobs.size[row]),
        release_ns=int(jobs.release[row]),
        deadline_ns=int(jobs.deadline[row]),
        finish_ns=finish_ns,
    )
