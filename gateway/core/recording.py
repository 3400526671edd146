"""Two records of an engine: for people (`EngineView`) and for the admission test (`AdmissionState`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gateway.core.adaptation import Adaptation
from gateway.core.batch import Batch, Standing
from gateway.core.batcher import Batcher
from gateway.core.books import Ledger, Stream
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.plan_state import AdmissionState, MemoryState, StreamPhase, WindowState
from gateway.core.profile import Profile
from gateway.core.schedulability import utilization
from gateway.core.types import Category, Frame, Job, OnLate
from gateway.core.verdict import Verdict
from gateway.core.view import CategoryView, EngineView, MemoryView, ModelTotals, ModelView, StreamView
from gateway.core.waiting import Waiting

_NO_MEMORY = MemoryView()


def record_view(
    ledger: Ledger,
    waiting: Waiting,
    device: Device,
    adaptation: Adaptation,
    *,
    state: AdmissionState,
    now_ns: int,
    residency: tuple[ModelView, ...] = (),
    memory: MemoryView = _NO_MEMORY,
    limited: tuple[Category, ...] = (),
    broken: Verdict | None = None,
    with_streams: bool = True,
) -> EngineView:
    """Return the engine as of its last event, `now_ns`; `state` gives its utilisation, the rest see `EngineView`."""
    streams = ledger.streams.values() if with_streams else ()
    return EngineView(
        now_ns=now_ns,
        streams=tuple(_stream_view(stream, now_ns) for stream in streams),
        categories=tuple(_category_view(batcher, ledger, adaptation, now_ns) for batcher in waiting.batchers.values()),
        ready=tuple(batch.job() for queue in waiting.queues for batch in queue),
        running=device.running,
        running_since_ns=None if device.running is None else device.since_ns,
        sent_ahead=device.next,
        worker_lost=device.lost,
        utilization=utilization(state),
        models={
            model: ModelTotals(
                accepted=books.accepted,
                outcomes=dict(books.outcomes),
                in_flight=books.accepted - sum(books.outcomes.values()),
            )
            for model, books in ledger.models.items()
        },
        refused=dict(ledger.refused),
        limited=limited,
        by_class={each: dict(outcomes) for each, outcomes in ledger.by_class.items()},
        broken=broken,
        residency=residency,
        memory=memory,
    )


def _stream_view(stream: Stream, now_ns: int) -> StreamView:
    return StreamView(
        stream_id=stream.id,
        spec=stream.spec,
        category=stream.batcher.category,
        state="closing" if stream.refusal else "active",
        admitted_ns=stream.admitted_ns,
        accepted=stream.accepted,
        outcomes=dict(stream.outcomes),
        in_flight=len(stream.frames),
        suspect=stream.suspect,
        demoted=stream.demoted,
        refused=dict(stream.refused),
        next_expected_ns=stream.next_expected_ns(now_ns),
    )


def _category_view(batcher: Batcher, ledger: Ledger, adaptation: Adaptation, now_ns: int) -> CategoryView:
    small = adaptation.small(batcher.category)
    return CategoryView(
        category=batcher.category,
        window_ns=batcher.window_ns,
        next_joint_ns=batcher.next_joint_ns(now_ns),
        waiting=sum(len(batch.frames) for batch in (*batcher.batches, *batcher.spare)),
        streams=tuple(stream.id for stream in ledger.streams.values() if stream.batcher is batcher),
        penalty_ns=adaptation.penalty_ns(batcher.category),
        small_shape=None if small is None else small.shape,
    )


def record_state(
    ledger: Ledger,
    waiting: Waiting,
    device: Device,
    *,
    profile: Profile,
    config: EngineConfig,
    now_ns: int,
    generation: int = 0,
    started: int = 0,
    memory: MemoryState | None = None,
) -> AdmissionState:
    """Return what an admission test at `now_ns` starts from.

    Windows due by then count as closed and frames late by then as dropped, as `Engine.handle` would have it. Frames
    without a promise are left out: nothing is owed to them.
    """
    batchers = [b for b in waiting.batchers.values() if b.standing is Standing.PROMISED]
    ready = [_promised_job(batch, _live(batch, now_ns)) for batch in waiting.ready]
    ready += [job for batcher in batchers for job in _due_jobs(batcher, now_ns)]
    ready = [job for job in ready if job.frames or job.warm_up]
    ready.sort(key=lambda j: (j.deadline_ns, j.release_ns, j.id))
    free_ns = device.free_ns(now_ns)
    rigid = () if memory is None else {s.batcher for s in ledger.streams.values() if not s.spec.swapping}
    planned_ns: tuple[int, ...] = ()
    if waiting.guard is not None:
        starts = waiting.guard.planned_starts(now_ns, free_ns, len(ready))
        planned_ns = tuple(starts.get(job.id, now_ns) for job in ready)
    return AdmissionState(
        now_ns=now_ns,
        free_ns=free_ns,
        ready=tuple(ready),
        windows=tuple(_window_state(batcher, now_ns, swapping=batcher not in rigid) for batcher in batchers),
        streams=tuple(_phases(ledger, now_ns)),
        profile=profile,
        config=config,
        worker=device.worker,
        planned_ns=planned_ns,
        best_effort=_best_effort(ledger),
        generation=generation,
        started=started,
        memory=memory,
    )


def _best_effort(ledger: Ledger) -> tuple[Category, ...]:
    """Categories of best-effort frames of which one may hold up promised work; internal streams get what is left."""
    batchers = [b for stream in ledger.streams.values() if not stream.spec.internal for b in stream.batchers]
    return tuple(dict.fromkeys(b.category for b in batchers if b.standing is Standing.BEST_EFFORT))


def _live(batch: Batch, now_ns: int) -> tuple[Frame, ...]:
    """The frames of a waiting batch that are not about to expire, with the deadlines that were promised to them.

    A frame that came earlier than its contract says may be due before its slot: that was not promised.
    """
    frames = [f for f in batch.frames if f.deadline_ns > now_ns or f.on_late is OnLate.SERVE]
    if batch.slot is not None:
        promised_ns = batch.slot.deadline_ns
        frames = [replace(f, deadline_ns=promised_ns) if f.deadline_ns < promised_ns else f for f in frames]
    return tuple(frames)


def _promised_job(batch: Batch, frames: tuple[Frame, ...]) -> Job:
    job = batch.job(frames)
    if batch.slot is None or batch.slot.deadline_ns <= job.deadline_ns:
        return job
    return replace(job, deadline_ns=batch.slot.deadline_ns)


def _due_jobs(batcher: Batcher, now_ns: int) -> Iterator[Job]:
    """What a window would release whose joint has come but which no event has closed yet."""
    if batcher.joint_ns <= now_ns and batcher.batches:
        shared_ns = batcher.deadline_ns()
        for batch in batcher.batches:
            frames = _live(batch, now_ns)
            deadline_ns = shared_ns if batch.slot is None else max(shared_ns, batch.slot.deadline_ns)
            execution_ns = batcher.table[len(frames)]
            yield Job(batch.id, batch.category, frames, batcher.joint_ns, deadline_ns, execution_ns)


def _window_state(batcher: Batcher, now_ns: int, *, swapping: bool) -> WindowState:
    due = batcher.joint_ns <= now_ns
    return WindowState(
        category=batcher.category,
        window_ns=batcher.window_ns,
        narrowest_ns=batcher.window_ns if due else batcher.narrowest_ns,
        joint_ns=batcher.next_joint_ns(now_ns),
        waiting=() if due else tuple(frames for batch in batcher.batches if (frames := _live(batch, now_ns))),
        widest_ns=batcher.widest_ns,
        swapping=swapping,
    )


def _phases(ledger: Ledger, now_ns: int) -> Iterator[StreamPhase]:
    for stream in ledger.streams.values():
        if stream.batcher.standing is Standing.PROMISED:
            phase = stream.phase(now_ns)
            if phase is not None:
                yield phase
