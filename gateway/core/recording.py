"""Two records of an engine: for people (`EngineView`) and for the admission test (`AdmissionState`)."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.core.batch import Batch
from gateway.core.batcher import Batcher
from gateway.core.books import Ledger, Stream
from gateway.core.config import EngineConfig
from gateway.core.device import Device
from gateway.core.plan_state import AdmissionState, StreamPhase, WindowState
from gateway.core.profile import Profile
from gateway.core.schedulability import utilization
from gateway.core.types import Frame, Job, OnLate
from gateway.core.view import CategoryView, EngineView, ModelTotals, StreamView
from gateway.core.waiting import Waiting


def record_view(ledger: Ledger, waiting: Waiting, device: Device, *, state: AdmissionState, now_ns: int) -> EngineView:
    """Return the engine as of its last event, `now_ns`; `state` gives its utilisation."""
    return EngineView(
        now_ns=now_ns,
        streams=tuple(_stream_view(stream, now_ns) for stream in ledger.streams.values()),
        categories=tuple(_category_view(batcher, ledger, now_ns) for batcher in waiting.batchers.values()),
        ready=tuple(batch.job() for batch in waiting.ready),
        running=device.running,
        running_since_ns=None if device.running is None else device.since_ns,
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
        next_expected_ns=stream.next_expected_ns(now_ns),
    )


def _category_view(batcher: Batcher, ledger: Ledger, now_ns: int) -> CategoryView:
    return CategoryView(
        category=batcher.category,
        window_ns=batcher.window_ns,
        next_joint_ns=batcher.next_joint_ns(now_ns),
        waiting=sum(len(batch.frames) for batch in batcher.batches),
        streams=tuple(stream.id for stream in ledger.streams.values() if stream.batcher is batcher),
    )


def record_state(
    ledger: Ledger, waiting: Waiting, device: Device, *, profile: Profile, config: EngineConfig, now_ns: int
) -> AdmissionState:
    """Return what an admission test at `now_ns` starts from.

    Windows due by then count as closed and frames late by then as dropped, as `Engine.handle` would have it.
    """
    batchers = waiting.batchers.values()
    ready = [batch.job(_live(batch, now_ns)) for batch in waiting.ready]
    ready += [job for batcher in batchers for job in _due_jobs(batcher, now_ns)]
    return AdmissionState(
        now_ns=now_ns,
        free_ns=device.free_ns(now_ns),
        ready=tuple(sorted((job for job in ready if job.frames), key=lambda j: (j.deadline_ns, j.release_ns, j.id))),
        windows=tuple(_window_state(batcher, now_ns) for batcher in batchers),
        streams=tuple(_phases(ledger, now_ns)),
        profile=profile,
        config=config,
        worker=device.worker,
    )


def _live(batch: Batch, now_ns: int) -> tuple[Frame, ...]:
    """The frames of a waiting batch that are not about to expire."""
    return tuple(f for f in batch.frames if f.deadline_ns > now_ns or f.on_late is not OnLate.DROP)


def _due_jobs(batcher: Batcher, now_ns: int) -> Iterator[Job]:
    """What a window would release whose joint has come but which no event has closed yet."""
    if batcher.joint_ns <= now_ns and batcher.batches:
        deadline_ns = batcher.deadline_ns()
        for batch in batcher.batches:
            frames = _live(batch, now_ns)
            execution_ns = batcher.table[len(frames)]
            yield Job(batch.id, batch.category, frames, batcher.joint_ns, deadline_ns, execution_ns)


def _window_state(batcher: Batcher, now_ns: int) -> WindowState:
    due = batcher.joint_ns <= now_ns
    return WindowState(
        category=batcher.category,
        window_ns=batcher.window_ns,
        narrowest_ns=batcher.window_ns if due else batcher.narrowest_ns,
        joint_ns=batcher.next_joint_ns(now_ns),
        waiting=() if due else tuple(frames for batch in batcher.batches if (frames := _live(batch, now_ns))),
    )


def _phases(ledger: Ledger, now_ns: int) -> Iterator[StreamPhase]:
    for stream in ledger.streams.values():
        next_ns = stream.next_expected_ns(now_ns)
        if next_ns is not None:
            yield StreamPhase(
                stream_id=stream.id,
                category=stream.batcher.category,
                period_ns=stream.spec.period_ns,
                deadline_ns=stream.spec.deadline_ns,
                next_ns=next_ns,
                remaining=stream.remaining,
            )
