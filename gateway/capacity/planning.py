"""Would these cameras be admitted? The answers of the gateway's own engine, on virtual time.

The streams of a plan register with an engine that knows nothing but the profile; those admitted run on the simulator
until the last one is answered, so what a gateway would say is what is said here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gateway.api.admission import evidence
from gateway.api.answers import Evidence
from gateway.capacity.plan_file import PlanFileError, PlanItem
from gateway.core.actions import LoadModel, UnloadModel
from gateway.core.admission import counter_offers
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import HoldModel, ReleaseModel
from gateway.core.profile import ModelEntry, Profile
from gateway.core.types import ServiceClass, StreamSpec
from gateway.core.verdict import CounterOffer, Reason, Verdict
from gateway.runtime.results import Registration
from gateway.sim.driver import Simulation
from gateway.sim.events import TraceEvents
from gateway.sim.loads import Course
from gateway.sim.trace import TraceEntry

#: No accelerator serves more cameras of one kind; the search for "as many as are admitted" ends there.
MOST_COPIES = 2_000


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """What one stream of a plan was told.

    Attributes:
        item: Place of its item in the plan.
        name: Of the stream; copies of an item are numbered.
        spec: What it asked for; version resolved.
        at_ns: When.
        verdict: The answer.
        evidence: The same in the form of the HTTP interface, other streams by their names.
        offers: What would be admitted instead.
        searched: Whether that was searched.
    """

    item: int
    name: str
    spec: StreamSpec
    at_ns: int
    verdict: Verdict
    evidence: Evidence
    offers: tuple[CounterOffer, ...] = ()
    searched: bool = False


@dataclass(frozen=True, slots=True)
class HowMany:
    """How many streams of an item were admitted until one was refused.

    Attributes:
        name: Of the item.
        fits: How many.
        refusal: What the next one was told; None if `MOST_COPIES` fit.
    """

    name: str
    fits: int
    refusal: StreamAnswer | None


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """What a plan comes to on one profile: its streams in the order of the file, and its items with ``count: max``."""

    streams: tuple[StreamAnswer, ...]
    how_many: tuple[HowMany, ...]

    @property
    def admitted(self) -> list[StreamAnswer]:
        """Return those that fit."""
        return [stream for stream in self.streams if stream.verdict.admitted]

    @property
    def rejected(self) -> list[StreamAnswer]:
        """Return those that do not fit."""
        return [stream for stream in self.streams if not stream.verdict.admitted]

    @property
    def suffices(self) -> bool:
        """Whether nothing was refused, and at least one of each kind of which as many as possible were wanted fits."""
        return not self.rejected and all(kind.fits for kind in self.how_many)


def asking_how_many(items: Sequence[PlanItem], name: str) -> tuple[PlanItem, ...]:
    """Return the plan with the item called `name` at its end, as many of it as are admitted.

    Raises:
        PlanFileError: There is not exactly one item of that name.
    """
    found = [item for item in items if item.name == name]
    if len(found) != 1:
        known = ", ".join(dict.fromkeys(item.name for item in items))
        raise PlanFileError(f"{len(found) or 'no'} streams of the plan are called {name!r}; its names are {known}")
    last_ns = max(item.at_ns for item in items)
    return (*(item for item in items if item is not found[0]), replace(found[0], count=None, at_ns=last_ns))


def scaled(profile: Profile, factor: float) -> Profile:
    """Return the profile of a device that takes `factor` times as long for everything."""
    entries = tuple(
        replace(entry, p50_ms=entry.p50_ms * factor, p99_ms=entry.p99_ms * factor, max_ms=entry.max_ms * factor)
        for entry in profile.entries
    )
    models = tuple(_scaled_model(model, factor) for model in profile.models)
    return profile if factor == 1 else replace(profile, entries=entries, models=models)


def _scaled_model(model: ModelEntry, factor: float) -> ModelEntry:
    def times(ms: float | None) -> float | None:
        return None if ms is None else ms * factor

    return replace(
        model,
        load_ms=model.load_ms * factor,
        unload_ms=model.unload_ms * factor,
        load_max_ms=times(model.load_max_ms),
        unload_max_ms=times(model.unload_max_ms),
        warm_up_ms=times(model.warm_up_ms),
    )


def answer_plan(
    items: Sequence[PlanItem], profile: Profile, config: EngineConfig, *, offers: bool = True
) -> PlanAnswer:
    """Ask for every stream of a plan.

    Args:
        items: The plan.
        profile: Execution times.
        config: Of the engine.
        offers: Search counter-offers for those refused: some 45 admission tests for each kind.

    Cost: an admission test for each stream until one of its item is refused.
    """
    asking = _Asking(profile, config, offers=offers)
    answers: dict[int, list[StreamAnswer]] = {}
    for place, item in sorted(enumerate(items), key=lambda pair: pair[1].at_ns):
        answers[place] = list(asking.ask(place, item))
    streams: list[StreamAnswer] = []
    how_many = []
    for place, item in enumerate(items):
        told = answers[place]
        if item.count is None:
            refusal = None if told[-1].verdict.admitted else told.pop()
            how_many.append(HowMany(item.name, len(told), refusal))
        streams += told
    return PlanAnswer(tuple(streams), tuple(how_many))


def profiled(profile: Profile, spec: StreamSpec) -> list[str]:
    """Return what `profile` knows of the model of `spec`, or of all models if nothing; a line each."""
    batches: dict[tuple[str, str, tuple[int, ...], str], int] = {}
    for entry in profile.entries:
        key = (entry.model, entry.version, entry.shape, entry.dtype)
        batches[key] = max(entry.batch, batches.get(key, 0))
    mine = {key: most for key, most in batches.items() if key[0] == spec.model} or batches
    order = sorted(mine, key=lambda key: (key[0], key[1], math.prod(key[2])))
    return [f"{m}/{v} {list(shape)} {dtype}, batches up to {mine[m, v, shape, dtype]}" for m, v, shape, dtype in order]


class _Asking:
    """One engine and its simulation."""

    def __init__(self, profile: Profile, config: EngineConfig, *, offers: bool) -> None:
        self._profile = profile
        self._offers = offers
        self._run = Simulation(Engine(profile, config), TraceEvents(()), loads=_at_once)
        self._managed = config.residency.managed
        self._names: dict[str, str] = {}

    def ask(self, place: int, item: PlanItem) -> Iterator[StreamAnswer]:
        """Yield the answer of each stream of an item; with `count` None, up to the first refusal."""
        numbered = item.count != 1
        refused: StreamAnswer | None = None
        for number in range(1, (MOST_COPIES if item.count is None else item.count) + 1):
            name = f"{item.name}-{number}" if numbered else item.name
            if refused is not None:  # a refusal changes nothing: the next of its kind is told the same
                yield replace(refused, name=name)
                continue
            answer = self._ask_one(place, replace(item.resolved(self._profile), name=name), item.at_ns)
            yield answer
            if not answer.verdict.admitted:
                refused = answer
                if item.count is None:
                    return

    def _ask_one(self, place: int, spec: StreamSpec, at_ns: int) -> StreamAnswer:
        stream_id = f"plan-{len(self._names) + 1}"
        # As in the live gateway the model is there when its stream registers, if there is room for it.
        held = self._managed and spec.service_class is ServiceClass.REAL_TIME and not spec.swapping
        if held:
            self._run.post(at_ns, HoldModel(spec.model, stream_id))
        verdict = self._run.answer(TraceEntry(stream_id, at_ns, spec))
        if held:
            self._run.post(at_ns, ReleaseModel(spec.model, stream_id))
        offers: tuple[CounterOffer, ...] = ()
        searched = not verdict.admitted and self._offers and verdict.reason is not Reason.NOT_PROFILED
        if searched:
            offers = counter_offers(self._run.engine.admission_state(at_ns), spec)
        asked = Registration(spec, verdict, candidate=stream_id)
        found = evidence(asked, lambda other: self._names.get(other, ""))
        self._names[stream_id] = spec.name
        return StreamAnswer(place, spec.name, spec, at_ns, verdict, found, offers, searched)


def _at_once(_action: LoadModel | UnloadModel, _before: int) -> Course:
    """A plan is about cameras that are there to stay, not about the time until all models are there."""
    return Course(0)


def rejected_kinds(answers: Iterable[StreamAnswer]) -> list[tuple[StreamAnswer, int]]:
    """Return one refused stream for each item, and how many of the item were refused."""
    first: dict[int, StreamAnswer] = {}
    count: dict[int, int] = {}
    for answer in answers:
        if not answer.verdict.admitted:
            first.setdefault(answer.item, answer)
            count[answer.item] = count.get(answer.item, 0) + 1
    return [(answer, count[place]) for place, answer in first.items()]
