"""One registration after the other, on a real engine and driver; the planner answers in this process, when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.core import admission
from gateway.core.actions import Action, Admitted, PlanStale, Rejected, WindowWidened
from gateway.core.engine import Engine
from gateway.core.events import CloseStream, Event, FramesArrived, RegisterStream, WidenWindows
from gateway.core.types import NS_PER_MS, StreamSpec
from gateway.core.verdict import CounterOffer, Verdict
from gateway.errors import AdmissionBusy, EngineFailed, TooManyStreams
from gateway.runtime.driver import Driver
from gateway.runtime.planner import Planned, Planner, Record
from gateway.runtime.registrar import Registrar
from gateway.runtime.virtual import NoSink, TimedExecutor, VirtualClock
from tests.runtime_support import make_profile, make_spec


class Here(Planner):
    """Answers in this process, once `go` is set; `meanwhile` is called between the record and the answer."""

    def __init__(self) -> None:
        super().__init__("here", limit_s=1)
        self.go = asyncio.Event()
        self.go.set()
        self.meanwhile: Callable[[], object] = lambda: None
        self.dead = False
        self.cpu_s = 1.0
        self.asked: list[str] = []

    def start(self) -> None: ...

    async def plan(self, record: Record, candidate: StreamSpec, stream_id: str) -> Planned | None:
        self.asked.append(stream_id)
        state = record()
        await self.go.wait()
        self.meanwhile()
        return None if self.dead else Planned(admission.plan(state, candidate, stream_id), self.cpu_s)

    async def check(self, record: Record, candidate: StreamSpec, stream_id: str) -> Verdict | None:
        planned = await self.plan(record, candidate, stream_id)
        return None if planned is None else planned.plan.verdict

    async def widen(self, record: Record) -> Planned | None:
        self.asked.append("widen")
        state = record()
        await self.go.wait()
        self.meanwhile()
        return None if self.dead else Planned(admission.widen(state), self.cpu_s)

    async def offers(self, record: Record, candidate: StreamSpec) -> tuple[CounterOffer, ...] | None:
        return None if self.dead else admission.counter_offers(record(), candidate)


class Rig:
    def __init__(self, most_waiting: int = 100) -> None:
        self.clock = VirtualClock()
        self.executor = TimedExecutor(self.clock, lambda job: job.execution_ns)
        self.engine = Engine(make_profile(execution_ms=10))
        self.seen: list[tuple[Event, list[Action]]] = []
        self.driver = Driver(self.engine, self.clock, self.executor, NoSink(), [self])
        self.planner = Here()
        self.registrar = Registrar(
            self.engine,
            self.clock,
            self.driver.post,
            most_waiting=most_waiting,
            plans=self.planner,
            offers=self.planner,
        )
        self.driver.on_can_widen = self.registrar.widen

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        self.seen.append((event, actions))

    def count(self, kind: type[Action]) -> int:
        return sum(isinstance(action, kind) for _, actions in self.seen for action in actions)

    async def register(self, name: str, permit: Callable[[], object] = lambda: None, **spec: float) -> Action:
        return await self.registrar.register(name, make_spec(version="1", **spec), permit)

    def disturb(self, name: str) -> None:
        """Commit something: a plan that was made before is void."""
        self.driver.post(RegisterStream(name, make_spec(10_000, 20_000, version="1")))
        self.driver.post(CloseStream(name))

    def pass_time(self, ms: float) -> None:
        self.clock.call_at(self.clock.now_ns() + round(ms * NS_PER_MS), lambda: None)
        self.clock.run()

    @property
    def streams(self) -> list[str]:
        return [stream.stream_id for stream in self.engine.snapshot().streams]


def run(test: Callable[[Rig], Awaitable[None]], **rig: int) -> None:
    async def main() -> None:
        it = Rig(**rig)
        await test(it)
        await it.registrar.close()

    asyncio.run(main())


def test_the_plan_that_was_made_elsewhere_is_what_the_engine_gets() -> None:
    async def test(rig: Rig) -> None:
        assert isinstance(await rig.register("a"), Admitted)
        (event,) = [event for event, _ in rig.seen if isinstance(event, RegisterStream)]
        assert event.plan is not None
        assert isinstance(await rig.register("b", period_ms=10.5, deadline_ms=21), Rejected)
        assert rig.streams == ["a"]

    run(test)


def test_registrations_have_their_turn_in_the_order_in_which_they_came() -> None:
    async def test(rig: Rig) -> None:
        rig.planner.go.clear()
        waiting = [asyncio.create_task(rig.register(f"s{number}")) for number in range(5)]
        await asyncio.sleep(0.01)
        assert rig.planner.asked == ["s0"]
        rig.planner.go.set()
        await asyncio.gather(*waiting)
        assert rig.streams == [f"s{number}" for number in range(5)]
        assert rig.count(PlanStale) == 0

    run(test)


def test_a_void_plan_is_made_again() -> None:
    async def test(rig: Rig) -> None:
        disturbances = iter(["x", "y"])

        def disturb_twice() -> None:
            if (name := next(disturbances, None)) is not None:
                rig.disturb(name)

        rig.planner.meanwhile = disturb_twice
        assert isinstance(await rig.register("a"), Admitted)
        assert rig.planner.asked.count("a") == 3
        assert rig.count(PlanStale) == 2
        assert rig.streams == ["a"]

    run(test)


def test_a_refusal_from_a_void_plan_does_not_count_either() -> None:
    async def test(rig: Rig) -> None:
        await rig.register("hog", period_ms=25, deadline_ms=50)
        hog_leaves = iter([CloseStream("hog")])
        rig.planner.meanwhile = lambda: [rig.driver.post(event) for event in hog_leaves]
        assert isinstance(await rig.register("a", period_ms=25, deadline_ms=45), Admitted)
        assert rig.planner.asked.count("a") == 2

    run(test)


def test_after_four_void_plans_the_caller_is_told_to_come_back() -> None:
    async def test(rig: Rig) -> None:
        names = (f"x{number}" for number in range(100))
        rig.planner.meanwhile = lambda: rig.disturb(next(names))
        with pytest.raises(AdmissionBusy) as busy:
            await rig.register("a")
        assert busy.value.retry_after_s
        assert rig.planner.asked.count("a") == 4
        assert rig.streams == []
        rig.planner.meanwhile = lambda: None
        assert isinstance(await rig.register("a"), Admitted)

    run(test)


def test_a_short_test_is_made_here_after_two_void_plans() -> None:
    """The joint of a tight deadline may come before any plan does; nothing comes before a test on the loop."""

    async def test(rig: Rig) -> None:
        names = (f"x{number}" for number in range(100))
        rig.planner.meanwhile = lambda: rig.disturb(next(names))
        rig.planner.cpu_s = 0.002
        assert isinstance(await rig.register("a"), Admitted)
        assert rig.planner.asked.count("a") == 2
        plans = [event.plan for event, _ in rig.seen if isinstance(event, RegisterStream) and event.stream_id == "a"]
        assert [plan is None for plan in plans] == [False, False, True]

    run(test)


def test_a_joint_that_comes_before_the_plan_makes_it_void() -> None:
    async def test(rig: Rig) -> None:
        await rig.register("wide", period_ms=100, deadline_ms=200)
        late = iter([25])  # ms; the plan moves the joint to 20 ms from its record
        rig.planner.meanwhile = lambda: [rig.pass_time(ms) for ms in late]
        assert isinstance(await rig.register("tight", period_ms=100, deadline_ms=40), Admitted)
        assert rig.count(PlanStale) == 1
        assert window_ms(rig) == 20

    run(test)


def test_a_long_best_effort_job_that_has_started_since_is_waited_for() -> None:
    async def test(rig: Rig) -> None:
        long_ns = 93 * NS_PER_MS
        rig.executor.connect(rig.driver.post)
        idle = make_spec(
            1000, 1000, version="1", model="opaque", service_class="best_effort", internal=True, assumed_ns=long_ns
        )
        rig.driver.post(RegisterStream("idle", idle))
        jobs = iter([FramesArrived("idle")])
        rig.planner.meanwhile = lambda: [rig.driver.post(event) for event in jobs]
        registration = asyncio.create_task(rig.register("a", period_ms=60, deadline_ms=68))
        await asyncio.sleep(0.01)
        assert (rig.count(PlanStale), registration.done(), rig.planner.asked) == (1, False, ["a"])
        rig.clock.run()
        assert isinstance(await registration, Admitted)
        assert rig.clock.now_ns() == long_ns
        assert rig.count(PlanStale) == 1

    run(test)


def test_without_the_process_a_registration_is_decided_here(caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: Rig) -> None:
        rig.planner.dead = True
        assert isinstance(await rig.register("a"), Admitted)
        assert isinstance(await rig.register("b", period_ms=10.5, deadline_ms=21), Rejected)
        verdict = await rig.registrar.check(make_spec(version="1"), lambda: None)
        assert verdict.admitted
        assert await rig.registrar.search_offers(make_spec(10.5, 21, version="1")) is None
        assert rig.streams == ["a"]

    run(test)
    assert caplog.text.count("is tested on the event loop") == 3


def test_whoever_goes_away_while_waiting_has_not_registered() -> None:
    async def test(rig: Rig) -> None:
        rig.planner.go.clear()
        first, second, third = (asyncio.create_task(rig.register(name)) for name in ("a", "b", "c"))
        await asyncio.sleep(0.01)
        first.cancel()  # in the middle of its plan
        second.cancel()  # in the queue
        rig.planner.go.set()
        assert isinstance(await third, Admitted)
        assert rig.streams == ["c"]
        assert first.cancelled()
        assert second.cancelled()

    run(test)


def test_what_is_not_permitted_any_more_is_not_committed() -> None:
    async def test(rig: Rig) -> None:
        limits = iter([False, True])

        def permit() -> None:
            if next(limits):
                raise TooManyStreams("one came first")

        with pytest.raises(TooManyStreams):
            await rig.register("a", permit)
        assert rig.streams == []
        assert isinstance(await rig.register("b"), Admitted)

    run(test)


def test_a_broken_engine_is_said() -> None:
    async def test(rig: Rig) -> None:
        rig.driver.broken = True
        with pytest.raises(EngineFailed):
            await rig.register("a")

    run(test)


def test_only_so_many_wait() -> None:
    async def test(rig: Rig) -> None:
        rig.planner.go.clear()
        waiting = [asyncio.create_task(rig.register(f"s{number}")) for number in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(AdmissionBusy):
            await rig.register("one too many")
        checks = [
            asyncio.create_task(rig.registrar.check(make_spec(version="1"), lambda: None)) for number in range(64)
        ]
        await asyncio.sleep(0.01)
        with pytest.raises(AdmissionBusy):
            await rig.registrar.check(make_spec(version="1"), lambda: None)
        rig.planner.go.set()
        await asyncio.gather(*waiting, *checks)
        assert rig.streams == ["s0", "s1"]

    run(test, most_waiting=2)


def test_checks_do_not_take_the_turn_of_registrations() -> None:
    async def test(rig: Rig) -> None:
        rig.planner.go.clear()
        checks = [asyncio.create_task(rig.registrar.check(make_spec(version="1"), lambda: None)) for _ in range(10)]
        await asyncio.sleep(0.01)
        registration = asyncio.create_task(rig.register("a"))
        await asyncio.sleep(0.01)
        assert rig.planner.asked == ["", "a"]  # one check at most is ahead of it
        rig.planner.go.set()
        await registration
        await asyncio.gather(*checks)

    run(test)


async def narrowed(rig: Rig) -> None:
    """A category whose tightest stream has just gone: W is 30 ms and could be 100."""
    await rig.register("wide", period_ms=100, deadline_ms=200)
    await rig.register("tight", period_ms=100, deadline_ms=60)
    rig.driver.post(CloseStream("tight"))


def window_ms(rig: Rig) -> float:
    (category,) = rig.engine.snapshot().categories
    return category.window_ns / NS_PER_MS


async def until_still(rig: Rig) -> None:
    assert rig.registrar._widening is not None
    await rig.registrar._widening


def test_windows_grow_when_the_tightest_stream_has_gone() -> None:
    async def test(rig: Rig) -> None:
        await narrowed(rig)
        assert window_ms(rig) == 30
        await until_still(rig)
        assert window_ms(rig) == 100
        assert rig.count(WindowWidened) == 1
        plans = [event.plan for event, _ in rig.seen if isinstance(event, WidenWindows)]
        assert plans[0] is not None

    run(test)


def test_a_void_plan_of_wider_windows_is_made_again() -> None:
    async def test(rig: Rig) -> None:
        await narrowed(rig)
        disturbances = iter(["x"])
        rig.planner.meanwhile = lambda: [rig.disturb(name) for name in disturbances]
        await until_still(rig)
        assert window_ms(rig) == 100
        assert rig.count(PlanStale) == 1

    run(test)


def test_without_the_process_windows_stay_narrow() -> None:
    async def test(rig: Rig) -> None:
        rig.planner.dead = True
        await narrowed(rig)
        await until_still(rig)
        assert window_ms(rig) == 30

    run(test)


def test_windows_and_registrations_take_turns() -> None:
    async def test(rig: Rig) -> None:
        await narrowed(rig)
        rig.planner.go.clear()
        await asyncio.sleep(0.01)
        registration = asyncio.create_task(rig.register("next"))
        await asyncio.sleep(0.01)
        rig.planner.go.set()
        assert isinstance(await registration, Admitted)
        assert rig.planner.asked[-2:] == ["widen", "next"]
        assert rig.count(PlanStale) == 0
        assert window_ms(rig) == 100

    run(test)
