"""From a verdict to its evidence in JSON, and to the error that a refusal is over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.api.schemas import CounterOffer, Evidence, FirstMiss
from gateway.core import verdict as core
from gateway.core.types import NS_PER_MS, NS_PER_S, StreamSpec
from gateway.errors import DeadlineInfeasible, FramegateError, NotProfiled, NotSchedulable

#: How the stream that is asked for is called in its own evidence: it has no id yet.
THIS_STREAM = "this"

#: Stream id -> name; None if there is no such stream.
Names = Callable[[str], str | None]


def evidence(verdict: core.Verdict, spec: StreamSpec, names: Names) -> Evidence:
    """Return what the test found about `spec`."""
    return Evidence(
        test=verdict.test,
        phase=verdict.phase,
        reason=None if verdict.reason is None else verdict.reason.value,
        utilization=verdict.utilization,
        horizon_ms=verdict.horizon_ns / NS_PER_MS,
        frames_checked=verdict.frames_checked,
        worst_latency_ms=None if verdict.worst_latency_ns is None else verdict.worst_latency_ns / NS_PER_MS,
        first_miss=None if verdict.first_miss is None else _first_miss(verdict.first_miss, spec, names),
    )


def _first_miss(miss: core.FirstMiss, spec: StreamSpec, names: Names) -> FirstMiss:
    known = [(stream_id, names(stream_id)) for stream_id in miss.streams]
    return FirstMiss(
        model=miss.category.model,
        version=miss.category.version,
        shape=miss.category.shape,
        dtype=miss.category.dtype,
        streams=[THIS_STREAM if name is None else stream_id for stream_id, name in known],
        names=[spec.name if name is None else name for _, name in known],
        frames=miss.frames,
        release_ms=miss.release_ns / NS_PER_MS,
        deadline_ms=miss.deadline_ns / NS_PER_MS,
        finish_ms=miss.finish_ns / NS_PER_MS,
        late_ms=miss.late_ns / NS_PER_MS,
    )


def counter_offers(offers: Sequence[core.CounterOffer]) -> list[CounterOffer]:
    """Return `offers` in the units of HTTP."""
    return [_counter_offer(offer) for offer in offers]


def _counter_offer(offer: core.CounterOffer) -> CounterOffer:
    if isinstance(offer.value, tuple):
        return CounterOffer(field="shape", value=offer.value)
    value_ms = offer.value / NS_PER_MS
    if offer.field == "period_ns":
        return CounterOffer(field="period_ms", value=value_ms, fps=round(NS_PER_S / offer.value, 6))
    return CounterOffer(field="deadline_ms", value=value_ms)


def refusal(found: Evidence, offers: Sequence[CounterOffer], spec: StreamSpec) -> FramegateError:
    """Return the error for a stream that was refused."""
    classes: dict[str | None, type[FramegateError]] = {
        core.Reason.NOT_PROFILED: NotProfiled,
        core.Reason.DEADLINE_INFEASIBLE: DeadlineInfeasible,
    }
    return classes.get(found.reason, NotSchedulable)(
        _explain(found, spec),
        evidence=found.model_dump(),
        counter_offers=[offer.model_dump(exclude_none=True) for offer in offers],
    )


def _explain(found: Evidence, spec: StreamSpec) -> str:
    """Return the refusal in a sentence."""
    what = f"{spec.model} version {spec.version} at {list(spec.shape)} {spec.dtype}"
    if found.reason == core.Reason.NOT_PROFILED:
        return f"The profile has no execution times of {what}; measure them with `framegate profile`."
    if found.reason == core.Reason.DEADLINE_INFEASIBLE:
        return f"One frame of {what} takes longer than the deadline of {spec.deadline_ns / NS_PER_MS:g} ms."
    if found.reason == core.Reason.BEYOND_HORIZON:
        return (
            f"The test looks at {found.frames_checked} frames, {found.horizon_ms:.0f} ms ahead, and some stream's first"
            " window ends after that: shorten its deadline or start, or raise scheduling.max_horizon_frames."
        )
    if found.first_miss is None:
        return f"With this stream the device would be asked for {100 * found.utilization:.0f} % of its time."
    miss = found.first_miss
    others = [name or _called(stream_id) for stream_id, name in zip(miss.streams, miss.names, strict=True)]
    said = (
        f"With this stream, a batch of {miss.frames} of {', '.join(others)} would end {miss.late_ms:.1f} ms"
        f" after its deadline, {miss.deadline_ms:.0f} ms from now."
    )
    if list(miss.streams) == [THIS_STREAM] and 2 * (miss.finish_ms - miss.release_ms) > spec.deadline_ns / NS_PER_MS:
        said += " A frame may wait half its deadline for its window to end; its job has to be done in the other half."
    return said


def _called(stream_id: str) -> str:
    return "this stream" if stream_id == THIS_STREAM else stream_id
