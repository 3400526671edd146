"""What is asked of a model that is not in memory: registrations, calls, questions; and models lost and broken."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import numpy as np
import pytest

from gateway.core.profile import Profile
from gateway.core.profile_entry import ModelEntry
from gateway.core.types import ModelState, Outcome, ServiceClass
from gateway.core.verdict import Reason
from gateway.errors import (
    ModelLoadFailed,
    ModelNotLoaded,
    NoRoomForModel,
    ShapeMismatch,
    TritonUnavailable,
    UnknownModel,
)
from gateway.runtime.call import Answer, Call
from gateway.runtime.gateway import Gateway
from gateway.triton.types import Tensor
from tests.runtime.test_model_commands import best_effort, calls, model, one_of_two, state, view
from tests.runtime_support import SHAPE, admitted, frame, gateway_on_stand_in, make_profile, make_spec, until
from tests.stand_in import Model, StandIn

BEST_EFFORT = {"service_class": ServiceClass.BEST_EFFORT, "deadline_ms": 5_000}


def call(name: str, *, deadline_ms: int | None = None, inputs: int = 1) -> Call:
    tensor = Tensor("frames", "UINT8", (1, *SHAPE), frame(7))
    deadline_ns = None if deadline_ms is None else deadline_ms * 1_000_000
    return Call(name, "", (tensor,) * inputs, (), deadline_ns, None, {})


def first_byte(answer: Answer) -> int:
    return int(np.frombuffer(answer.outputs[0].data, np.uint8)[0])


# ---------------------------------------------------------------- streams


def test_a_stream_with_deadlines_registers_once_its_model_is_there() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            stream = await admitted(gateway, model="b")
            assert state(gateway, "b") is ModelState.RESIDENT
            assert view(gateway, "b").pins == ("stream",)  # the hold has ended
            assert calls(triton) == [("unload", "a"), ("load", "b")]
            [ticket] = gateway.submit(stream.stream_id, frame(1))
            assert (await ticket.result).outcome is Outcome.MET

    asyncio.run(main())


def test_it_is_refused_for_memory_with_figures_when_all_that_is_there_has_to_stay() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            await gateway.load_model("b")
            await admitted(gateway, model="b")
            triton.calls.clear()
            refused = await gateway.register(make_spec(model="a"))
            assert refused.verdict.reason is Reason.MEMORY
            memory = refused.verdict.memory
            assert memory is not None
            assert (memory.needed, memory.budget, memory.free, memory.held) == (1, 1, 0, (("b", 1),))
            checked = await gateway.check(make_spec(model="a"))
            assert checked.verdict.reason is Reason.MEMORY
            assert triton.calls == []
            assert view(gateway, "a").pins == ()

    asyncio.run(main())


def turns_of_three(c: Model) -> AbstractAsyncContextManager[tuple[Gateway, StandIn]]:
    """Models a, b and c, of which c was never there; room for two, and one of them takes turns with c."""
    times = tuple(ModelEntry(name, "1", 20.0, 20.0, 1 << 20) for name in "abc")
    profile = Profile(make_profile(models="abc").entries, times)
    return gateway_on_stand_in(profile, model("a"), model("b"), c, residency={"max_models": 2})


def test_a_stream_that_allows_swapping_takes_turns_with_a_model_that_never_was_there() -> None:
    """Its profile says what its frames are until its first turn."""

    async def main() -> None:
        wide: dict[str, Any] = {"period_ms": 1_000, "deadline_ms": 4_000, "swapping": True}
        async with turns_of_three(model("c")) as (gateway, triton):
            for name in "ab":
                await admitted(gateway, model=name, **wide)
            triton.calls.clear()
            checked = await gateway.check(make_spec(model="c", **wide))
            assert checked.verdict.admitted
            assert calls(triton) == []
            stream = await admitted(gateway, model="c", **wide)
            [ticket] = gateway.submit(stream.stream_id, frame(7))
            result = await ticket.result
            assert (result.outcome, result.reason) == (Outcome.MET, "")
            with pytest.raises(ShapeMismatch):
                await gateway.register(make_spec(model="c", shape=(8, 8), **wide))

    asyncio.run(main())


def test_its_stream_ends_if_the_model_takes_other_frames_than_its_profile_says() -> None:
    async def main() -> None:
        wide: dict[str, Any] = {"period_ms": 1_000, "deadline_ms": 4_000, "swapping": True}
        async with turns_of_three(model("c", dims=(5, 5, 3))) as (gateway, _):
            for name in "ab":
                await admitted(gateway, model=name, **wide)
            stream = await admitted(gateway, model="c", **wide)
            [ticket] = gateway.submit(stream.stream_id, frame(7))
            await ticket.result
            await until(lambda: gateway.stream(stream.stream_id).close_reason == "model_changed", 5)

    asyncio.run(main())


def test_a_stream_that_fits_no_model_has_none_loaded() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            await gateway.load_model("b")
            triton.calls.clear()
            with pytest.raises(ShapeMismatch):
                await gateway.register(make_spec(model="a", shape=(8, 8)))
            with pytest.raises(UnknownModel):
                await gateway.register(make_spec(model="x"))
            assert triton.calls == []
            assert [each.model for each in gateway.model_views()] == ["a", "b"]

    asyncio.run(main())


def test_a_failing_load_answers_the_registration_and_the_frames() -> None:
    async def main() -> None:
        b = model("b")
        async with one_of_two(b=b) as (gateway, _):
            stream = await best_effort(gateway, "b")
            await gateway.load_model("a")
            b.load_error = "its file is cut off"
            [ticket] = gateway.submit(stream, frame(1))
            result = await ticket.result
            assert (result.outcome, result.reason) == (Outcome.FAILED, "model_load_failed: its file is cut off")
            with pytest.raises(ModelLoadFailed, match="its file is cut off") as caught:  # in the pause, at once
                await gateway.register(make_spec(model="b"))
            assert 0 < (caught.value.retry_after_s or 0) <= 1

    asyncio.run(main())


def test_whoever_waits_for_a_model_that_is_unloaded_meanwhile_is_told() -> None:
    async def main() -> None:
        async with one_of_two(b=model("b", load_delay_s=0.3)) as (gateway, triton):
            registration = asyncio.create_task(gateway.register(make_spec(model="b")))
            await until(lambda: triton.log("load"))
            await gateway.unload_model("b")
            with pytest.raises(ModelNotLoaded, match="by command"):
                await registration

    asyncio.run(main())


def test_a_registration_that_is_given_up_holds_nothing() -> None:
    async def main() -> None:
        async with one_of_two(b=model("b", load_delay_s=0.3)) as (gateway, triton):
            registration = asyncio.create_task(gateway.register(make_spec(model="b")))
            await until(lambda: triton.log("load"))
            assert view(gateway, "b").pins == ("hold",)
            registration.cancel()
            await asyncio.wait((registration,))
            assert view(gateway, "b").pins == ()
            assert (await gateway.load_model("a")).state is ModelState.RESIDENT

    asyncio.run(main())


def test_a_registration_waits_for_a_model_in_bounded_time() -> None:
    async def main() -> None:
        b = model("b", load_hangs=True)
        async with one_of_two(b=b, load_timeout_s=0.2, unload_timeout_s=0.2) as (gateway, _):
            with pytest.raises(ModelLoadFailed):
                await asyncio.wait_for(gateway.register(make_spec(model="b")), 3)
            b.load_hangs = False

    asyncio.run(main())


def test_streams_that_allow_swapping_are_admitted_to_room_for_one_and_take_turns() -> None:
    """Four seconds for a swap of 0.1 s: both keep their deadlines, each model absent half of the time."""

    async def main() -> None:
        entries = make_profile(models=("a", "b")).entries
        models = tuple(ModelEntry(name, "1", 30.0, 30.0, 1 << 20, swaps=5) for name in ("a", "b"))
        profile = Profile(entries=entries, models=models)
        async with gateway_on_stand_in(profile, model("a"), model("b"), residency={"max_models": 1}) as (
            gateway,
            triton,
        ):
            await gateway.load_model("b")  # so that both are known
            await gateway.load_model("a")
            triton.calls.clear()
            streams = [
                await admitted(gateway, period_ms=1_000, deadline_ms=4_000, model=name, swapping=True)
                for name in ("a", "b")
            ]
            assert [view(gateway, name).region for name in ("a", "b")] == [True, True]
            for _ in range(2):
                tickets = [gateway.submit(stream.stream_id, frame(1))[0] for stream in streams]
                results = [await ticket.result for ticket in tickets]
                assert {result.outcome for result in results} == {Outcome.MET}
            assert {"a", "b"} <= {name for method, name in calls(triton) if method == "load"}
            assert triton.repository.strays == []
            assert gateway.view().memory.held == 1

    asyncio.run(main())


# ---------------------------------------------------------------- calls


def test_calls_of_two_models_take_turns_in_room_for_one() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            for name in ("b", "a", "b"):
                answer = await gateway.infer(call(name))
                assert first_byte(answer) == 7
            assert [name for method, name in calls(triton) if method == "load"] == ["b", "a", "b"]
            assert triton.repository.strays == []

    asyncio.run(main())


def test_a_call_with_a_deadline_has_its_model_loaded_before_it_is_admitted() -> None:
    async def main() -> None:
        async with one_of_two(b=model("b", load_delay_s=0.3)) as (gateway, _):
            answer = await gateway.infer(call("b", deadline_ms=100))
            assert answer.results[0].outcome is Outcome.MET
            assert answer.results[0].latency_ms < 100

    asyncio.run(main())


def test_a_call_that_nothing_is_known_of_waits_for_its_model_too() -> None:
    async def main() -> None:
        profile = make_profile(models=("a",))
        async with gateway_on_stand_in(
            profile, model("a"), model("b"), residency={"max_models": 1}, models=["a", "b"]
        ) as (gateway, triton):
            assert first_byte(await gateway.infer(call("b"))) == 7
            await gateway.infer(call("a"))
            assert [name for method, name in calls(triton) if method == "load"] == ["b", "a"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("break_it", "error"),
    [
        (lambda b: setattr(b, "load_error", "its file is cut off"), ModelLoadFailed),
        (None, ModelNotLoaded),
    ],
)
def test_a_call_whose_model_does_not_come_is_told_why(break_it: Any, error: type[Exception]) -> None:
    async def main() -> None:
        b = model("b")
        async with one_of_two(b=b) as (gateway, _):
            await gateway.infer(call("b"))
            if break_it is None:
                await gateway.unload_model("b")
            else:
                await gateway.load_model("a")
                break_it(b)
            with pytest.raises(error):
                await gateway.infer(call("b"))

    asyncio.run(main())


def test_a_model_beyond_the_budget_is_refused_and_nobody_gives_way() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            await gateway.infer(call("b"))
            await gateway.infer(call("a"))
            await admitted(gateway, model="a")
            triton.calls.clear()
            with pytest.raises(NoRoomForModel):
                await gateway.infer(call("b"))
            assert triton.log("load") == triton.log("unload") == []

    asyncio.run(main())


def test_only_models_that_are_to_be_served_are_loaded_when_they_are_called() -> None:
    async def main() -> None:
        async with gateway_on_stand_in(
            make_profile(models=("a",)), model("a"), model("b"), residency={"max_models": 1}
        ) as (gateway, triton):
            with pytest.raises(ModelNotLoaded, match="It is not served"):
                await gateway.infer(call("b"))
            assert triton.calls == []
            await gateway.load_model("b")  # but by command
            assert first_byte(await gateway.infer(call("b"))) == 7

    asyncio.run(main())


# ---------------------------------------------------------------- questions


def test_a_model_that_would_be_loaded_for_a_call_can_be_called_and_asked_about() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            facts = gateway.model_facts
            facts.check_callable("b")
            assert triton.calls == []
            assert (await facts.learn("b")).inputs[0].name == "frames"
            assert (await facts.config("a"))["name"] == "a"  # it had gone meanwhile
            await facts.learn("b")
            await gateway.load_model("b")
            with pytest.raises(UnknownModel):
                facts.check_callable("x")
            with pytest.raises(UnknownModel):
                await facts.learn("b", "2")
            with pytest.raises(ModelNotLoaded, match="not in memory now"):
                await facts.statistics("a")
            assert [each["name"] for each in (await facts.statistics())["model_stats"]] == ["b"]
            await gateway.unload_model("a")
            with pytest.raises(ModelNotLoaded, match="by command"):
                facts.check_callable("a")

    asyncio.run(main())


def test_the_gateway_is_ready_while_a_model_could_be_loaded() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, _):
            await gateway.unload_model("a")
            assert gateway.ready

    asyncio.run(main())


# ---------------------------------------------------------------- lost and broken models


async def served(gateway: Gateway, stream: str) -> bool:
    [ticket] = gateway.submit(stream, frame(1))
    return (await ticket.result).outcome is Outcome.MET


def test_a_model_that_somebody_else_unloads_is_loaded_again_when_it_is_needed() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            stream = await best_effort(gateway, "a")
            triton.models["a"].loaded = False
            await until(lambda: state(gateway, "a") is ModelState.ABSENT)
            assert calls(triton) == []
            assert await served(gateway, stream)
            assert calls(triton) == [("load", "a")]

    asyncio.run(main())


def test_a_model_that_somebody_else_loads_beyond_the_budget_does_not_stay() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            triton.models["b"].loaded = True
            await until(lambda: not triton.models["b"].loaded)
            assert calls(triton) == [("unload", "b")]
            assert state(gateway, "a") is ModelState.RESIDENT

    asyncio.run(main())


def test_a_model_whose_process_has_died_is_unloaded_and_loaded_when_it_is_needed() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            stream = await best_effort(gateway, "a")
            triton.error = lambda each: "" if triton.log("load") else "Stub process is not healthy."
            assert not await served(gateway, stream)
            await until(lambda: state(gateway, "a") is ModelState.ABSENT)
            assert await served(gateway, stream)
            assert calls(triton) == [("unload", "a"), ("load", "a")]

    asyncio.run(main())


def test_a_restarted_triton_gets_the_models_that_were_there_and_no_others() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            stream = await best_effort(gateway, "b")
            await gateway.load_model("b")
            await triton.restart()
            await until(lambda: not gateway.ready)
            with pytest.raises(TritonUnavailable):
                await gateway.infer(call("b"))
            triton.calls.clear()
            await until(lambda: gateway.ready)
            assert calls(triton) == [("load", "b")]
            assert await served(gateway, stream)
            assert gateway.view().memory.held == 1

    asyncio.run(main())


def test_a_gateway_unloads_what_it_finds_beyond_its_budget_before_it_loads() -> None:
    async def main() -> None:
        models = (model("a", loaded=True, unload_delay_s=0.2), model("b", loaded=True), Model("foreign"))
        profile = make_profile(models=("a", "b"))
        async with gateway_on_stand_in(profile, *models, residency={"max_models": 1}) as (gateway, triton):
            there = {name for name, each in triton.models.items() if each.loaded}
            assert there == {"a", "foreign"}  # nobody asked for it, and it is not ours
            assert gateway.view().memory.held == 1

    asyncio.run(main())


def test_a_lost_triton_in_the_middle_of_a_swap_leaves_no_memory_held() -> None:
    async def main() -> None:
        async with one_of_two(b=model("b", load_delay_s=0.3)) as (gateway, triton):
            stream = await best_effort(gateway, "a")
            load = asyncio.create_task(gateway.load_model("b"))
            await until(lambda: triton.log("load"))
            await triton.restart()
            with pytest.raises(TritonUnavailable):
                await load
            await until(lambda: gateway.ready)
            assert gateway.view().memory.held == 1
            assert await served(gateway, stream)

    asyncio.run(main())
