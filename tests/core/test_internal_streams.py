"""Streams of calls that belong to no camera: admitted untested, counted by no test, served from what is left over."""

import pytest

from gateway.core.actions import Admitted, DeliverFrames, DropFrames, StartJob
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import FramesArrived, JobFinished, RegisterStream, Tick
from gateway.core.types import Outcome, ServiceClass
from tests.core.factories import MS, make_profile, make_spec

#: One frame of `slow` takes longer than any promise made here could bear.
PROFILE = make_profile(m=[5, 7], slow=[400])
CALLS = {"service_class": ServiceClass.BEST_EFFORT, "internal": True}


def make_engine(**settings):
    return Engine(PROFILE, EngineConfig(**settings))


def register(engine, stream_id, spec, now_ms=0):
    [answer, *_] = engine.handle(RegisterStream(stream_id, spec), now_ms * MS)
    return answer


def of(kind, actions):
    return [action for action in actions if isinstance(action, kind)]


def test_it_is_admitted_without_a_test_and_without_a_profile():
    engine = make_engine()
    assert isinstance(register(engine, "camera", make_spec(20, 40)), Admitted)
    answer = register(engine, "calls", make_spec(deadline=1_000, model="new", assumed_ns=3 * MS, **CALLS))
    assert isinstance(answer, Admitted)
    assert (answer.verdict.test, answer.verdict.phase) == ("none", 0)


def test_its_frames_take_the_time_that_is_assumed():
    engine = make_engine()
    register(engine, "calls", make_spec(deadline=1_000, model="new", assumed_ns=3 * MS, **CALLS))
    [start] = of(StartJob, engine.handle(FramesArrived("calls", 2), 0))
    assert (start.job.execution_ns, len(start.job.frames)) == (3 * MS, 1)
    [_, second] = [*of(DeliverFrames, done := engine.handle(JobFinished(start.job.id), 9 * MS)), *of(StartJob, done)]
    assert len(second.job.frames) == 1


def test_the_profile_is_preferred_to_what_is_assumed():
    engine = make_engine()
    register(engine, "calls", make_spec(deadline=1_000, assumed_ns=3 * MS, **CALLS))
    [start] = of(StartJob, engine.handle(FramesArrived("calls", 2), 0))
    assert start.job.execution_ns == 7 * MS


@pytest.mark.parametrize("model", ["slow", "new"])
def test_no_test_counts_it(model):
    """A best-effort stream of a long job would have cameras refused; the gateway's own does not."""
    engine = make_engine()
    before = engine.check(make_spec(20, 40), 0)
    register(engine, "calls", make_spec(deadline=1_000, model=model, assumed_ns=400 * MS, **CALLS))
    after = engine.check(make_spec(20, 40), 0)
    assert before.admitted
    assert after.admitted
    assert before.worst_latency_ns == after.worst_latency_ns


def test_what_promised_work_cannot_bear_waits_and_expires_with_the_reason():
    engine = make_engine()
    register(engine, "calls", make_spec(deadline=1_000, model="slow", **CALLS))
    assert engine.may_block_ns() is None
    register(engine, "camera", make_spec(20, 40))
    assert 0 < engine.may_block_ns() < 400 * MS
    assert of(StartJob, engine.handle(FramesArrived("calls", 1, 100 * MS), 0)) == []
    [drop] = of(DropFrames, engine.handle(Tick(), 100 * MS))
    assert drop.outcome is Outcome.EXPIRED
    assert "promised work" in drop.reason
