"""What the engine shows of itself: frozen, for displays, metrics and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.core.types import Category, Job, ModelState, Outcome, ServiceClass, StreamSpec
from gateway.core.verdict import Verdict


@dataclass(frozen=True, slots=True)
class StreamView:
    """One admitted stream.

    Attributes:
        stream_id, spec, category: As admitted.
        state: ``active``, or ``closing`` when it takes no further frame (closed, or all have come).
        admitted_ns: When.
        accepted: Frames taken; equal to the sum of `outcomes` plus `in_flight`.
        outcomes: How many frames ended in each way.
        in_flight: Frames that have not ended.
        demoted: Frames of `accepted` beyond the contract, served as best effort.
        refused: Frames that were not taken, by reason.
        next_expected_ns: When its next frame should come; None when it takes no more.
        suspect: Whether its frames go alone, because of frames that were refused.
    """

    stream_id: str
    spec: StreamSpec
    category: Category
    state: str
    admitted_ns: int
    accepted: int
    outcomes: Mapping[Outcome, int]
    in_flight: int
    demoted: int
    refused: Mapping[str, int]
    next_expected_ns: int | None
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class CategoryView:
    """One category: its W, the end of its current window, frames waiting in it, and stream ids.

    Attributes:
        penalty_ns: What it has to pay back; see `gateway.core.adaptation`.
        small_shape: What its jobs are scaled down to meanwhile, where that saves time; None: they run as they are.
    """

    category: Category
    window_ns: int
    next_joint_ns: int
    waiting: int
    streams: tuple[str, ...]
    penalty_ns: int = 0
    small_shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ModelTotals:
    """Frames of one model since the engine began: accepted == sum of outcomes + in flight."""

    accepted: int
    outcomes: Mapping[Outcome, int]
    in_flight: int


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model that the engine has heard of.

    Attributes:
        model: Its name.
        state: Where it stands.
        reason: Why, where that is worth saying.
        held: What it holds of the budget, in its unit; 0 for one that is absent, or has failed and is not still
            being loaded by the worker.
        size: What it would hold; None: not known.
        pins: Why it has to stay: stream (real-time streams are admitted), command, hold; empty: it may go.
        region: Whether it takes turns with others in the swap region.
        barred: Whether it was unloaded by command, so that only one loads it again.
        waiting: Frames that wait for it.
        last_use_ns: When a job of it last ended; None: never.
        next_use_ns: When its next frame is expected; now for one that waits; None: not known.
        retry_ns: When it may be tried again after a failure.
    """

    model: str
    state: ModelState
    reason: str = ""
    held: int = 0
    size: int | None = None
    pins: tuple[str, ...] = ()
    region: bool = False
    barred: bool = False
    waiting: int = 0
    last_use_ns: int | None = None
    next_use_ns: int | None = None
    retry_ns: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryView:
    """The memory budget. Figures are in `unit`: ``bytes`` or ``models``.

    Attributes:
        budget: None: there is none.
        headroom: What may be held beyond it while models unload.
        held: By models, and by the swap region.
        region: Set aside for models that take turns.
        lost: What the worker holds beyond all that is known to be in it.
    """

    unit: str = "bytes"
    budget: int | None = None
    headroom: int = 0
    held: int = 0
    region: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class EngineView:
    """The whole engine at one instant.

    Attributes:
        now_ns: Of the last event handled.
        streams: In order of admission.
        categories: In order of their first stream's admission.
        ready: Past their joint: promised work in EDF order, then real-time frames that no plan has a place for, then
            best effort by age.
        running: What the device does.
        running_since_ns: When it started; None when the device is idle.
        worker_lost: Whether the worker cannot be reached.
        utilization: Phase 1's lower bound of the device's long-run use by the unbounded streams.
        models: Totals by model; a model that once had a stream stays.
        refused: Frames that were not accepted, by reason.
        limited: Categories whose batches were refused, so that their jobs hold one frame; real-time ones stand for both
            classes.
        by_class: How frames ended, by what was promised to them: demoted ones are best effort.
        broken: What the test said when promises could not be kept any more; None while they hold.
        residency: Models, in order of name; without a budget only those that something was said of.
        memory: The budget.
        sent_ahead: What the device does then; it was sent already.
    """

    now_ns: int
    streams: tuple[StreamView, ...]
    categories: tuple[CategoryView, ...]
    ready: tuple[Job, ...]
    running: Job | None
    running_since_ns: int | None
    worker_lost: bool
    utilization: float
    models: Mapping[str, ModelTotals]
    refused: Mapping[str, int]
    limited: tuple[Category, ...] = ()
    by_class: Mapping[ServiceClass, Mapping[Outcome, int]] = field(default_factory=dict)
    broken: Verdict | None = None
    residency: tuple[ModelView, ...] = ()
    memory: MemoryView = MemoryView()
    sent_ahead: Job | None = None
