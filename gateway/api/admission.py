"""From a verdict to its evidence in JSON, and to the error that a refusal is over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.api.answers import CounterOffer, Evidence, FirstMiss
from gateway.core import verdict as core
from gateway.core.types import NS_PER_MS, NS_PER_S, StreamSpec
from gateway.errors import DeadlineInfeasible, FramegateError, NotProfiled, NotSchedulable
from gateway.runtime.results import Registration

#: How the stream that is asked for is called in its own evidence: it has no id yet.
THIS_STREAM = "this"

#: `Verdict.test` of the test whose evidence is a worst case.
SPORADIC = "sporadic"
_BEYOND_SPORADIC = (
    "One window would hold more frames than scheduling.max_horizon_frames allows: shorten the deadline or the jitter,"
    " or raise the limit."
)
_BEYOND_EXACT = (
    "The exact test would have to follow more frames than scheduling.max_horizon_frames allows, or the schedule never"
    " repeats: ask for fewer frames or for a period that has a short common multiple with the others', raise the limit,"
    " or set scheduling.admission_test to auto."
)
_NONE_FOUND = "No single change of rate, deadline or shape was found that would be admitted."
_HALF = "A frame may wait half its deadline for its window to end; its job has to be done in the other half."

#: Streams named in one sentence; the evidence has them all.
_NAMED = 5

#: Stream id -> name, empty if it has none.
Names = Callable[[str], str]


def evidence(answer: Registration, names: Names) -> Evidence:
    """Return what the test found."""
    verdict = answer.verdict
    return Evidence(
        test=verdict.test,
        phase=verdict.phase,
        reason=None if verdict.reason is None else verdict.reason.value,
        utilization=verdict.utilization,
        horizon_ms=verdict.horizon_ns / NS_PER_MS,
        frames_checked=verdict.frames_checked,
        worst_latency_ms=predicted_worst_ms(verdict),
        first_miss=None if verdict.first_miss is None else _first_miss(verdict.first_miss, answer, names),
    )


def predicted_worst_ms(verdict: core.Verdict) -> float | None:
    """Return the largest latency that the test foresees for the stream; None if it does not say."""
    return None if verdict.worst_latency_ns is None else verdict.worst_latency_ns / NS_PER_MS


def _first_miss(miss: core.FirstMiss, answer: Registration, names: Names) -> FirstMiss:
    asked = answer.candidate
    return FirstMiss(
        model=miss.category.model,
        version=miss.category.version,
        shape=miss.category.shape,
        dtype=miss.category.dtype,
        streams=[THIS_STREAM if stream_id == asked else stream_id for stream_id in miss.streams],
        names=[answer.spec.name if stream_id == asked else names(stream_id) for stream_id in miss.streams],
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


def refusal(
    found: Evidence, offers: Sequence[CounterOffer], spec: StreamSpec, *, searched: bool = False
) -> FramegateError:
    """Return the error for a stream that was refused; `searched`: the search for `offers` ran to its end."""
    classes: dict[str | None, type[FramegateError]] = {
        core.Reason.NOT_PROFILED: NotProfiled,
        core.Reason.DEADLINE_INFEASIBLE: DeadlineInfeasible,
    }
    return classes.get(found.reason, NotSchedulable)(
        f"{_explain(found, spec)} {_NONE_FOUND}" if searched and not offers else _explain(found, spec),
        evidence=found.model_dump(),
        counter_offers=[offer.model_dump(exclude_none=True) for offer in offers],
    )


def admission(found: Evidence) -> str:
    """Return in a sentence that a stream fits."""
    if found.test == "none":
        return "It fits: a best-effort stream is promised nothing."
    worst = "" if found.worst_latency_ms is None else f", worst latency {found.worst_latency_ms:.0f} ms"
    return f"It fits; the {found.test} test decided{worst}."


def _explain(found: Evidence, spec: StreamSpec) -> str:
    """Return the refusal in a sentence."""
    what = f"{spec.model} version {spec.version} at {list(spec.shape)} {spec.dtype}"
    if found.reason == core.Reason.NOT_PROFILED:
        return f"The profile has no execution times of {what}; measure them with `framegate profile`."
    if found.reason == core.Reason.DEADLINE_INFEASIBLE:
        return f"One frame of {what} takes longer than the deadline of {spec.deadline_ns / NS_PER_MS:g} ms."
    if found.reason == core.Reason.BEYOND_HORIZON:
        return _BEYOND_SPORADIC if found.test == SPORADIC else _BEYOND_EXACT
    if found.first_miss is None:
        return f"With this stream the device would be asked for {100 * found.utilization:.0f} % of its time."
    if found.test == SPORADIC:
        return _explain_worst_case(found.first_miss, spec)
    return _explain_miss(found.first_miss, spec)


def _explain_miss(miss: FirstMiss, spec: StreamSpec) -> str:
    said = (
        f"With this stream, a batch of {miss.frames} of {_named(miss)} would end {miss.late_ms:.1f} ms"
        f" after its deadline, {miss.deadline_ms:.0f} ms from now."
    )
    late_by_half = 2 * (miss.finish_ms - miss.release_ms) > spec.deadline_ns / NS_PER_MS
    alone = list(miss.streams) == [THIS_STREAM]
    waited = THIS_STREAM in miss.streams and _late_by_waiting(miss)
    return f"{said} {_HALF}" if late_by_half and (alone or waited) else said


def _explain_worst_case(miss: FirstMiss, spec: StreamSpec) -> str:
    said = (
        f"With this stream, in the worst case of arrivals that the contracts allow, frames of {_named(miss)} would be"
        f" answered {miss.late_ms:.1f} ms after their deadline: all that has to be done by then, and one batch that may"
        f" be in the way, takes {miss.finish_ms:.1f} ms, and there are {miss.deadline_ms:.1f} ms for it."
    )
    # The figure itself is a riddle where it is below the deadline that was asked for.
    riddle = THIS_STREAM in miss.streams and miss.deadline_ms < spec.deadline_ns / NS_PER_MS
    return f"{said} {_HALF}" if riddle or _late_by_waiting(miss) else said


def _late_by_waiting(miss: FirstMiss) -> bool:
    """Whether the job would be in time if its frames did not wait for their window; that is what is left of it."""
    return miss.late_ms <= miss.deadline_ms - miss.release_ms


def _named(miss: FirstMiss) -> str:
    names = [name or _called(stream_id) for stream_id, name in zip(miss.streams, miss.names, strict=True)]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _called(stream_id: str) -> str:
    return "this stream" if stream_id == THIS_STREAM else stream_id
