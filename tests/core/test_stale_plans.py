"""A plan of a moment ago, and the jobs that have started since its record (times in ms)."""

import pytest

from gateway.core.actions import Admitted, DeliverFrames, PlanStale, StartJob
from gateway.core.batch import Batch
from gateway.core.course import Course
from gateway.core.device import Device
from gateway.core.edf import ReadyQueue
from gateway.core.events import CloseStream, FramesArrived, RegisterStream
from gateway.core.types import Job, Outcome, ServiceClass
from tests.core.factories import MS, Drive, every, make_category, make_profile, make_spec, names, only

OPAQUE = {"internal": True, "model": "zz", "assumed_ns": 93 * MS}
CAMERA = make_spec(60, 68)


def idle(**fields):
    return make_spec(1000, 1000, **({"service_class": ServiceClass.BEST_EFFORT, "model": "r"} | fields))


def drive(**config):
    return Drive(make_profile(m=[14], r=[12, 24, 36, 48, 60, 72, 84, 96], tiny=[1]), policing=True, **config)


def planned(gate, t, name, spec):
    plan = gate.engine.plan(spec, t * MS, name)
    assert plan.verdict.admitted
    return RegisterStream(name, spec, plan)


def overtaken(spec, camera):
    """Return an engine, a registration whose plan is of 1 ms, and the start of a long job of `spec` at 2 ms."""
    gate = drive()
    gate.register(0, be=spec)
    event = planned(gate, 1, "cam", camera)
    (start, *_) = every(gate.at(2, FramesArrived("be", 8)), StartJob)
    return gate, event, start


def outcomes(actions, name):
    return [
        outcome
        for done in every(actions, DeliverFrames)
        for frame, outcome in zip(done.job.frames, done.outcomes, strict=True)
        if frame.stream_id == name
    ]


@pytest.mark.parametrize("spec", [idle(**OPAQUE), idle()])
@pytest.mark.parametrize("camera", [CAMERA, make_spec(60, 68, frames=5)])
class TestNothingWasPromised:
    """So no best-effort job is too long, until the plan is in force."""

    def test_a_long_job_that_has_started_since_makes_it_void(self, spec, camera):
        gate, event, start = overtaken(spec, camera)
        end = 2 + start.job.execution_ns // MS
        assert gate.at(3, event) == [PlanStale("cam", end * MS)]
        assert gate.engine.snapshot().streams[-1].stream_id == "be"

    def test_it_holds_again_when_that_job_has_ended_and_no_other_starts_meanwhile(self, spec, camera):
        gate, event, start = overtaken(spec, camera)
        gate.at(30, FramesArrived("be", 8))
        only(gate.at(31, event), PlanStale)
        end = 2 + start.job.execution_ns // MS
        # The next one has to wait: in twice the time that this plan took there will be another.
        assert not every(gate.finish(end, start.job), StartJob)
        event = planned(gate, end + 1, "cam", camera)
        actions, now, met = gate.at(end + 41, event), end + 41, []
        assert only(actions, Admitted)
        actions += gate.frames(now, "cam")
        while started := every(actions, StartJob):
            now += started[0].job.execution_ns // MS
            actions = gate.finish(now, started[0].job)
            met += outcomes(actions, "cam")
        assert met == [Outcome.MET]

    def test_the_next_one_does_not_wait_for_ever(self, spec, camera):
        gate, event, start = overtaken(spec, camera)
        gate.at(2, FramesArrived("be", 8))
        only(gate.at(11, event), PlanStale)
        end = 2 + start.job.execution_ns // MS
        gate.finish(end, start.job)
        assert gate.wakeup == end + 20
        only(gate.at(end + 20), StartJob)


class TestItHoldsAllTheSame:
    def test_if_what_started_is_no_longer_than_the_plan_allows(self):
        gate = drive()
        gate.register(0, be=idle())
        event = planned(gate, 1, "cam", CAMERA)
        assert len(only(gate.frames(2, "be"), StartJob).job.frames) == 1
        only(gate.at(3, event), Admitted)

    def test_if_no_more_of_it_is_left_than_that(self):
        gate = drive()
        gate.register(0, be=idle(**OPAQUE))
        event = planned(gate, 1, "cam", CAMERA)
        job = only(gate.frames(2, "be"), StartJob).job
        only(gate.at(80, event), PlanStale)
        only(gate.at(81, event), Admitted)
        gate.frames(81, "cam")
        job = only(gate.finish(95, job), StartJob).job
        assert outcomes(gate.finish(109, job), "cam") == [Outcome.MET]

    def test_if_it_has_ended_and_nothing_waits(self):
        gate = drive()
        gate.register(0, be=idle(**OPAQUE))
        event = planned(gate, 1, "cam", CAMERA)
        gate.finish(95, only(gate.frames(2, "be"), StartJob).job)
        only(gate.at(96, event), Admitted)


class TestOthersAreThere:
    """A stream that has left allowed for blocking by 48, its successors only for 14."""

    def test_those_that_a_long_job_has_made_wait_are_past_first(self):
        gate = drive()
        old = make_spec(2000, 400, model="r", burst=4)
        assert all(v.admitted for v in gate.register(0, be=idle(), slow=make_spec(400, 140), old=old))
        gate.at(1, CloseStream("old"))
        event = planned(gate, 29, "cam", make_spec(60, 68, model="tiny"))
        assert event.plan.blocking_ns == 14 * MS
        long = only(gate.at(30, FramesArrived("be", 4)), StartJob).job
        assert long.execution_ns == 48 * MS
        gate.frames(31, "slow")
        # Its joint is 70.
        assert gate.at(71, event) == [PlanStale("cam", 78 * MS)]
        job = only(gate.finish(78, long), StartJob).job
        assert names(job) == ["slow"]
        only(gate.at(79, event), Admitted)


class TestAPlanWasInForce:
    """It may have had jobs started that plain EDF would have had wait, and others wait that it would have started."""

    def test_what_plain_edf_would_have_started_too_is_no_reason(self):
        gate = Drive(make_profile(m=[4], tiny=[1]), early_dispatch=False)
        gate.register(0, a=make_spec(40, 40, frames=3, start_in=5))
        event = planned(gate, 6, "b", make_spec(100, 60, model="tiny", start_in=30))
        gate.frames(7, "a")
        only(gate.at(20), StartJob)
        assert only(gate.at(21, event), Admitted).verdict.test == "sporadic"

    def test_a_long_job_is(self):
        gate = Drive(make_profile(m=[4], r=[200], tiny=[1]))
        gate.register(0, a=make_spec(1000, 600, frames=3, start_in=900), be=idle(internal=True))
        event = planned(gate, 1, "b", make_spec(100, 60, model="tiny"))
        assert event.plan.verdict.test == "sporadic"
        only(gate.frames(2, "be"), StartJob)
        assert gate.at(3, event) == [PlanStale("b", 202 * MS)]


class TestCourse:
    """What was done since a record, held against plain EDF."""

    def setup_method(self):
        self.course, self.ready, self.device = Course(), ReadyQueue(), Device("local")

    @property
    def first(self):
        return self.ready.first() if self.ready else None

    def push(self, job_id, due):
        batch = Batch(job_id, make_category(), (0, 10 * MS))
        batch.release_ns, batch.deadline_ns = 0, due * MS
        self.ready.push(batch)
        return batch

    def start(self, batch, t, execution=10):
        self.course.start(batch.id, execution * MS, self.first)
        self.ready.withdraw(batch)
        self.device.start(Job(batch.id, make_category(), (), 0, batch.deadline_ns, execution * MS), t * MS)

    def follows(self, since, t, most=20):
        return self.course.follows_edf(since, most * MS, self.device, self.first, t * MS)

    def test_in_order(self):
        first, _ = self.push(0, 50), self.push(1, 60)
        self.start(first, 0)
        assert self.follows(0, 1)

    def test_out_of_order(self):
        _, second = self.push(0, 50), self.push(1, 60)
        self.start(second, 0)
        assert not self.follows(0, 1)
        assert self.follows(1, 1), "the record knew it"

    def test_an_idle_device_without_work_has_forgotten_everything(self):
        first, second = self.push(0, 50), self.push(1, 60)
        self.start(second, 0)
        self.device.stop(1, 10 * MS)
        self.start(first, 10)
        assert not self.follows(0, 11, most=5)
        assert self.follows(0, 15, most=5), "as if it had started just now"
        self.device.stop(0, 20 * MS)
        assert self.follows(0, 20, most=5)

    def test_waiting_on_purpose(self):
        first, _ = self.push(0, 50), self.push(1, 60)
        self.course.wait()
        assert not self.follows(0, 1), "it waits"
        self.start(first, 2)
        assert not self.follows(0, 3), "it has waited since the record"
        assert self.follows(1, 3)
