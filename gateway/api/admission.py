"""From a verdict to its evidence in JSON, and to the error that a refusal is over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.api import memory_evidence
from gateway.api.answers import CounterOffer, Evidence, FirstMiss
from gateway.core import verdict as core
from gateway.core.offers import WIDEST
from gateway.core.profile import Profile
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
_NONE_FOUND = (
    "No single change of rate, deadline or shape was found that would be admitted"
    f" (periods and deadlines up to {WIDEST} times as long were tried)."
)
#: A slower rate, a longer deadline or a smaller shape changes nothing about these.
_WHATEVER_THE_RATE = frozenset({core.Reason.NOT_PROFILED, core.Reason.MEMORY})
#: Why a deadline that is longer than the work can still be too short.
HALF = "A frame may wait half its deadline for its window to end; its job has to be done in the other half."

#: Profiled shapes, or models, listed in one sentence; `GET /v1/profile` has them all.
_LISTED = 12
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
        memory=memory_evidence.memory(verdict.memory),
        swap=memory_evidence.swap(verdict.swap),
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
    if offer.field == "swapping":
        return CounterOffer(field="swapping", value=True)
    value_ms = offer.value / NS_PER_MS
    if offer.field == "period_ns":
        return CounterOffer(field="period_ms", value=value_ms, fps=round(NS_PER_S / offer.value, 6))
    return CounterOffer(field="deadline_ms", value=value_ms)


def refusal(
    found: Evidence,
    offers: Sequence[CounterOffer],
    spec: StreamSpec,
    *,
    searched: bool = False,
    profile: Profile | None = None,
) -> FramegateError:
    """Return the error for a stream that was refused.

    Args:
        found: Why.
        offers: What would be admitted instead; the text leads with it.
        spec: What was asked for.
        searched: Whether the search for `offers` ran to its end.
        profile: What the test planned with, so that the text can say what is profiled, or how long a frame takes.
    """
    classes: dict[str | None, type[FramegateError]] = {
        core.Reason.NOT_PROFILED: NotProfiled,
        core.Reason.DEADLINE_INFEASIBLE: DeadlineInfeasible,
    }
    none_found = searched and not offers and found.reason not in _WHATEVER_THE_RATE
    return classes.get(found.reason, NotSchedulable)(
        " ".join([*_instead(offers), _explain(found, spec, profile), *[_NONE_FOUND] * none_found]),
        evidence=found.model_dump(),
        counter_offers=[offer.model_dump(exclude_none=True) for offer in offers],
    )


def admission(found: Evidence) -> str:
    """Return in a sentence that a stream fits."""
    if found.test == "none":
        return "It fits: a best-effort stream is promised nothing."
    worst = "" if found.worst_latency_ms is None else f", worst latency {found.worst_latency_ms:.0f} ms"
    return f"It fits; the {found.test} test decided{worst}."


def _instead(offers: Sequence[CounterOffer]) -> list[str]:
    """Return in a sentence what could be asked for instead, deadlines first; none if nothing is offered."""
    fields = []
    for offer in sorted(offers, key=lambda offer: offer.field != "deadline_ms"):
        value = said(offer.value)
        fields.append(f"{offer.field} {value}" + (f" ({offer.fps:.2f} fps)" if offer.fps is not None else ""))
    return [f"It would be admitted with {', or '.join(fields)}."] if fields else []


def said(value: bool | float | tuple[int, ...]) -> str:
    """Return the value of an offer for people."""
    if isinstance(value, tuple):
        return str(list(value))
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def _explain(found: Evidence, spec: StreamSpec, profile: Profile | None) -> str:
    """Return the refusal in a sentence."""
    what = f"{spec.model} version {spec.version} at {list(spec.shape)} {spec.dtype}"
    if found.reason == core.Reason.NOT_PROFILED:
        known = "" if profile is None else f" {_profiled(profile, spec)}"
        return f"The profile has no execution times of {what}; measure them with `framegate profile`.{known}"
    if found.reason == core.Reason.DEADLINE_INFEASIBLE:
        return _explain_infeasible(what, spec, profile)
    if found.reason in (core.Reason.MEMORY, core.Reason.SWAP):
        return memory_evidence.explain(found, spec)
    if found.reason == core.Reason.BEYOND_HORIZON:
        return _BEYOND_SPORADIC if found.test == SPORADIC else _BEYOND_EXACT
    if found.first_miss is None:
        return _explain_share(found, spec)
    return (_explain_worst_case if found.test == SPORADIC else _explain_miss)(found.first_miss, spec)


def _explain_share(found: Evidence, spec: StreamSpec) -> str:
    share = f"{100 * found.utilization:.1f} % of its time"
    if found.phase == 1:
        return f"With this {_noun(spec)} the device would be asked for at least {share}."
    return (
        f"With this {_noun(spec)} the device could be asked for {share} in the worst case, when frames come as late or"
        " as close together as the contracts allow; on average it is less."
    )


def _explain_infeasible(what: str, spec: StreamSpec, profile: Profile | None) -> str:
    deadline_ms = spec.deadline_ns / NS_PER_MS
    category = spec.category()
    if profile is None or not profile.has(category):
        return f"One frame of {what} takes longer than the deadline of {deadline_ms:g} ms."
    frame_ms = profile.execution_ns(category, 1) / NS_PER_MS
    return (
        f"One frame of {what} takes {frame_ms:.1f} ms by the profile, longer than the deadline of {deadline_ms:g} ms."
        f" It has to be at least twice that, {2 * frame_ms:.1f} ms, and more beside other work. {HALF}"
    )


def _profiled(profile: Profile, spec: StreamSpec) -> str:
    """Return in a sentence what of the model is profiled; of no shape of it, which models are."""
    entries = [(e.version, e.shape, e.dtype) for e in profile.entries if e.model == spec.model]
    mine = [f"{list(shape)} {dtype} (version {version})" for version, shape, dtype in dict.fromkeys(entries)]
    known = mine or list(dict.fromkeys(entry.model for entry in profile.entries))
    if not known:
        return "The profile is empty."
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"Profiled {'shapes of it' if mine else 'models'}: {', '.join(known[:_LISTED])}{more}."


def _explain_miss(miss: FirstMiss, spec: StreamSpec) -> str:
    said = (
        f"With this {_noun(spec)}, a batch of {miss.frames} of {_named(miss, spec)} would end {miss.late_ms:.1f} ms"
        f" after its deadline, {miss.deadline_ms:.0f} ms from now."
    )
    late_by_half = 2 * (miss.finish_ms - miss.release_ms) > spec.deadline_ns / NS_PER_MS
    alone = list(miss.streams) == [THIS_STREAM]
    waited = THIS_STREAM in miss.streams and _late_by_waiting(miss)
    return f"{said} {HALF}" if late_by_half and (alone or waited) else said


def _explain_worst_case(miss: FirstMiss, spec: StreamSpec) -> str:
    said = (
        f"With this {_noun(spec)}, if cameras send at the worst moments that they may, frames of"
        f" {_named(miss, spec)} would be answered {miss.late_ms:.1f} ms after their deadline: all that has to be done"
        f" by then, and one batch that may be in the way, takes {miss.finish_ms:.1f} ms,"
        f" and there are {miss.deadline_ms:.1f} ms for it."
    )
    # The figure itself is a riddle where it is below the deadline that was asked for.
    riddle = THIS_STREAM in miss.streams and miss.deadline_ms < spec.deadline_ns / NS_PER_MS
    return f"{said} {HALF}" if riddle or _late_by_waiting(miss) else said


def _late_by_waiting(miss: FirstMiss) -> bool:
    """Whether the job would be in time if its frames did not wait for their window; that is what is left of it."""
    return miss.late_ms <= miss.deadline_ms - miss.release_ms


def _noun(spec: StreamSpec) -> str:
    return "call" if spec.internal else "stream"


def _named(miss: FirstMiss, spec: StreamSpec) -> str:
    own = f"this {_noun(spec)}"
    named = zip(miss.streams, miss.names, strict=True)
    # A call has no name of its own.
    names = [own if id_ == THIS_STREAM and (spec.internal or not name) else name or id_ for id_, name in named]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
