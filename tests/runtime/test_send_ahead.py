"""The next job waits in Triton for the running one, if Triton is known to execute one at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from gateway.core.events import SerialModels
from gateway.core.types import OnLate, Outcome
from gateway.runtime import repairs
from gateway.runtime.call_turns import CallTurns
from gateway.runtime.gateway import Gateway
from gateway.runtime.models import Catalogue
from gateway.runtime.results import FrameResult
from gateway.runtime.serial import SerialWatch, serial_models
from gateway.triton.types import ModelMetadata
from tests.runtime_support import admitted, frame, gateway_on_stand_in, make_profile, until
from tests.stand_in import Model, StandIn

#: What one job takes. The next one is sent when half of that is left.
EXECUTION_S = 0.08


def run(test: Callable[[Gateway, StandIn], Awaitable[None]], *models: Model, **options: Any) -> None:
    """One frame a job; Triton takes `EXECUTION_S` for each."""
    limited = options.pop("rate_limited", True)
    options["triton"] = {"rate_limited": limited} | options.get("triton", {})

    async def main() -> None:
        profile = make_profile(batches=(1,), execution_ms=1.25e3 * EXECUTION_S)
        async with gateway_on_stand_in(
            profile, *models or (Model("echo", serial=True),), scheduling={"send_ahead_ms": 1_000}, **options
        ) as (gateway, triton):
            triton.delay_s = lambda call: EXECUTION_S
            await test(gateway, triton)
            await until(lambda: gateway.arena.batches == 0)

    asyncio.run(main())


async def one_after_the_other(gateway: Gateway, frames: int = 2) -> list[FrameResult]:
    record = await admitted(gateway, period_ms=1_000, deadline_ms=3_000, on_late=OnLate.SERVE)
    tickets = [gateway.submit(record.stream_id, frame(value))[0] for value in range(frames)]
    return [await ticket.result for ticket in tickets]


def test_the_next_job_is_in_triton_before_the_running_one_has_ended() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        results = await one_after_the_other(gateway, frames=3)
        assert [result.outcome for result in results] == [Outcome.MET] * 3
        assert [int(result.outputs["echo"][0, 0, 0]) for result in results if result.outputs] == [0, 1, 2]
        calls = triton.log("infer")
        for call, following in pairwise(calls):
            assert call.ended is not None
            assert following.began < call.ended - EXECUTION_S / 8, "it was there before"
            assert following.ran >= call.ended - 0.005, "and waited"
        # From the end of the one before it, not from when it was sent.
        assert all(result.execute_ms is not None for result in results)
        assert max(result.execute_ms or 0.0 for result in results) < 1.4e3 * EXECUTION_S

    run(test)


@pytest.mark.parametrize(("serial", "rate_limited"), [(True, False), (False, True)])
def test_it_is_not_where_both_might_run_at_once(serial: bool, rate_limited: bool) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        await one_after_the_other(gateway)
        first, second = triton.log("infer")
        assert first.ended is not None
        assert second.began >= first.ended

    run(test, Model("echo", serial=serial), rate_limited=rate_limited)


def test_its_time_begins_when_the_other_one_has_ended() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        results = await one_after_the_other(gateway)
        assert [result.outcome for result in results] == [Outcome.MET] * 2
        second = triton.log("infer")[1]
        assert second.ended is not None
        assert second.ended - second.began > 1.2 * EXECUTION_S, "longer than the limit of one call"

    run(test, triton={"call_timeout_ms": 1.2e3 * EXECUTION_S})


def test_with_a_job_that_is_given_up_the_one_behind_it_fails() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 4 * EXECUTION_S
        results = await one_after_the_other(gateway)
        assert [result.outcome for result in results] == [Outcome.FAILED] * 2
        assert results[1].reason == "worker_lost"
        triton.delay_s = lambda call: 0.0
        await until(lambda: gateway.ready)

    run(test, triton={"call_timeout_ms": 1.5e3 * EXECUTION_S, "connect_timeout_ms": 2_000})


def test_one_that_is_refused_leaves_the_next_one_running() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.indigestible = lambda frames: "poison" if frames[0, 0] == 0 else ""
        first, second = await one_after_the_other(gateway)
        assert (first.outcome, second.outcome) == (Outcome.FAILED, Outcome.MET)

    run(test)


def test_a_model_is_not_broken_because_its_examination_waited_for_the_job_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That one is in Triton already, and takes longer than the examination may."""
    monkeypatch.setattr(repairs, "_PROBE_LIMIT_S", EXECUTION_S)
    monkeypatch.setattr(repairs, "_PROBE_LIMIT_FACTOR", 0)

    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.indigestible = lambda frames: "poison" if frames[0, 0] == 66 else ""
        triton.delay_s = lambda call: {1: EXECUTION_S, 2: 3 * EXECUTION_S}.get(len(triton.log("infer")), 0.0)
        record = await admitted(gateway, period_ms=1_000, deadline_ms=3_000, on_late=OnLate.SERVE)
        tickets = [gateway.submit(record.stream_id, frame(value))[0] for value in (66, 1)]
        first, second = [await ticket.result for ticket in tickets]
        assert (first.outcome, first.reason) == (Outcome.FAILED, "poison")
        assert second.outcome is Outcome.MET
        refused, behind, probe = triton.log("infer")
        assert refused.ended is not None
        assert behind.ended is not None
        assert behind.began < refused.ended, "else there was nothing to wait for"
        assert probe.began >= behind.ended
        assert triton.log("unload") == []

    run(test)


# ---------------------------------------------------------------- which models


def metadata(name: str, *resources: tuple[str, int], version: str = "1", serial: bool = True) -> ModelMetadata:
    return ModelMetadata(name, version, (version,), "", 8, (), (), resources, serial)


def test_models_that_share_one_resource_never_execute_at_once() -> None:
    a, b = metadata("a", ("device", 1)), metadata("b", ("device", 1), ("device", 1))
    assert serial_models([a, b]) == {"a", "b"}
    assert serial_models([]) == frozenset()
    assert serial_models([metadata("a")]) == frozenset()


@pytest.mark.parametrize(
    "other",
    [
        metadata("c"),
        metadata("c", ("other", 1)),
        metadata("c", ("device", 1), ("other", 1)),
        metadata("c", ("device", 1), serial=False),
    ],
)
def test_others_may(other: ModelMetadata) -> None:
    assert serial_models([metadata("a", ("device", 1)), metadata("b", ("device", 1)), other]) == {"a", "b"}


def test_one_that_asks_for_more_makes_room_for_two_of_the_rest() -> None:
    """There is as much of a resource as is asked for at most."""
    assert serial_models([metadata("a", ("device", 1)), metadata("c", ("device", 2))]) == frozenset()


def test_all_versions_count() -> None:
    assert serial_models([metadata("a", ("device", 1)), metadata("a", version="2"), metadata("b", ("device", 1))]) == {
        "b"
    }


def test_the_engine_is_told_of_every_change() -> None:
    catalogue, said = Catalogue(), []
    SerialWatch(catalogue, said.append, rate_limited=True)
    catalogue.serve(metadata("a", ("device", 1)))
    catalogue.serve(metadata("a", ("device", 1)))
    catalogue.leave("a")
    assert said == [SerialModels(frozenset()), SerialModels(frozenset("a")), SerialModels(frozenset())]


def test_of_a_triton_that_may_run_two_at_once_nothing_is_said() -> None:
    catalogue, said = Catalogue(), []
    SerialWatch(catalogue, said.append, rate_limited=False)
    catalogue.serve(metadata("a", ("device", 1)))
    assert said == [SerialModels(frozenset())]


# ---------------------------------------------------------------- turns


def test_jobs_go_side_by_side_and_a_warm_up_alone() -> None:
    async def main() -> None:
        turns, log = CallTurns(), []
        gates = {name: asyncio.Event() for name in "abwc"}

        async def call(name: str, *, alone: bool = False) -> None:
            async with turns.take(alone=alone):
                log.append(name)
                await gates[name].wait()

        async def begin(name: str, **options: bool) -> "asyncio.Task[None]":
            task = asyncio.create_task(call(name, **options))
            await asyncio.sleep(0)
            return task

        tasks = [await begin("a"), await begin("b"), await begin("w", alone=True), await begin("c")]
        assert log == ["a", "b"], "first come, first served: c waits behind the warm-up"
        for name, seen in (("a", "ab"), ("b", "abw"), ("w", "abwc")):
            gates[name].set()
            for _ in range(5):
                await asyncio.sleep(0)
            assert log == list(seen)
        gates["c"].set()
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_whoever_stops_waiting_is_in_nobodys_way() -> None:
    async def main() -> None:
        turns = CallTurns()

        async def call(*, alone: bool) -> None:
            async with turns.take(alone=alone):
                pass

        async with turns.take():
            waiting = asyncio.create_task(call(alone=True))
            behind = asyncio.create_task(call(alone=False))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait_for(behind, 1)
        async with turns.take():
            given = asyncio.create_task(call(alone=True))
            await asyncio.sleep(0)
        given.cancel()  # its turn has just come
        await asyncio.wait([given])
        await asyncio.wait_for(call(alone=True), 1)

    asyncio.run(main())
