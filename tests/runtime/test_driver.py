"""The driver with a real engine, on a clock that the test moves."""

from collections.abc import Callable

import pytest

from gateway.clock import TimerHandle
from gateway.core.actions import AcceptFrames, Action, DeliverFrames, DropFrames, StartJob
from gateway.core.engine import Engine, EngineConfig
from gateway.core.events import (
    EVENT_RANK,
    Event,
    FramesArrived,
    JobFailed,
    JobFinished,
    RegisterStream,
    Tick,
    WorkerBack,
    WorkerLost,
)
from gateway.core.types import LOCAL_WORKER, NS_PER_MS, Job, Outcome
from gateway.runtime.driver import Driver
from gateway.runtime.virtual import NoSink, TimedExecutor, VirtualClock
from tests.runtime_support import make_profile, make_spec


class Recorder:
    """Observer and sink in one: what happened, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Event, list[Action]]] = []
        self.carried_out: list[Action] = []

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        self.seen.append((now_ns, event, actions))

    def carry_out(self, action: Action, now_ns: int) -> None:
        self.carried_out.append(action)


class Rig:
    def __init__(self, clock: VirtualClock | None = None, **config: bool) -> None:
        self.clock = clock or VirtualClock()
        self.recorder = Recorder()
        self.executor = TimedExecutor(self.clock, lambda job: job.execution_ns)
        engine = Engine(make_profile(execution_ms=10), EngineConfig(**config))
        self.driver = Driver(engine, self.clock, self.executor, self.recorder, [self.recorder])
        self.executor.connect(self.driver.post)

    def at(self, t_ms: float, event: Event) -> None:
        self.clock.call_at(round(t_ms * NS_PER_MS), lambda: self.driver.post(event), EVENT_RANK[type(event)])

    def times_ms(self, kind: type) -> list[float]:
        return [t / NS_PER_MS for t, _, actions in self.recorder.seen for a in actions if isinstance(a, kind)]


def test_a_frame_goes_through() -> None:
    rig = Rig()
    rig.at(0, RegisterStream("a", make_spec(version="1")))
    rig.at(5, FramesArrived("a"))
    rig.clock.run()
    assert rig.times_ms(StartJob) == [5]
    assert rig.times_ms(DeliverFrames) == [15]


def test_actions_of_one_event_are_carried_out_in_order_before_observers_hear() -> None:
    rig = Rig()
    order: list[str] = []
    rig.recorder.carry_out = lambda action, now: order.append(type(action).__name__)  # type: ignore[method-assign]
    rig.executor.start = lambda job: order.append("start")  # type: ignore[method-assign]
    rig.recorder.on_actions = lambda *_: order.append("observed")  # type: ignore[method-assign]
    rig.driver.post(RegisterStream("a", make_spec(version="1")))
    rig.driver.post(FramesArrived("a"))
    assert order == ["Admitted", "observed", "AcceptFrames", "start", "observed"]


def test_an_event_posted_by_an_action_waits_for_the_rest_of_the_actions() -> None:
    """A backend that fails at once posts from within `start`."""
    rig = Rig()
    nested: list[list[Action]] = []

    def fail(job: Job) -> None:
        nested.append(rig.driver.post(JobFailed(job.id, "no such device")))
        assert rig.driver.engine.snapshot().running is not None, (
            "the failure was handled inside the event that caused it"
        )

    rig.executor.start = fail  # type: ignore[method-assign]
    rig.driver.post(RegisterStream("a", make_spec(version="1")))
    actions = rig.driver.post(FramesArrived("a"))
    assert [type(action) for action in actions] == [AcceptFrames, StartJob]
    assert nested == [[]]
    assert [type(event) for _, event, _ in rig.recorder.seen] == [RegisterStream, FramesArrived, JobFailed]
    dropped = rig.recorder.carried_out[-1]
    assert isinstance(dropped, DropFrames)
    assert (dropped.outcome, dropped.reason) == (Outcome.FAILED, "no such device")


def test_the_timer_stands_for_the_engines_next_wakeup() -> None:
    """While the worker is lost nothing is dispatched; the frame then expires by the timer alone."""
    rig = Rig()
    rig.at(0, RegisterStream("a", make_spec(deadline_ms=200, version="1")))
    rig.at(1, WorkerLost(LOCAL_WORKER))
    rig.at(5, FramesArrived("a"))
    rig.clock.run()
    assert rig.times_ms(DropFrames) == [205]
    assert isinstance(rig.recorder.seen[-1][1], Tick)


def test_a_joint_is_kept_by_the_timer() -> None:
    rig = Rig(early_dispatch=False)
    rig.at(0, RegisterStream("a", make_spec(deadline_ms=200, version="1")))
    rig.at(5, FramesArrived("a"))
    rig.at(50, FramesArrived("a"))
    rig.clock.run()
    assert rig.times_ms(StartJob) == [100], "one job with both frames, at the end of the window of half a deadline"


class CountingClock(VirtualClock):
    """Knows what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_ms: list[float] = []

    def call_at(self, t_ns: int, callback: Callable[[], object], *rank: int) -> TimerHandle:
        if not rank:
            self.asked_ms.append(t_ns / NS_PER_MS)
        return super().call_at(t_ns, callback, *rank)


def test_a_timer_that_is_early_enough_stays_until_it_comes() -> None:
    """While a frame waits, the engine wants to be woken when it expires, which it hardly ever does."""
    clock = CountingClock()
    rig = Rig(clock)
    rig.at(0, RegisterStream("a", make_spec(50, 400, version="1")))
    rig.at(0, RegisterStream("b", make_spec(50, 100, version="1")))
    for number in range(10):
        rig.at(number * 50, FramesArrived("a"))
        rig.at(number * 50 + 1, FramesArrived("b"))
    clock.run()
    assert len(rig.times_ms(StartJob)) == 20
    assert clock.asked_ms == [101, 201, 301, 401, 501], "not for each frame of b that waits"
    assert not [event for _, event, _ in rig.recorder.seen if isinstance(event, Tick)], "it was never needed"


def test_a_timer_that_would_come_too_late_is_replaced() -> None:
    clock = CountingClock()
    rig = Rig(clock)
    rig.at(0, RegisterStream("a", make_spec(1000, 400, version="1", burst=2)))
    rig.at(0, RegisterStream("b", make_spec(1000, 100, version="1")))
    rig.executor.start = lambda job: None  # type: ignore[method-assign]
    for t_ms, stream in enumerate("aab"):
        rig.at(t_ms, FramesArrived(stream))
    clock.run()
    assert clock.asked_ms == [401, 102, 401], "that of b is due first, then again that of a"
    assert rig.times_ms(DropFrames) == [102, 401]


def test_close_ends_the_wakeups() -> None:
    rig = Rig()
    rig.driver.post(RegisterStream("a", make_spec(version="1")))
    rig.driver.post(WorkerLost(LOCAL_WORKER))
    rig.driver.post(FramesArrived("a"))
    rig.driver.close()
    seen = len(rig.recorder.seen)
    rig.clock.run()
    assert len(rig.recorder.seen) == seen


def test_an_exception_from_an_event_is_seen_and_remembered() -> None:
    rig = Rig()
    rig.driver.post(RegisterStream("a", make_spec(version="1")))

    def broken(job: Job) -> None:
        raise RuntimeError("a fault of ours")

    rig.executor.start = broken  # type: ignore[method-assign]
    told: list[str] = []
    rig.driver.on_broken = lambda: told.append("broken")
    assert not rig.driver.broken
    with pytest.raises(RuntimeError, match="a fault of ours"):
        rig.driver.post(FramesArrived("a"))
    assert rig.driver.broken
    seen = len(rig.recorder.seen)
    assert rig.driver.post(WorkerBack(LOCAL_WORKER)) == []
    rig.clock.run()
    assert rig.driver.broken, "a broken driver does not heal"
    assert len(rig.recorder.seen) == seen, "a broken driver decides nothing"
    assert told == ["broken"]


def test_a_thousand_jobs_of_equal_deadline_all_run_in_order() -> None:
    """Field report 27."""
    clock, recorder = VirtualClock(), Recorder()
    profile = make_profile(batches=(1,), execution_ms=0.01, shapes=[(8, width, 3) for width in range(1, 51)])
    executor = TimedExecutor(clock, lambda job: job.execution_ns)
    engine = Engine(profile, EngineConfig(policing=False))
    driver = Driver(engine, clock, executor, NoSink(), [recorder])
    executor.connect(driver.post)
    for width in range(1, 51):
        driver.post(RegisterStream(f"s{width}", make_spec(1000, 2000, version="1", shape=(8, width, 3), frames=20)))
    for width in range(1, 51):
        driver.post(FramesArrived(f"s{width}", 20))
    clock.run()
    started = [a.job for _, _, actions in recorder.seen for a in actions if isinstance(a, StartJob)]
    assert len(started) == 1000
    assert [job.id for job in started] == sorted(job.id for job in started)


class TestVirtualClock:
    def test_ties_go_by_rank_then_by_insertion(self) -> None:
        clock, order = VirtualClock(), []
        for name, t_ns, rank in (("d", 5, 6), ("b", 5, 0), ("c", 5, 0), ("a", 4, 9)):
            clock.call_at(t_ns, lambda name=name: order.append((clock.now_ns(), name)), rank)
        clock.run()
        assert order == [(4, "a"), (5, "b"), (5, "c"), (5, "d")]

    def test_what_is_cancelled_does_not_come(self) -> None:
        clock = VirtualClock()
        clock.call_at(5, lambda: pytest.fail("cancelled")).cancel()
        clock.run()
        assert clock.now_ns() == 0

    def test_the_past_is_now(self) -> None:
        clock, times = VirtualClock(), []
        clock.call_at(7, lambda: clock.call_at(3, lambda: times.append(clock.now_ns())))
        clock.run()
        assert times == [7]


def test_events_that_end_jobs_come_first() -> None:
    assert EVENT_RANK[JobFinished] < EVENT_RANK[FramesArrived] < EVENT_RANK[Tick]
