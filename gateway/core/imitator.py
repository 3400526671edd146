"""The EDF imitator: the schedule of a set of jobs if each takes as long as profiled.

DeepRT's third step of Phase 2 (Yang et al., SEC 2021, arXiv 2105.01803, section 4), and what the guard needs of it: the
order of execution with the latest start of every job.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gateway.core.expected import ints
from gateway.core.plan import SlotTable
from gateway.core.plan_state import AdmissionState
from gateway.core.pseudo_jobs import PseudoJobs

_Ints = npt.NDArray[np.int64]

#: Later than any release.
_NEVER_NS = 2**62


@dataclass(frozen=True, slots=True)
class Imitation:
    """What EDF would do with the jobs of a plan.

    Rows number the ready jobs first, then the pseudo jobs in their order.

    Attributes:
        order: Rows in order of execution, up to and including the first that misses.
        finish: End of each of these, relative ns, in the same order.
        missed: The first row that would end after its deadline; None when all are in time.
    """

    order: _Ints
    finish: _Ints
    missed: int | None


@dataclass(frozen=True, slots=True)
class Rows:
    """Ready and pseudo jobs in one numbering. Int64 columns, relative ns.

    Attributes:
        release: When the imitator may take it; for a job that is held back on purpose, its planned start.
        deadline, execution: Of each.
        margin_ns: How much before its deadline each has to end, so that a best-effort job of that length may start
            whenever the device is idle: with all slots so early, the invariant of the guard lets it.
        held: How many are ready jobs.
    """

    release: _Ints
    deadline: _Ints
    execution: _Ints
    held: int
    margin_ns: int = 0


def rows_of(state: AdmissionState, jobs: PseudoJobs) -> Rows:
    """Put the ready jobs of `state` before its pseudo jobs.

    A ready job that the plan in force starts later than now is left where it is: that plan may keep the device waiting
    on purpose, and an imitator that does not know it would refuse the very set that is running.
    """
    ready, now_ns = state.ready, state.now_ns
    margin_ns = state.config.best_effort_blocking_ns
    if not ready:
        return Rows(jobs.release, jobs.deadline, jobs.execution, 0, margin_ns)
    planned = [max(0, t - now_ns) for t in state.planned_ns] or [0] * len(ready)
    return Rows(
        release=np.concatenate([ints(planned), jobs.release]),
        deadline=np.concatenate([ints([job.deadline_ns - now_ns for job in ready]), jobs.deadline]),
        execution=np.concatenate([ints([job.execution_ns for job in ready]), jobs.execution]),
        held=len(ready),
        margin_ns=margin_ns,
    )


def imitate(state: AdmissionState, jobs: PseudoJobs) -> Imitation:
    """Run non-preemptive, non-idling EDF, ties by (deadline, release, order of opening), to the first miss.

    Cost: O(n log n); about 0.6 us for each job.
    """
    return imitate_rows(rows_of(state, jobs), state.free_ns - state.now_ns)


def imitate_rows(rows: Rows, free_ns: int) -> Imitation:
    """Run the imitator over `rows`, with a device that is free at `free_ns`; see `imitate`."""
    # Ready jobs stand in EDF order and were released before all others; pseudo jobs stand by release and opening. So a
    # stable sort by deadline leaves ties as they should be.
    row_of_rank = np.argsort(rows.deadline, kind="stable")
    total = len(row_of_rank)
    rank = np.empty_like(row_of_rank)
    rank[row_of_rank] = np.arange(total)
    release = rows.release
    if rows.held and release[: rows.held].any():
        by_release = np.argsort(release, kind="stable")
        release, rank = release[by_release], rank[by_release]
    ranks, finish = _run(
        free_ns,
        [*release.tolist(), _NEVER_NS],
        [*rank.tolist(), 0],
        rows.execution[row_of_rank].tolist(),
        (rows.deadline[row_of_rank] - rows.margin_ns).tolist(),
    )
    order = row_of_rank[ranks]
    ended = ints(finish)
    late = bool(finish) and bool(ended[-1] > rows.deadline[order[-1]] - rows.margin_ns)
    return Imitation(order, ended, int(order[-1]) if late else None)


def _run(
    t: int, releases: list[int], ranks: list[int], execution: list[int], deadline: list[int]
) -> tuple[list[int], list[int]]:
    """The loop. `releases` ascend and end with a sentinel; `execution` and `deadline` go by EDF rank."""
    order: list[int] = []
    finish: list[int] = []
    queue: list[int] = []
    push, pop, exchange = heapq.heappush, heapq.heappop, heapq.heappushpop
    done, ended = order.append, finish.append
    i = 0
    release = releases[0]
    last = len(releases) - 1
    while True:
        if queue:
            while release <= t:
                push(queue, ranks[i])
                i += 1
                release = releases[i]
            rank = pop(queue)
        elif i < last:
            if t < release:  # noqa: PLR1730 - a call of max() costs a tenth of the loop
                t = release
            rank = ranks[i]
            i += 1
            release = releases[i]
            if release <= t:
                while release <= t:
                    push(queue, ranks[i])
                    i += 1
                    release = releases[i]
                rank = exchange(queue, rank)
        else:
            return order, finish
        t += execution[rank]
        done(rank)
        ended(t)
        if t > deadline[rank]:
            return order, finish


def slot_table(
    state: AdmissionState,
    jobs: PseudoJobs,
    imitation: Imitation,
    *,
    used: int | None = None,
    repeat_from: int = 0,
    repeat_ns: int = 0,
) -> SlotTable:
    """Return the schedule as the guard keeps it.

    `state`, `jobs` and `imitation` are of a test that found no miss. Only the first `used` rows in order of execution
    count; None: all. `repeat_from` and `repeat_ns`: see `SlotTable`.
    """
    order, finish = imitation.order[:used], imitation.finish[:used]
    now_ns, ready = state.now_ns, state.ready
    held = len(ready)
    rows = rows_of(state, jobs)
    places = {window.category: i for i, window in enumerate(state.windows)}

    def column(of_ready: list[int], of_jobs: _Ints) -> _Ints:
        both = np.concatenate([ints(of_ready), of_jobs]) if held else of_jobs
        ordered: _Ints = both[order]
        return ordered

    execution, deadline = rows.execution[order], rows.deadline[order] + now_ns
    return SlotTable(
        window=column([places.get(job.category, -1) for job in ready], jobs.window),
        job=column([job.id for job in ready], jobs.job),
        release=column([job.release_ns for job in ready], jobs.release + now_ns),
        chunk=column([0] * held, jobs.chunk),
        size=column([len(job.frames) for job in ready], jobs.size),
        deadline=deadline,
        execution=execution,
        start=finish - execution + now_ns,
        latest=latest_starts(deadline, execution, repeat_from, repeat_ns),
        repeat_from=repeat_from,
        repeat_ns=repeat_ns,
    )


def latest_starts(deadline: _Ints, execution: _Ints, repeat_from: int = 0, repeat_ns: int = 0) -> _Ints:
    """Return the latest start of each row with which it and all that follow keep their deadlines.

    ``lam_i = min(deadline_i, lam_{i+1}) - E_i``, so with C the running sum of E up to and including a row,
    ``lam_i = min over k >= i of (deadline_k - C_k) + C_{i-1}``.

    Rows that repeat: each further copy adds `repeat_ns` to the deadlines and no more than that to C, so the second copy
    holds the tightest of all that are to come.
    """
    if not len(deadline):
        return deadline
    total = np.cumsum(execution)
    slack = deadline - total
    if repeat_ns:
        before = int(total[repeat_from - 1]) if repeat_from else 0
        work = int(total[-1]) - before
        next_copy = int(slack[repeat_from:].min()) + repeat_ns - work
        slack = slack.copy()
        slack[-1] = min(int(slack[-1]), next_copy)
    tightest: _Ints = np.minimum.accumulate(slack[::-1])[::-1]
    return tightest + total - execution
