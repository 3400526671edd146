"""Jobs that go to Triton without a task: which do, that they say the same, and what becomes of them in trouble."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from gateway.core.types import Outcome
from gateway.runtime import executor
from gateway.runtime.gateway import Gateway
from tests.runtime_support import admitted, frame, gateway_on_stand_in, until
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
        async with gateway_on_stand_in(None, *models, **options) as (gateway, triton):
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
