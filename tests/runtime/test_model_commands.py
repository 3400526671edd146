"""Load, unload and pin by command, at the gateway: how each ends, and what is said of models."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.core.types import ModelState, Outcome, ServiceClass
from gateway.core.view import ModelView
from gateway.errors import (
    ModelLoadFailed,
    ModelNotLoaded,
    ModelNotUnloaded,
    ModelPinned,
    NoRoomForModel,
    TritonUnavailable,
    UnknownModel,
)
from gateway.runtime.gateway import Gateway
from tests.runtime_support import admitted, frame, gateway_on_stand_in, make_profile, until
from tests.stand_in import Model, StandIn

BOTH = make_profile(models=("a", "b"))
ROOM_FOR_ONE = {"max_models": 1}


def model(name: str, **fields: Any) -> Model:
    return Model(name, **({"loaded": False, "load_delay_s": 0.02, "unload_delay_s": 0.02} | fields))


@asynccontextmanager
async def one_of_two(
    a: Model | None = None, b: Model | None = None, **residency: Any
) -> AsyncIterator[tuple[Gateway, StandIn]]:
    """A gateway with models a and b and room for one of them; a is there."""
    models = (a or model("a"), b or model("b"))
    async with gateway_on_stand_in(BOTH, *models, residency=ROOM_FOR_ONE | residency) as (gateway, triton):
        yield gateway, triton


def view(gateway: Gateway, name: str) -> ModelView:
    return next(each for each in gateway.model_views() if each.model == name)


def state(gateway: Gateway, name: str) -> ModelState:
    return view(gateway, name).state


def calls(triton: StandIn) -> list[tuple[str, str]]:
    return [(call.method, call.name) for call in triton.calls if call.method in ("load", "unload")]


async def best_effort(gateway: Gateway, name: str) -> str:
    stream = await admitted(gateway, model=name, deadline_ms=5_000, service_class=ServiceClass.BEST_EFFORT)
    return stream.stream_id


# ---------------------------------------------------------------- with a budget


def test_as_many_are_there_at_first_as_fit() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, _):
            assert {each.model: each.state for each in gateway.model_views()} == {
                "a": ModelState.RESIDENT,
                "b": ModelState.ABSENT,
            }
            assert gateway.view().memory.held == 1

    asyncio.run(main())


def test_a_load_by_command_has_another_one_give_way_and_answers_when_it_is_there() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            loaded = await gateway.load_model("b")
            assert (loaded.model, loaded.state, loaded.held) == ("b", ModelState.RESIDENT, 1)
            assert state(gateway, "a") is ModelState.ABSENT
            assert calls(triton) == [("unload", "a"), ("load", "b")]
            assert [call.rows for call in triton.log("infer")] == [1, 8]  # its warm-ups

    asyncio.run(main())


def test_the_log_says_why_models_come_and_go_and_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with one_of_two() as (gateway, _):
            await gateway.load_model("b")

    asyncio.run(main())
    said = re.sub(r"\d+ ms", "N ms", "\n".join(r.message for r in caplog.records if "model_control" in r.name))
    steps = ["unloading model a (eviction)", "model a is unloaded after N ms"]
    steps += ["loading model b (command)", "model b is loaded after N ms"]
    assert said.splitlines()[:4] == steps


def test_a_load_that_fails_is_not_said_to_have_ended_well(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with one_of_two(b=model("b", load_error="its file is cut off")) as (gateway, _):
            with pytest.raises(ModelLoadFailed):
                await gateway.load_model("b")

    asyncio.run(main())
    assert "model b: its file is cut off" in caplog.text
    assert "model b is loaded" not in caplog.text


def test_twenty_loads_at_once_are_one() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            views = await asyncio.gather(*(gateway.load_model("b") for _ in range(20)))
            assert {each.state for each in views} == {ModelState.RESIDENT}
            assert len(triton.log("load")) == 1

    asyncio.run(main())


def test_a_load_that_fails_is_told_in_tritons_words_and_gives_its_memory_back() -> None:
    async def main() -> None:
        b = model("b", load_error="its file is cut off")
        async with one_of_two(b=b) as (gateway, _):
            with pytest.raises(ModelLoadFailed, match="its file is cut off") as caught:
                await gateway.load_model("b")
            assert caught.value.retry_after_s
            assert (state(gateway, "b"), view(gateway, "b").reason) == (ModelState.FAILED, "its file is cut off")
            assert gateway.view().memory.held == 0
            b.load_error = ""
            assert (await gateway.load_model("b")).state is ModelState.RESIDENT  # a command does not wait for the pause

    asyncio.run(main())


def test_a_warm_up_that_fails_ends_the_load_and_the_model_does_not_stay() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            triton.error = lambda call: "no kernel" if call.name == "b" else ""
            with pytest.raises(ModelLoadFailed, match="no kernel"):
                await gateway.load_model("b")
            await until(lambda: ("unload", "b") in calls(triton))
            await until(lambda: gateway.view().memory.held == 0)
            assert not triton.models["b"].loaded

    asyncio.run(main())


def test_a_batch_that_cannot_be_warmed_where_a_frame_can_is_no_reason_not_to_use_a_model() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            triton.error = lambda call: "only one at a time" if call.rows > 1 else ""
            assert (await gateway.load_model("b")).state is ModelState.RESIDENT
            assert [category.model for category in gateway.view().limited] == ["b"]

    asyncio.run(main())


def test_a_load_that_never_answers_fails_in_time_and_does_not_stay_when_it_comes() -> None:
    async def main() -> None:
        b = model("b", load_hangs=True)
        async with one_of_two(b=b, load_timeout_s=0.3, unload_timeout_s=0.5) as (gateway, triton):
            began = time.monotonic()
            with pytest.raises(ModelLoadFailed, match=r"within 0\.3 s"):
                await gateway.load_model("b")
            assert time.monotonic() - began < 2
            assert gateway.view().memory.held == 1, "Triton is at it still"
            await until(lambda: gateway.view().memory.held == 0)
            stream = await best_effort(gateway, "a")
            [ticket] = gateway.submit(stream, frame(1))
            assert (await ticket.result).outcome is Outcome.MET  # others are served meanwhile
            b.load_hangs = False
            await until(lambda: ("unload", "b") in calls(triton) and not b.loaded)
            assert b.loads == 1

    asyncio.run(main())


def test_unloaded_by_command_it_stays_away_and_says_so_until_it_is_loaded_by_command() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            stream = await best_effort(gateway, "a")
            gone = await gateway.unload_model("a")
            assert (gone.state, gone.barred, gone.held) == (ModelState.ABSENT, True, 0)
            assert triton.repository.index()[0][2] == "UNAVAILABLE"
            [ticket] = gateway.submit(stream, frame(1))
            result = await ticket.result
            assert (result.outcome, result.reason) == (Outcome.FAILED, "model_unloaded")
            with pytest.raises(ModelNotLoaded, match="by command"):
                await admitted(gateway, model="a")
            with pytest.raises(ModelNotLoaded, match="by command"):
                await gateway.pin_model("a")
            await gateway.load_model("a")
            [ticket] = gateway.submit(stream, frame(1))
            assert (await ticket.result).outcome is Outcome.MET

    asyncio.run(main())


def test_an_unload_waits_for_the_job_that_runs() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            stream = await best_effort(gateway, "a")
            triton.delay_s = lambda call: 0.2
            [ticket] = gateway.submit(stream, frame(1))
            await until(lambda: triton.log("infer"))
            await gateway.unload_model("a")
            assert (await ticket.result).outcome is Outcome.MET
            [infer], [unload] = triton.log("infer"), triton.log("unload")
            assert unload.began >= (infer.ended or 0)

    asyncio.run(main())


def test_what_streams_or_a_pin_need_stays_unless_it_is_forced() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, _):
            await admitted(gateway, model="a")
            with pytest.raises(ModelPinned, match="real-time streams") as caught:
                await gateway.unload_model("a")
            assert caught.value.members["pins"] == ["stream"]
            await gateway.pin_model("a")
            with pytest.raises(ModelPinned) as caught:
                await gateway.unload_model("a")
            assert caught.value.members["pins"] == ["stream", "command"]
            assert (await gateway.unload_model("a", force=True)).state is ModelState.ABSENT

    asyncio.run(main())


def test_there_is_no_room_beside_what_is_pinned_and_the_figures_say_why() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            await gateway.pin_model("a")
            for refused in (gateway.load_model("b"), gateway.pin_model("b")):
                with pytest.raises(NoRoomForModel) as caught:
                    await refused
                memory: Any = caught.value.members["memory"]
                assert (memory["needed"], memory["budget"], memory["free"]) == (1, 1, 0)
                assert memory["held"] == {"a": 1}
            assert calls(triton) == []
            await gateway.pin_model("a", pinned=False)
            assert (await gateway.load_model("b")).state is ModelState.RESIDENT

    asyncio.run(main())


def test_a_pinned_model_that_is_absent_is_loaded_as_soon_as_it_fits() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, _):
            pinned = await gateway.pin_model("b")
            assert pinned.pins == ("command",)
            await until(lambda: state(gateway, "b") is ModelState.RESIDENT)

    asyncio.run(main())


def test_the_last_command_decides() -> None:
    async def main() -> None:
        async with one_of_two(b=model("b", load_delay_s=0.2, unload_delay_s=0.1)) as (gateway, triton):
            load = asyncio.create_task(gateway.load_model("b"))
            await until(lambda: triton.log("load"))
            unload = asyncio.create_task(gateway.unload_model("b"))
            with pytest.raises(ModelNotLoaded):
                await load
            assert (await unload).state is ModelState.ABSENT
            again = asyncio.create_task(gateway.unload_model("a"))
            await asyncio.sleep(0)
            assert (await gateway.load_model("a")).state is ModelState.RESIDENT
            await asyncio.gather(again, return_exceptions=True)
            assert state(gateway, "a") is ModelState.RESIDENT

    asyncio.run(main())


def test_a_model_that_triton_does_not_let_go_of_is_still_there() -> None:
    async def main() -> None:
        async with one_of_two(a=model("a", unload_error="it is in use")) as (gateway, _):
            with pytest.raises(ModelNotUnloaded, match="it is in use"):
                await gateway.unload_model("a")
            assert state(gateway, "a") is ModelState.RESIDENT
            assert gateway.view().memory.held == 1

    asyncio.run(main())


def test_whoever_waits_for_a_model_is_told_when_triton_is_lost() -> None:
    async def main() -> None:
        async with one_of_two(b=model("b", load_hangs=True)) as (gateway, triton):
            load = asyncio.create_task(gateway.load_model("b"))
            await until(lambda: triton.log("load"))
            await triton.stop()
            with pytest.raises(TritonUnavailable):
                await load
            with pytest.raises(TritonUnavailable):
                await gateway.load_model("b")

    asyncio.run(main())


def test_a_cancelled_command_leaves_nobody_waiting() -> None:
    async def main() -> None:
        async with one_of_two(b=model("b", load_delay_s=0.2)) as (gateway, triton):
            load = asyncio.create_task(gateway.load_model("b"))
            await until(lambda: triton.log("load"))
            load.cancel()
            await asyncio.wait((load,))
            await until(lambda: state(gateway, "b") is ModelState.RESIDENT)
            assert gateway._parts.waits._waiters == {}

    asyncio.run(main())


def test_nobody_loads_a_model_that_the_repository_does_not_have() -> None:
    async def main() -> None:
        async with one_of_two() as (gateway, triton):
            for refused in (gateway.load_model("x"), gateway.unload_model("x"), gateway.pin_model("x")):
                with pytest.raises(UnknownModel):
                    await refused
            assert [each.model for each in gateway.model_views()] == ["a", "b"]
            assert triton.log("load") == []

    asyncio.run(main())


# ---------------------------------------------------------------- without a budget


def test_without_a_budget_all_are_there_and_commands_move_them() -> None:
    async def main() -> None:
        async with gateway_on_stand_in(BOTH, model("a"), model("b"), model("c")) as (gateway, triton):
            assert {each.model: each.state for each in gateway.model_views()} == {
                "a": ModelState.RESIDENT,
                "b": ModelState.RESIDENT,
                "c": ModelState.ABSENT,
            }
            assert (await gateway.unload_model("b")).state is ModelState.ABSENT
            with pytest.raises(ModelNotLoaded, match="by command"):
                await admitted(gateway, model="b")
            await asyncio.sleep(1.2)  # the watch looks once a second: it has seen that b is gone
            assert calls(triton) == [("unload", "b")]
            assert (await gateway.load_model("b")).state is ModelState.RESIDENT
            assert (await gateway.load_model("c")).state is ModelState.RESIDENT
            await admitted(gateway, model="b")

    asyncio.run(main())


def test_without_a_budget_a_model_that_could_not_be_loaded_is_failed_and_comes_by_command() -> None:
    async def main() -> None:
        b = model("b", load_error="its file is cut off")
        async with gateway_on_stand_in(BOTH, model("a"), b) as (gateway, _):
            assert state(gateway, "b") is ModelState.FAILED
            assert "its file is cut off" in view(gateway, "b").reason
            b.load_error = ""
            assert (await gateway.load_model("b")).state is ModelState.RESIDENT
            await admitted(gateway, model="b")

    asyncio.run(main())


def test_without_a_budget_a_restarted_triton_gets_what_was_loaded_by_command() -> None:
    async def main() -> None:
        async with gateway_on_stand_in(BOTH, model("a"), model("b"), model("c")) as (gateway, triton):
            await gateway.load_model("c")
            await gateway.unload_model("b")
            await triton.restart()
            await until(lambda: not gateway.ready)
            await until(lambda: gateway.ready)
            assert {each.model: each.state for each in gateway.model_views()} == {
                "a": ModelState.RESIDENT,
                "b": ModelState.ABSENT,
                "c": ModelState.RESIDENT,
            }

    asyncio.run(main())
