"""Jobs that go to Triton without a task: which do, that they say the same, and what becomes of them in trouble."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from gateway.core.actions import Action, StartJob
from gateway.core.events import Event, JobFinished
from gateway.core.types import OnLate, Outcome
from gateway.runtime import executor
from gateway.runtime.gateway import Gateway
from gateway.triton.http_connection import HttpConnection
from tests.runtime_support import admitted, frame, gateway_on_stand_in, make_profile, until
from tests.stand_in import Model, StandIn


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The jobs that took a task, warm-ups excepted."""
    found: list[int] = []
    before = executor.TritonExecutor._run_task

    def noted(self: Any, call: Any, work: Any) -> None:
        if not call.job.warm_up:
            found.append(call.job.id)
        before(self, call, work)

    monkeypatch.setattr(executor.TritonExecutor, "_run_task", noted)
    return found


def run(test: Callable[[Gateway, StandIn], Awaitable[None]], *models: Model, **options: Any) -> None:
    async def main() -> None:
        async with gateway_on_stand_in(options.pop("profile", None), *models, **options) as (gateway, triton):
            await test(gateway, triton)

    asyncio.run(main())


async def echoes(gateway: Gateway, stream_id: str, *values: int) -> list[Any]:
    results = [await t.result for t in gateway.submit(stream_id, b"".join(map(frame, values)))]
    for value, result in zip(values, results, strict=True):
        if result.outputs is not None:
            assert (result.outputs["echo"] == value).all()
    return [result.outcome for result in results]


def test_no_job_of_a_camera_takes_a_task(tasks: list[int]) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        for values in ((1,), (2, 3, 4), (5,), (6, 7, 8)):
            assert set(await echoes(gateway, record.stream_id, *values)) == {Outcome.MET}
        assert tasks == []
        assert gateway.arena.batches == 0

    run(test)


def test_without_shared_memory_all_take_one(tasks: list[int]) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        assert await echoes(gateway, record.stream_id, 1) == [Outcome.MET]
        assert len(tasks) == 1

    run(test, triton={"shared_memory": "off"})


def test_a_refusal_is_looked_into_in_a_task_and_the_next_job_takes_none(tasks: list[int]) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        triton.error = lambda call: "CUDA error 700" if len(triton.log("infer")) == 1 else ""
        [failed] = [await t.result for t in gateway.submit(record.stream_id, frame(66))]
        assert (failed.outcome, failed.reason) == (Outcome.FAILED, "CUDA error 700")
        assert len(tasks) == 1
        assert await echoes(gateway, record.stream_id, 1) == [Outcome.MET]
        assert len(tasks) == 1
        await until(lambda: gateway.arena.batches == 0)

    run(test)


def test_no_job_runs_beside_a_warm_up(tasks: list[int]) -> None:
    """A warm-up that is under way has the turn; the job behind it takes a task to wait for it."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        await echoes(gateway, record.stream_id, 1)
        turns = gateway._parts.inference._turns
        assert turns.take_now(alone=True)
        ticket = gateway.submit(record.stream_id, frame(9))[0]
        await asyncio.sleep(0.05)
        assert ticket.ended is None
        assert len(tasks) == 1
        turns.leave(alone=True)
        assert np.all((await ticket.result).outputs["echo"] == 9)
        await echoes(gateway, record.stream_id, 2)
        assert len(tasks) == 1

    run(test)


# ---------------------------------------------------------------- one sent ahead of the end of another


class Ends:
    """An observer: of each end of a job, whether it came from within the callback that read Triton's answer.

    Attributes:
        found: One for each.
        ahead: How many jobs were sent ahead.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[bool] = []
        self.ahead = 0
        reading = self._reading = [False]
        before = HttpConnection.buffer_updated

        def buffer_updated(self: HttpConnection, count: int) -> None:
            reading[0] = True
            try:
                before(self, count)
            finally:
                reading[0] = False

        monkeypatch.setattr(HttpConnection, "buffer_updated", buffer_updated)

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        self.ahead += sum(isinstance(action, StartJob) and action.job.ahead for action in actions)
        if isinstance(event, JobFinished) and not event.warm_up:
            self.found.append(self._reading[0])


def in_a_row(count: int, monkeypatch: pytest.MonkeyPatch, *, delay_s: float = 0.03) -> tuple[Ends, int]:
    """Run so many jobs of one frame, each sent ahead of the end of the one before it."""
    ends, options = Ends(monkeypatch), {"triton": {"rate_limited": True}, "scheduling": {"send_ahead_ms": 1_000}}
    connections = 0

    async def test(gateway: Gateway, triton: StandIn) -> None:
        nonlocal connections
        triton.delay_s = lambda call: delay_s
        record = await admitted(gateway, period_ms=1_000, deadline_ms=3_000, on_late=OnLate.SERVE)
        tickets = [gateway.submit(record.stream_id, frame(value))[0] for value in range(count)]
        for value, ticket in enumerate(tickets):
            assert np.all((await ticket.result).outputs["echo"] == value)
        connections = triton.http.connections

    profile = make_profile(batches=(1,), execution_ms=1e3 * delay_s)
    run(test, Model("echo", serial=True), profile=profile, observers=[ends], **options)
    return ends, connections


def test_the_job_that_is_sent_ahead_takes_no_task_either(tasks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would have to connect first, and one that comes behind it could be the first in Triton."""
    ends, connections = in_a_row(6, monkeypatch)
    assert ends.ahead >= 4
    assert tasks == []
    assert connections == 2


def test_the_engine_hears_of_an_end_in_the_callback_that_reads_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else the loop has to do comes after that."""
    ends, _ = in_a_row(6, monkeypatch)
    assert ends.found == [True] * 6


# ---------------------------------------------------------------- what nobody foresaw


def test_a_fault_while_an_answer_is_read_fails_that_job_alone(tasks: list[int]) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        await echoes(gateway, record.stream_id, 1)
        warmth = gateway._parts.inference.warmth
        knows, faults = warmth.knows, [MemoryError("no more")]

        def knows_once(*arguments: Any) -> bool:
            if faults:
                raise faults.pop()
            return knows(*arguments)

        warmth.knows = knows_once  # type: ignore[method-assign]
        [failed] = [await t.result for t in gateway.submit(record.stream_id, frame(2))]
        assert failed.outcome is Outcome.FAILED
        assert "no more" in failed.reason
        assert await echoes(gateway, record.stream_id, 3) == [Outcome.MET]
        assert gateway._parts.inference._turns.take_now(alone=True), "all turns were given up"
        await until(lambda: gateway.arena.batches == 0)

    run(test)
