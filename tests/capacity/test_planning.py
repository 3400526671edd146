"""Capacity questions: the answers are those of the engine, and what is used adds up."""

from dataclasses import replace

import pytest

from gateway.capacity.plan_file import PlanFileError, PlanItem
from gateway.capacity.planning import answer_plan, asking_how_many, profiled, rejected_kinds, scaled
from gateway.capacity.shares import promised, shares
from gateway.core.admission import evaluate
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import RegisterStream
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import ServiceClass
from gateway.core.verdict import Reason
from gateway.sim.driver import Simulation
from gateway.sim.events import TraceEvents
from tests.core.factories import MS, SHAPE, make_profile, make_spec, make_trace

CONFIG = EngineConfig()
PROFILE = make_profile(m=[10, 12, 14, 16], n=[30])


def item(name, period=100, deadline=100, count=1, at=0, **fields):
    return PlanItem(name, make_spec(period, deadline, name=name, **fields), count, round(at * MS))


def two_that_do_not_fit():
    """b has half of its 62 ms for its job of 30 ms, with a job of a in the way."""
    return [item("a", 100, 200), item("b", 100, 62, model="n")]


def names(answers):
    return [(answer.name, answer.verdict.admitted) for answer in answers]


class TestAnswers:
    def test_copies_are_numbered_and_the_order_is_that_of_the_file(self):
        answer = answer_plan([item("a", at=5), item("b", count=2), item("c", deadline=5)], PROFILE, CONFIG)
        assert names(answer.streams) == [("a", True), ("b-1", True), ("b-2", True), ("c", False)]
        assert [stream.at_ns for stream in answer.streams] == [5 * MS, 0, 0, 0]
        assert not answer.suffices

    def test_they_are_those_of_an_engine_in_that_order(self):
        items = [item("a", count=6), item("b", 40, 60, count=6, model="n"), item("c", 200, 90, count=3, frames=50)]
        answer = answer_plan(items, PROFILE, CONFIG, offers=False)
        engine = Engine(PROFILE, CONFIG)
        for n, stream in enumerate(answer.streams):
            verdict = engine.check(stream.spec, 0)
            assert stream.verdict.admitted == verdict.admitted
            assert stream.verdict.worst_latency_ns == verdict.worst_latency_ns
            engine.handle(RegisterStream(f"s{n}", stream.spec), 0)
        assert {stream.verdict.admitted for stream in answer.streams} == {True, False}

    def test_a_later_stream_meets_what_runs_then(self):
        """At 0 the device is full; at 1000 the finite streams are over."""
        full = item("full", 100, 100, frames=5, model="n")
        late = [item("early", 100, 60, frames=5, model="n"), item("late", 100, 60, frames=5, at=1000, model="n")]
        answer = answer_plan([full, *late], PROFILE, CONFIG)
        assert names(answer.streams) == [("full", True), ("early", False), ("late", True)]

    def test_offers_are_admitted_by_the_same_test(self):
        answer = answer_plan(two_that_do_not_fit(), PROFILE, CONFIG)
        refused = answer.rejected[0]
        assert refused.offers
        run = Simulation(Engine(PROFILE, CONFIG), TraceEvents(()))
        (first,) = make_trace([(0, answer.streams[0].spec)])
        run.answer(first)
        state = run.engine.admission_state(0)
        for offer in refused.offers:
            assert evaluate(state, replace(refused.spec, **{offer.field: offer.value})).admitted

    def test_others_of_a_refused_kind_are_told_the_same(self):
        answer = answer_plan([item("a", 100, 5, count=4)], PROFILE, CONFIG)
        assert names(answer.streams) == [(f"a-{n}", False) for n in range(1, 5)]
        assert len({id(stream.verdict) for stream in answer.streams}) == 1
        ((first, count),) = rejected_kinds(answer.streams)
        assert (first.name, count) == ("a-1", 4)

    def test_evidence_names_streams_as_the_plan_does(self):
        answer = answer_plan(two_that_do_not_fit(), PROFILE, CONFIG)
        miss = answer.rejected[0].evidence.first_miss
        assert miss is not None
        assert miss.names == ["b"]
        assert miss.streams == ["this"]

    def test_what_is_not_profiled(self):
        answer = answer_plan([item("a", model="x"), item("b", shape=(9, 9, 3))], PROFILE, CONFIG)
        assert [stream.verdict.reason for stream in answer.streams] == [Reason.NOT_PROFILED] * 2
        assert not any(stream.offers for stream in answer.streams)
        of_all = profiled(PROFILE, answer.streams[0].spec)
        assert of_all == ["m/1 [8, 8, 3] UINT8, batches up to 4", "n/1 [8, 8, 3] UINT8, batches up to 1"]
        assert profiled(PROFILE, answer.streams[1].spec) == of_all[:1]


class TestHowMany:
    def test_as_many_as_are_admitted(self):
        answer = answer_plan([item("a", count=None)], PROFILE, CONFIG)
        (kind,) = answer.how_many
        assert kind.fits == len(answer.streams) == len(answer.admitted) > 1
        assert kind.refusal is not None
        assert kind.refusal.name == f"a-{kind.fits + 1}"
        assert answer.suffices
        assert not answer_plan([item("a", count=kind.fits + 1)], PROFILE, CONFIG).suffices
        assert answer_plan([item("a", count=kind.fits)], PROFILE, CONFIG).suffices

    def test_none(self):
        answer = answer_plan([item("a", deadline=5, count=None)], PROFILE, CONFIG)
        assert (answer.how_many[0].fits, answer.streams, answer.suffices) == (0, (), False)

    def test_the_search_is_bounded(self, monkeypatch):
        monkeypatch.setattr("gateway.capacity.planning.MOST_COPIES", 3)
        answer = answer_plan([item("a", 1000, 1000, count=None)], PROFILE, CONFIG)
        assert (answer.how_many[0].fits, answer.how_many[0].refusal) == (3, None)

    def test_the_others_come_first(self):
        items = asking_how_many([item("a", count=3), item("b", at=7)], "a")
        assert [(i.name, i.count, i.at_ns) for i in items] == [("b", 1, 7 * MS), ("a", None, 7 * MS)]

    def test_the_name_has_to_be_one_of_the_plan(self):
        with pytest.raises(PlanFileError, match="no streams of the plan are called 'c'; its names are a, b"):
            asking_how_many([item("a"), item("b")], "c")
        with pytest.raises(PlanFileError, match="2 streams of the plan are called 'a'"):
            asking_how_many([item("a"), item("a")], "a")

    def test_a_slower_device_carries_fewer(self):
        fits = [
            answer_plan([item("a", count=None)], scaled(PROFILE, scale), CONFIG, offers=False).how_many[0].fits
            for scale in (0.5, 1, 2)
        ]
        assert fits == sorted(fits, reverse=True)
        assert fits[0] > fits[2]

    def test_scaling_scales_what_is_planned_with(self):
        thin = Profile((ProfileEntry("m", "1", SHAPE, "UINT8", 1, 50, 10, 11, 12),))
        category = make_spec().category()
        assert scaled(PROFILE, 1.2).execution_ns(category, 1) == 12 * MS
        assert scaled(thin, 2).execution_ns(category, 1) == 2 * thin.execution_ns(category, 1)
        assert scaled(PROFILE, 1) is PROFILE


class TestShares:
    def shares(self, items, profile=PROFILE):
        return shares(answer_plan(items, profile, CONFIG).streams, [i.name for i in items], profile)

    def test_by_hand(self):
        """m: 30 fps at E(4)/4 = 4 ms each is 12 %, a third of it b's; n: 5 fps at 30 ms is 15 %."""
        found = self.shares([item("a", count=2), item("b"), item("c", 200, 400, model="n")])
        assert [(s.name, s.streams, round(s.share, 4)) for s in found] == [
            ("a", 2, 0.08),
            ("b", 1, 0.04),
            ("c", 1, 0.15),
        ]
        assert promised(found) == pytest.approx(0.27)

    def test_those_refused_use_nothing(self):
        assert self.shares([item("a", deadline=5)]) == []

    def test_finite_streams_count_while_they_send(self):
        early, late = item("early", frames=5, model="n"), item("late", frames=5, at=1000, model="n")
        both = self.shares([early, late])
        assert [(s.name, round(s.share, 3)) for s in both] == [("early", 0.3)]
        busiest = self.shares([early, late, item("third", at=1050, frames=9)])
        assert [s.name for s in busiest] == ["late", "third"]

    def test_best_effort_is_not_promised(self):
        found = self.shares([item("a"), item("b", 1000, 2000, service_class=ServiceClass.BEST_EFFORT)])
        assert promised(found) == pytest.approx(0.04)
        assert [s.name for s in found] == ["a", "b"]
