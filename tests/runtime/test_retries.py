"""Batches that Triton refuses: the frames are tried again one by one, whoever is to blame."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gateway.core.actions import BatchLimited
from gateway.core.types import Outcome
from gateway.runtime.gateway import Gateway
from gateway.runtime.results import FrameResult
from tests.runtime_support import SHAPE, admitted, frame, gateway_on_stand_in, make_profile, until
from tests.stand_in import Call, Model, StandIn

POISON = 66
REFUSED = "NaN in layer 3"
DEAD = "Stub process 'echo_0_0' is not healthy."
PROFILE = make_profile(execution_ms=0.5)
#: So that frames that come together are one batch.
WINDOWS = {"scheduling": {"early_dispatch": False}}


class Watch:
    """Keeps what the engine decided."""

    def __init__(self) -> None:
        self.actions: list[Any] = []

    def on_actions(self, _now_ns: int, _event: object, actions: list[Any]) -> None:
        self.actions += actions


def run(test: Callable[[Gateway, StandIn], Awaitable[None]], *models: Model, **options: Any) -> None:
    async def main() -> None:
        profile = options.pop("profile", PROFILE)
        async with gateway_on_stand_in(profile, *models, **(WINDOWS | options)) as (gateway, triton):
            await test(gateway, triton)
            await until(lambda: gateway.arena.batches == 0)

    asyncio.run(main())


def refuses_poison(frames: np.ndarray) -> str:
    return REFUSED if (frames[:, 0] == POISON).any() else ""


async def streams(gateway: Gateway, count: int, **fields: Any) -> list[str]:
    options = {"period_ms": 20, "deadline_ms": 200} | fields
    return [(await admitted(gateway, **options)).stream_id for _ in range(count)]


async def send(gateway: Gateway, ids: list[str], values: list[int]) -> list[FrameResult]:
    """One frame of each stream at once; the results in that order."""
    tickets = [gateway.submit(i, frame(value))[0] for i, value in zip(ids, values, strict=True)]
    return [await ticket.result for ticket in tickets]


def answers(results: list[FrameResult]) -> list[int | str]:
    """The value that came back, or the reason why none did."""
    return [r.reason if r.outputs is None else int(r.outputs["echo"][0, 0, 0]) for r in results]


@pytest.mark.parametrize("way", ["auto", "off"])
def test_the_poison_frame_fails_alone(way: str) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        ids = await streams(gateway, 4)
        triton.indigestible = refuses_poison
        results = await send(gateway, ids, [1, 2, POISON, 4])
        assert answers(results) == [1, 2, REFUSED, 4]
        assert [r.outcome for r in results] == [Outcome.MET, Outcome.MET, Outcome.FAILED, Outcome.MET]
        assert {r.batch for r in results} == {1}
        assert [call.rows for call in triton.log("infer")][:5] == [4, 1, 1, 1, 1]
        assert gateway.arena.moves == 0
        assert gateway.ready
        for before, after in pairwise(triton.log("infer")):
            assert before.ended <= after.began

    run(test, triton={"shared_memory": way})


def test_without_time_for_a_second_try_all_fail_with_a_reason_of_their_own() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        ids = await streams(gateway, 4, deadline_ms=100)
        triton.delay_s = lambda call: 0.0985
        triton.error = lambda call: REFUSED if call.rows > 1 else ""
        results = await send(gateway, ids, [1, 2, 3, 4])
        assert answers(results) == [f"batch_failed: {REFUSED}"] * 4
        assert {(r.outcome, r.batch) for r in results} == {(Outcome.FAILED, 4)}
        assert len(triton.log("infer")) == 1

    run(test)


def test_a_retry_that_nobody_waits_for_any_more_is_not_sent() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        ids = await streams(gateway, 3)
        triton.delay_s = lambda call: 0.02
        triton.indigestible = refuses_poison
        tickets = [gateway.submit(i, frame(value))[0] for i, value in zip(ids, [POISON, 2, 3], strict=True)]
        await until(lambda: len(triton.log("infer")) == 2)
        tickets[2].result.cancel()
        assert answers([await ticket.result for ticket in tickets[:2]]) == [REFUSED, 2]
        await until(lambda: gateway.arena.batches == 0)
        sent = [call.rows for call in triton.log("infer") if call.name == "echo"]
        assert sent == [3, 1, 1, 1], "the batch, the poison frame, the probe of the model, and the innocent one"

    run(test)


def test_a_dead_model_is_found_though_only_batches_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        ids = await streams(gateway, 3)
        triton.error = lambda call: DEAD if call.name == "echo" and not triton.log("load") else ""
        results = await send(gateway, ids, [1, 2, 3])
        assert answers(results)[0] == DEAD
        assert {r.outcome for r in results} == {Outcome.FAILED}
        await until(lambda: triton.log("load"), 3)
        await until(lambda: gateway.ready, 5)
        assert not any(stream.suspect for stream in gateway.view().streams), "it was not their fault"
        assert answers(await send(gateway, ids, [4, 5, 6])) == [4, 5, 6]

    run(test)
    assert sum("has broken" in record.getMessage() for record in caplog.records) == 1


def test_a_lost_triton_is_no_refusal() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        ids = await streams(gateway, 3)
        triton.delay_s = lambda call: 5
        sending = asyncio.create_task(send(gateway, ids, [1, 2, 3]))
        await until(lambda: triton.log("infer"))
        await triton.stop()
        outcomes = {r.outcome for r in await sending}
        assert Outcome.FAILED in outcomes
        assert outcomes <= {Outcome.FAILED, Outcome.EXPIRED}  # expired, if it waited for a batch of its own
        assert not any(stream.suspect for stream in gateway.view().streams)
        triton.delay_s = lambda call: 0
        await triton.start()

    run(test)


@pytest.mark.parametrize("fault", ["refused", "too few rows"])
def test_a_model_that_takes_no_batches_is_run_frame_by_frame(fault: str) -> None:
    watch = Watch()

    async def test(gateway: Gateway, triton: StandIn) -> None:
        ids = await streams(gateway, 4)
        if fault == "refused":
            triton.error = lambda call: "Unexpected batch size" if call.rows > 1 else ""
        else:
            triton.reply_rows = lambda rows: 1
        rounds = 0
        while not gateway.view().limited:
            rounds += 1
            values = [10 * rounds + n for n in range(4)]
            assert answers(await send(gateway, ids, values)) == values
            await asyncio.sleep(0.02)
        assert rounds == 2
        triton.calls.clear()
        assert answers(await send(gateway, ids, [101, 102, 103, 104])) == [101, 102, 103, 104]
        assert [call.rows for call in triton.log("infer")] == [1, 1, 1, 1]
        [limited] = [action for action in watch.actions if isinstance(action, BatchLimited)]
        assert limited.verdict.admitted
        assert gateway.view().broken is None

    run(test, observers=[watch])


def test_a_model_whose_batches_fail_in_its_warm_up_is_served_frame_by_frame(caplog: pytest.LogCaptureFixture) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        assert gateway.ready
        await triton.restart()
        await until(lambda: not gateway.ready)
        triton.error = unless_single
        await until(lambda: gateway.ready, 5)
        [category] = gateway.view().limited
        assert category.shape == SHAPE
        triton.calls.clear()
        ids = await streams(gateway, 3)
        assert answers(await send(gateway, ids, [1, 2, 3])) == [1, 2, 3]
        assert [call.rows for call in triton.log("infer")] == [1, 1, 1]

    run(test)
    assert sum("one frame at a time" in record.getMessage() for record in caplog.records) == 1


def unless_single(call: Call) -> str:
    return "Unexpected batch size" if call.rows > 1 else ""
