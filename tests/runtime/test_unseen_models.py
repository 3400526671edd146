"""Streams of models that were never in memory here: their profile says what they are, until Triton does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.core.profile import Profile
from gateway.core.profile_entry import ModelEntry, ProfileEntry
from gateway.core.types import ModelState, Outcome, ServiceClass, StreamSpec
from gateway.core.verdict import CounterOffer, Reason
from gateway.errors import DtypeMismatch, ModelNotLoaded, ShapeMismatch, UnknownModel
from gateway.runtime.gateway import Gateway
from tests.runtime.test_model_commands import best_effort, calls, model, state
from tests.runtime_support import SHAPE, admitted, frame, gateway_on_stand_in, make_profile, make_spec
from tests.stand_in import Model, StandIn

WIDE: dict[str, Any] = {"period_ms": 1_000, "deadline_ms": 4_000}
SMALL = (4, 4, 3)


def profile_of(entries: tuple[ProfileEntry, ...]) -> Profile:
    return Profile(entries, tuple(ModelEntry(name, "1", 20.0, 20.0, 1 << 20) for name in ("a", "b")))


TWO_SHAPES = profile_of(make_profile(models="ab", shapes=(SHAPE, SMALL)).entries)


@asynccontextmanager
async def b_unseen(
    b: Model | None = None, profile: Profile = TWO_SHAPES, **groups: Any
) -> AsyncIterator[tuple[Gateway, StandIn]]:
    """A gateway with models a and b and room for one; a is there, and b never was."""
    a = model("a", dims=(-1, -1, 3))
    groups = {"residency": {"max_models": 1}} | groups
    async with gateway_on_stand_in(profile, a, b or model("b"), **groups) as (gateway, triton):
        assert state(gateway, "a") is ModelState.RESIDENT
        yield gateway, triton


def b_spec(**fields: Any) -> StreamSpec:
    return make_spec(**(WIDE | {"model": "b"} | fields))


def test_two_that_allow_swapping_take_turns_on_a_fresh_gateway() -> None:
    async def main() -> None:
        async with b_unseen() as (gateway, triton):
            streams = [await admitted(gateway, model=name, swapping=True, **WIDE) for name in ("a", "b")]
            assert all(gateway.takes_turns(name) for name in ("a", "b"))
            assert calls(triton) == []
            tickets = [gateway.submit(stream.stream_id, frame(1))[0] for stream in streams]
            assert {(await ticket.result).outcome for ticket in tickets} == {Outcome.MET}
            assert gateway.stream_version(streams[1]).version == "1"

    asyncio.run(main())


def test_what_has_no_room_is_refused_with_figures_and_with_what_would_be_admitted() -> None:
    async def main() -> None:
        async with b_unseen() as (gateway, triton):
            await admitted(gateway, model="a", swapping=True, **WIDE)
            for answer in (await gateway.register(b_spec()), await gateway.check(b_spec())):
                assert answer.verdict.reason is Reason.MEMORY
                assert answer.verdict.memory is not None
                assert answer.verdict.memory.held == (("a", 1),)
                assert CounterOffer("swapping", 1) in answer.offers
            assert calls(triton) == []

    asyncio.run(main())


@pytest.mark.parametrize("fields", [{}, {"swapping": True}, {"service_class": ServiceClass.BEST_EFFORT}])
def test_whether_one_would_be_admitted_is_answered_without_a_load(fields: dict[str, Any]) -> None:
    async def main() -> None:
        async with b_unseen() as (gateway, triton):
            checked = await gateway.check(b_spec(**fields))
            assert checked.verdict.admitted
            assert checked.spec.version == "1"
            assert calls(triton) == []

    asyncio.run(main())


def test_a_stream_that_would_stay_has_its_model_loaded_first() -> None:
    async def main() -> None:
        async with b_unseen(model("b", load_delay_s=0.3)) as (gateway, triton):
            stream = await admitted(gateway, model="b", **WIDE)
            assert state(gateway, "b") is ModelState.RESIDENT
            assert stream.spec.version == "1"
            assert calls(triton) == [("unload", "a"), ("load", "b")]

    asyncio.run(main())


def test_best_effort_waits_with_its_frames_not_with_its_registration() -> None:
    async def main() -> None:
        async with b_unseen() as (gateway, triton):
            stream = await best_effort(gateway, "b")
            assert calls(triton) == []
            [ticket] = gateway.submit(stream, frame(1))
            assert (await ticket.result).outcome is Outcome.MET
            assert calls(triton) == [("unload", "a"), ("load", "b")]

    asyncio.run(main())


def test_best_effort_is_registered_beside_a_model_that_stays_and_its_frames_say_why_they_fail() -> None:
    async def main() -> None:
        async with b_unseen() as (gateway, triton):
            await admitted(gateway, model="a", **WIDE)
            stream = await best_effort(gateway, "b")
            [ticket] = gateway.submit(stream, frame(1))
            result = await ticket.result
            assert result.outcome is Outcome.FAILED
            assert result.reason.startswith("no_room: ")
            assert calls(triton) == []

    asyncio.run(main())


@pytest.mark.parametrize("fields", [{"shape": (8, 8)}, {"dtype": "FP32"}, {"version": "7"}])
@pytest.mark.parametrize("service_class", list(ServiceClass))
def test_what_is_not_profiled_is_refused_and_nothing_gives_way_to_it(
    fields: dict[str, Any], service_class: ServiceClass
) -> None:
    async def main() -> None:
        async with b_unseen() as (gateway, triton):
            refused = await gateway.register(b_spec(service_class=service_class, **fields))
            assert refused.verdict.reason is Reason.NOT_PROFILED
            assert calls(triton) == []

    asyncio.run(main())


def test_of_several_profiled_versions_the_newest_is_taken() -> None:
    async def main() -> None:
        newer = [ProfileEntry("b", version, SHAPE, "UINT8", 1, 9, 1.0, 1.0, 1.0) for version in ("9", "10")]
        async with b_unseen(profile=profile_of((*make_profile(models="ab").entries, *newer))) as (gateway, _):
            assert (await gateway.check(b_spec())).spec.version == "10"
            assert (await gateway.check(b_spec(version="9"))).spec.version == "9"

    asyncio.run(main())


def test_it_has_to_be_one_that_is_to_be_served_and_that_is_there() -> None:
    async def main() -> None:
        async with b_unseen(models=["a"]) as (gateway, triton):
            with pytest.raises(ModelNotLoaded, match="list of models to serve"):
                await gateway.register(b_spec())
            with pytest.raises(UnknownModel):
                await gateway.check(b_spec(model="x"))
            assert calls(triton) == []

    asyncio.run(main())


def test_one_that_was_unloaded_by_command_is_refused() -> None:
    async def main() -> None:
        async with b_unseen() as (gateway, _):
            await gateway.unload_model("b")
            for ask in (gateway.register, gateway.check):
                with pytest.raises(ModelNotLoaded, match="by command"):
                    await ask(b_spec(service_class=ServiceClass.BEST_EFFORT))

    asyncio.run(main())


# ---------------------------------------------------------------- it turns out to be another one


def test_a_stream_that_waited_for_its_model_is_checked_against_it() -> None:
    async def main() -> None:
        async with b_unseen(model("b", dims=SMALL)) as (gateway, _):
            with pytest.raises(ShapeMismatch):
                await gateway.register(b_spec())
            assert gateway.streams() == []

    asyncio.run(main())


@pytest.mark.parametrize("service_class", list(ServiceClass))
def test_streams_whose_frames_it_does_not_take_end_and_the_others_go_on(service_class: ServiceClass) -> None:
    async def main() -> None:
        async with b_unseen(model("b", dims=SMALL)) as (gateway, _):
            turns = service_class is ServiceClass.REAL_TIME
            fields: dict[str, Any] = {"service_class": service_class, "model": "b", "swapping": turns, **WIDE}
            if turns:
                await admitted(gateway, model="a", swapping=True, **WIDE)
            other, right = await admitted(gateway, **fields), await admitted(gateway, shape=SMALL, **fields)
            tickets = [
                gateway.submit(other.stream_id, frame(1))[0],
                gateway.submit(right.stream_id, frame(1, SMALL))[0],
            ]
            results = [await ticket.result for ticket in tickets]
            assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.MET]
            assert "shape" in results[0].reason
            assert (other.close_reason, right.state) == ("model_changed", "active")
            assert state(gateway, "b") is ModelState.RESIDENT
            with pytest.raises(ShapeMismatch):
                await gateway.register(b_spec())

    asyncio.run(main())


def test_other_datatypes_are_other_frames() -> None:
    async def main() -> None:
        async with b_unseen(model("b", datatype="FP32")) as (gateway, _):
            stream = await admitted(gateway, model="b", service_class=ServiceClass.BEST_EFFORT, **WIDE)
            [ticket] = gateway.submit(stream.stream_id, frame(1))
            assert (await ticket.result).outcome is Outcome.FAILED
            assert stream.close_reason == "model_changed"
            with pytest.raises(DtypeMismatch):
                await gateway.register(b_spec())

    asyncio.run(main())


def test_streams_that_named_a_version_which_it_has_not_end_and_the_others_go_on() -> None:
    async def main() -> None:
        async with b_unseen(model("b", versions=("2",))) as (gateway, _):
            fields: dict[str, Any] = {"service_class": ServiceClass.BEST_EFFORT, "model": "b", **WIDE}
            named, free = await admitted(gateway, version="1", **fields), await admitted(gateway, **fields)
            [of_named] = gateway.submit(named.stream_id, frame(1))
            [of_free] = gateway.submit(free.stream_id, frame(2))
            result = await of_named.result
            assert result.outcome is Outcome.FAILED
            assert "version" in result.reason
            assert ((await of_free.result).outcome, (await of_free.result).version) == (Outcome.MET, "2")
            assert (named.close_reason, free.state) == ("version_gone", "active")

    asyncio.run(main())
