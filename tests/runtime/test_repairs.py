"""A model that has broken inside a Triton that goes on, and a frame that merely cannot be digested."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from gateway.core.types import Outcome
from gateway.errors import ModelNotLoaded
from gateway.runtime.gateway import Gateway
from tests.runtime_support import SHAPE, admitted, frame, gateway_on_stand_in, make_profile, make_spec, until
from tests.stand_in import Call, Model, StandIn

LARGE = (16, 16, 3)
DEAD = "Stub process 'echo_0_0' is not healthy."
PROFILE = make_profile(batches=(1, 2), shapes=[LARGE, SHAPE])


def run(test: Callable[[Gateway, StandIn], Awaitable[None]], *models: Model, **options: Any) -> None:
    async def main() -> None:
        async with gateway_on_stand_in(options.pop("profile", PROFILE), *models, **options) as (gateway, triton):
            await test(gateway, triton)

    asyncio.run(main())


def dead_until_loaded(triton: StandIn, times: int = 1) -> Callable[[Call], str]:
    return lambda call: DEAD if call.name == "echo" and len(triton.log("load")) < times else ""


async def outcome(gateway: Gateway, stream_id: str, shape: tuple[int, ...] = SHAPE) -> tuple[Outcome, str]:
    [ticket] = gateway.submit(stream_id, frame(7, shape))
    result = await ticket.result
    return result.outcome, result.reason


def why(gateway: Gateway) -> str:
    error = gateway.unready()
    return error.detail if error else ""


def lines(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


def test_a_dead_model_is_unloaded_and_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        triton.error = dead_until_loaded(triton)
        assert await outcome(gateway, record.stream_id) == (Outcome.FAILED, DEAD)
        [state] = gateway.model_facts.states()
        assert state.state == "failed"
        assert DEAD in state.reason
        with pytest.raises(ModelNotLoaded, match="is being reloaded"):
            await gateway.register(make_spec())
        assert not gateway.ready
        assert gateway.triton_ready
        await until(lambda: gateway.ready, 3)
        assert [call.method for call in triton.calls if call.method != "infer"] == ["unload", "load"]
        assert gateway.model_facts.states()[0].state == "ready"
        await until(lambda: {(n, *shape) for n in (1, 2) for shape in (SHAPE, LARGE)} <= _shapes(triton), 3)
        assert await outcome(gateway, record.stream_id) == (Outcome.MET, "")

    run(test)
    assert lines(caplog, "has broken") == 1


def _shapes(triton: StandIn) -> set[tuple[int, ...]]:
    return {call.shape for call in triton.log("infer") if call.began > triton.log("load")[0].began}


def test_a_poisoned_frame_is_not_its_models_fault(caplog: pytest.LogCaptureFixture) -> None:
    """The probe is answered: nothing is reloaded, and the log is not filled."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        poisoned, innocent = await admitted(gateway, shape=LARGE), await admitted(gateway)
        triton.error = lambda call: "NaN in layer 3" if call.shape[1:] == LARGE else ""
        for _ in range(30):
            assert await outcome(gateway, poisoned.stream_id, LARGE) == (Outcome.FAILED, "NaN in layer 3")
            assert await outcome(gateway, innocent.stream_id) == (Outcome.MET, "")
        assert gateway.ready
        assert triton.log("load") == triton.log("unload") == []
        assert len(triton.log("infer")) <= 60 + 3, "probes are few"

    run(test)
    assert lines(caplog, "NaN in layer 3") == 1


def test_a_probe_is_alone_on_the_device() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        poisoned, innocent = await admitted(gateway, shape=LARGE), await admitted(gateway)
        triton.delay_s = lambda call: 0.03
        triton.error = lambda call: "NaN in layer 3" if call.shape[1:] == LARGE else ""
        tickets = [*gateway.submit(poisoned.stream_id, frame(1, LARGE)), *gateway.submit(innocent.stream_id, frame(2))]
        results = [await ticket.result for ticket in tickets]
        assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.MET]
        calls = triton.log("infer")
        assert len(calls) == 3
        for before, after in pairwise(calls):
            assert before.ended <= after.began

    run(test)


def test_other_models_go_on_while_one_is_reloaded() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        sick, well = await admitted(gateway), await admitted(gateway, model="other")
        triton.error = dead_until_loaded(triton)
        triton.models["echo"].load_delay_s = 0.5
        assert (await outcome(gateway, sick.stream_id))[0] is Outcome.FAILED
        await until(lambda: triton.log("load"), 3)
        while triton.log("load")[0].ended is None:
            assert gateway.ready, "another model is served"
            assert (await outcome(gateway, well.stream_id))[0] is Outcome.MET
            reached, why = await outcome(gateway, sick.stream_id)
            assert reached is Outcome.FAILED
            assert "is being reloaded" in why or triton.log("load")[0].ended is not None
            await asyncio.sleep(0.01)

    models = (Model("echo"), Model("other"))
    run(test, *models, profile=make_profile(models=["echo", "other"]))


def test_a_model_that_stays_broken_is_tried_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        triton.error = dead_until_loaded(triton, times=2)
        assert (await outcome(gateway, record.stream_id))[0] is Outcome.FAILED
        await until(lambda: len(triton.log("load")) == 1, 3)
        await until(lambda: "Warming" in why(gateway), 3)
        await until(lambda: gateway.ready, 5)
        first, second = triton.log("load")
        assert second.began - first.began >= 0.9
        assert await outcome(gateway, record.stream_id) == (Outcome.MET, "")

    caplog.set_level(logging.INFO)
    run(test)
    assert lines(caplog, "is served again") == 1


def test_a_model_that_fails_in_its_warm_up_is_tried_again() -> None:
    """A device that was out of memory when Triton came back need not be so for good."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        await triton.restart()
        triton.error = lambda call: "CUDA error: out of memory" if len(triton.log("load")) < 2 else ""
        await until(lambda: not gateway.ready, 3)
        await until(lambda: "out of memory" in why(gateway), 5)
        await until(lambda: gateway.ready, 5)
        assert len(triton.log("load")) == 2

    run(test)


def test_a_model_that_does_not_answer_its_probe_holds_nobody_up_for_long() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway, deadline_ms=10_000)
        triton.error = dead_until_loaded(triton)
        hung = iter([0.0, 60.0])
        triton.delay_s = lambda call: next(hung, 0.0)
        assert await asyncio.wait_for(outcome(gateway, record.stream_id), 4) == (Outcome.FAILED, DEAD)
        assert "no answer within" in why(gateway)
        await until(lambda: gateway.ready, 5)
        assert gateway.arena.batches == 0

    # The stand-in ends a call that nobody waits for; over HTTP it goes on with it, and cannot unload the model.
    run(test, triton={"http_url": ""})
