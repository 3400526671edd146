import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.core import admission
from gateway.core.engine import Engine
from gateway.core.events import CloseStream, RegisterStream
from gateway.core.plan import Plan
from gateway.core.plan_state import AdmissionState
from gateway.core.types import StreamSpec
from gateway.runtime import planner_wire as wire
from gateway.runtime.planner import Planned, Planner
from tests.runtime_support import make_profile, make_spec

HANG = "import time; time.sleep(60)"
DIE = "pass"
TALK = "import sys; sys.stdout.write('this is no pickle' * 10); sys.stdout.flush(); sys.stdin.read()"
#: Dies the first time, answers afterwards: {} is a file that remembers.
DIE_ONCE = """
import pathlib, sys
file = pathlib.Path({!r})
if file.exists():
    from gateway.runtime.planner_process import main
    main(sys.stdin.buffer, sys.stdout.buffer)
file.touch()
"""


def occupied(execution_ms: float = 5) -> Engine:
    engine = Engine(make_profile(execution_ms=execution_ms))
    engine.handle(RegisterStream("a", make_spec(20, 60, version="1")), 0)
    return engine


def refused() -> tuple[AdmissionState, StreamSpec]:
    engine, candidate = occupied(), make_spec(4, 9, version="1")
    assert not engine.check(candidate, 0).admitted
    return engine.admission_state(0), candidate


def planner(code: str | None = None, limit_s: float = 30, tries: int = 2, rest_s: float = 0.0) -> Planner:
    command = {} if code is None else {"command": (sys.executable, "-c", code)}
    return Planner("plans", limit_s=limit_s, tries=tries, rest_s=rest_s, **command)


def run(planner: Planner, test: Callable[[Planner], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            await test(planner)
        finally:
            await planner.close()

    asyncio.run(main())


def plan_of(planned: Planned | None) -> Plan:
    assert planned is not None
    return planned.plan


def admitted_plan(planned: Planned | None) -> Plan:
    assert plan_of(planned).verdict.admitted
    return plan_of(planned)


def test_the_other_process_finds_what_this_one_would() -> None:
    state, candidate = refused()
    finite = make_spec(50, 100, version="1", frames=20)

    async def test(planner: Planner) -> None:
        planner.start()
        for _ in range(3):
            offers = await planner.offers(lambda: state, candidate)
            assert offers == admission.counter_offers(state, candidate)
            assert offers
            plan = await planner.plan(lambda: state, candidate, "b")
            assert plan_of(plan) == admission.plan(state, candidate, "b")
        exact = Engine(make_profile()).admission_state(7)
        plan = admitted_plan(await planner.plan(lambda: exact, finite, "b"))
        here = admission.plan(exact, finite, "b")
        assert (plan.verdict, plan.windows, plan.streams) == (here.verdict, here.windows, here.streams)
        assert plan.slots is not None
        assert here.slots is not None
        assert plan.slots.start.tolist() == here.slots.start.tolist()

    run(planner(), test)


def test_windows_are_widened_there_as_here() -> None:
    engine = Engine(make_profile())
    engine.handle(RegisterStream("wide", make_spec(100, 200, version="1")), 0)
    engine.handle(RegisterStream("tight", make_spec(100, 60, version="1")), 1)
    engine.handle(CloseStream("tight"), 2)
    assert engine.can_widen()
    state = engine.admission_state(3)

    async def test(planner: Planner) -> None:
        plan = admitted_plan(await planner.widen(lambda: state))
        assert plan == admission.widen(state)
        assert [window.window_ns for window in plan.windows] == [100_000_000]

    run(planner(), test)


def test_the_state_is_recorded_when_the_process_is_free() -> None:
    """Not when the request is made: what is committed meanwhile would make the plan void."""
    state, candidate = refused()
    recorded = []

    def record() -> AdmissionState:
        recorded.append(time.monotonic())
        return state

    async def test(planner: Planner) -> None:
        planner.start()
        first = asyncio.create_task(planner.offers(record, candidate))
        second = asyncio.create_task(planner.plan(record, candidate, ""))
        await first
        done = time.monotonic()
        await second
        assert recorded[0] < done <= recorded[1] + 0.02  # the event loop may be late

    run(planner(), test)


@pytest.mark.parametrize("code", [DIE, TALK])
def test_a_process_that_dies_or_talks_nonsense_gives_no_answer(code: str) -> None:
    state, candidate = refused()

    async def test(planner: Planner) -> None:
        assert await planner.plan(lambda: state, candidate, "") is None
        assert await planner.offers(lambda: state, candidate) is None

    run(planner(code), test)


def test_a_process_that_dies_is_replaced_and_asked_again(tmp_path: Path) -> None:
    state, candidate = refused()

    async def test(planner: Planner) -> None:
        planned = await planner.plan(lambda: state, candidate, "b")
        assert plan_of(planned) == admission.plan(state, candidate, "b")
        assert planned is not None
        assert 0 < planned.cpu_s < 1

    run(planner(DIE_ONCE.format(str(tmp_path / "died"))), test)


def test_a_new_process_gets_the_profile_again() -> None:
    state, candidate = refused()

    async def test(planner: Planner) -> None:
        for _ in range(3):
            plan = await planner.plan(lambda: state, candidate, "b")
            assert plan_of(plan) == admission.plan(state, candidate, "b")
            assert planner.child.process is not None
            planner.child.process.kill()
            planner.child.process.wait()

    run(planner(), test)


def test_a_request_that_takes_too_long_is_ended_and_the_next_one_works() -> None:
    state, candidate = refused()

    async def test(planner: Planner) -> None:
        began = time.monotonic()
        assert await planner.offers(lambda: state, candidate) is None
        assert 0.2 <= time.monotonic() - began < 2
        planner.child._command = Planner("", limit_s=1).child._command
        planner.child._limit_s = 30
        assert await planner.offers(lambda: state, candidate)

    run(planner(HANG, limit_s=0.2, tries=1), test)


def test_a_hung_process_costs_two_limits_and_is_then_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    state, candidate = refused()

    async def test(planner: Planner) -> None:
        began = time.monotonic()
        assert await planner.plan(lambda: state, candidate, "") is None
        assert 0.4 <= time.monotonic() - began < 3
        began = time.monotonic()
        assert await planner.plan(lambda: state, candidate, "") is None
        assert time.monotonic() - began < 0.1

    run(planner(HANG, limit_s=0.2, rest_s=60), test)
    assert "does not answer; it is left alone" in caplog.text


def test_whoever_gives_up_waiting_leaves_the_process_in_order() -> None:
    """The answer that nobody waits for is not taken for that of the next request."""
    state, candidate = refused()

    async def test(planner: Planner) -> None:
        planner.start()
        given_up = asyncio.create_task(planner.offers(lambda: state, candidate))
        await asyncio.sleep(0.005)
        given_up.cancel()
        plan = await planner.plan(lambda: state, candidate, "b")
        assert plan_of(plan) == admission.plan(state, candidate, "b")
        assert given_up.cancelled()

    run(planner(), test)


def test_requests_that_wait_when_it_closes_end_without_an_answer() -> None:
    state, candidate = refused()

    async def test(planner: Planner) -> None:
        waiting = [asyncio.create_task(planner.plan(lambda: state, candidate, "")) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert planner.busy
        await planner.close()
        assert await asyncio.gather(*waiting) == [None] * 3

    run(planner(HANG), test)


def test_ctrl_c_in_a_terminal_is_left_to_the_gateway() -> None:
    """It goes to the whole process group; this process ends by end of file, without a word."""
    state, candidate = refused()
    process = subprocess.Popen(
        Planner("", limit_s=1).child._command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for _ in range(2):
        wire.write(("offers", state.profile, wire.without_profile(state), (candidate,)), process.stdin)
        answers.append(wire.read(process.stdout)[1])
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
    _, said = process.communicate(timeout=30)
    assert answers == [admission.counter_offers(state, candidate)] * 2
    assert (process.returncode, said) == (0, b"")


def test_the_process_yields_to_the_gateway() -> None:
    async def test(planner: Planner) -> None:
        state, candidate = refused()
        await planner.plan(lambda: state, candidate, "")
        assert planner.child.process is not None
        assert os.getpriority(os.PRIO_PROCESS, planner.child.process.pid) > os.getpriority(os.PRIO_PROCESS, 0)

    run(planner(), test)


def test_close_ends_the_process() -> None:
    async def test(planner: Planner) -> None:
        planner.start()
        while planner.child.process is None:
            await asyncio.sleep(0.005)
        process = planner.child.process
        await planner.close()
        assert process.returncode is not None

    run(planner(), test)
