"""The facade, on the stand-in: registrations, frames, results, books."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from gateway.core.types import OnLate, Outcome
from gateway.core.verdict import Reason
from gateway.errors import (
    ArenaFull,
    ArenaTooSmall,
    BodyTooLarge,
    DtypeMismatch,
    FramegateError,
    FrameSizeMismatch,
    ModelNotLoaded,
    NotProfiled,
    ShapeMismatch,
    Stopping,
    StreamClosed,
    StreamFinished,
    StreamNotFound,
    TooManyStreams,
    TritonUnavailable,
    UnknownModel,
)
from gateway.runtime.gateway import Gateway
from tests.runtime_support import (
    SHAPE,
    admitted,
    frame,
    gateway_on_stand_in,
    make_profile,
    make_settings,
    make_spec,
    running_gateway,
    shm_files,
    until,
)
from tests.stand_in import Model, StandIn

Test = Callable[[Gateway, StandIn], Awaitable[None]]


def run(test: Test, *models: Model, profile: Any = None, **options: Any) -> None:
    async def main() -> None:
        async with gateway_on_stand_in(profile, *models, **options) as (gateway, triton):
            await test(gateway, triton)
            balanced(gateway)

    before = shm_files()
    asyncio.run(main())
    assert shm_files() == before


def balanced(gateway: Gateway) -> None:
    totals, in_flight = gateway.totals, sum(record.in_flight for record in gateway.streams())
    assert sum(totals.accepted.values()) == sum(totals.ended.values()) + in_flight


# ---------------------------------------------------------------- registration


def test_a_stream_is_admitted_at_the_newest_version() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        assert (record.spec.version, record.category.version) == ("1", "1")
        assert gateway.stream(record.stream_id) is record
        assert gateway.streams() == [record]
        assert [view.stream_id for view in gateway.view().streams] == [record.stream_id]

    run(test)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": "nobody"}, UnknownModel),
        ({"model": "../echo"}, UnknownModel),
        ({"version": "7"}, UnknownModel),
        ({"version": "latest"}, UnknownModel),
        ({"model": "idle"}, ModelNotLoaded),
        ({"shape": (8, 8, 4)}, ShapeMismatch),
        ({"shape": (8, 8)}, ShapeMismatch),
        ({"shape": (1, 8, 8, 3)}, ShapeMismatch),
        ({"dtype": "FP32"}, DtypeMismatch),
        ({"model": "narrow"}, NotProfiled),
    ],
)
def test_what_does_not_fit_the_model_is_refused_without_a_call(fields: dict[str, Any], error: type) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        with pytest.raises(error):
            await gateway.register(make_spec(**fields))
        with pytest.raises(error):
            await gateway.check(make_spec(**fields))
        assert gateway.streams() == []
        assert triton.calls == []

    models = (Model("echo"), Model("idle", loaded=False), Model("narrow", max_batch_size=2))
    run(test, *models, profile=make_profile(models=["echo", "narrow"]))


def test_a_refusal_carries_evidence_and_offers_that_hold() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        await admitted(gateway, period_ms=20, deadline_ms=60)
        refused = await gateway.register(make_spec(4, 9))
        assert refused.rejected
        assert refused.stream is None
        assert refused.searched
        assert refused.verdict.reason in {Reason.UTILIZATION, Reason.DEADLINE_MISS}
        assert len(gateway.streams()) == 1
        checked = await gateway.check(make_spec(4, 9))
        assert checked.offers == refused.offers
        assert {offer.field for offer in refused.offers} & {"period_ns", "deadline_ns"}
        for offer in refused.offers:
            changed = {"period_ms": 4.0, "deadline_ms": 9.0} | {offer.field.replace("_ns", "_ms"): offer.value / 1e6}
            assert not (await gateway.check(make_spec(**changed))).rejected

    run(test, profile=make_profile(execution_ms=5))


def test_a_check_admits_nothing() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        answer = await gateway.check(make_spec())
        assert not answer.rejected
        assert answer.stream is None
        assert gateway.streams() == []

    run(test)


def test_what_is_not_profiled_is_refused_with_a_verdict() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        refused = await gateway.register(make_spec(shape=(16, 16, 3)))
        assert refused.verdict.reason is Reason.NOT_PROFILED

    run(test)


def test_limits_of_streams_memory_and_messages() -> None:
    """A profiled shape that cannot be carried is refused, and does not keep its model from being served."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        with pytest.raises(ArenaTooSmall):
            await gateway.register(make_spec(shape=(900, 900, 3)))
        with pytest.raises(BodyTooLarge, match="FRAMEGATE_TRITON__MAX_MESSAGE_BYTES") as refusal:
            await gateway.register(make_spec(shape=(592, 592, 3)))
        assert refusal.value.members == {"limit_bytes": 1 << 20}
        await admitted(gateway)
        with pytest.raises(TooManyStreams):
            await gateway.register(make_spec())

    run(
        test,
        profile=make_profile(batches=(1,), shapes=[SHAPE, (592, 592, 3), (900, 900, 3)]),
        limits={"max_streams": 1},
        arena={"bytes": 2 << 20},
        triton={"shared_memory": "off", "max_message_bytes": 1 << 20},
    )


# ---------------------------------------------------------------- frames


def test_each_frame_gets_its_own_answer_whatever_is_batched_with_it() -> None:
    """Field report 21: random batches, two shapes, random delays."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        chance = random.Random(1)
        triton.delay_s = lambda call: chance.uniform(0, 0.002)
        shapes = [SHAPE, (4, 16, 3)]
        records = [
            await admitted(gateway, shape=shape, period_ms=40, deadline_ms=10_000) for shape in shapes for _ in "ab"
        ]
        expected: list[tuple[int, tuple[int, ...], asyncio.Future[Any]]] = []
        for number in range(800):
            record = chance.choice(records)
            count, value = chance.randint(1, 3), number % 256
            body = b"".join(frame((value + i) % 256, record.spec.shape) for i in range(count))
            expected += [
                ((value + i) % 256, record.spec.shape, ticket.result)
                for i, ticket in enumerate(gateway.submit(record.stream_id, body))
            ]
            if chance.random() < 0.4:
                await asyncio.sleep(chance.uniform(0, 0.006))
        for value, shape, future in expected:
            result = await future
            assert result.outcome in {Outcome.MET, Outcome.MISSED}
            assert result.outputs["stamp"][0] == value
            assert result.outputs["echo"].shape == shape
            assert (result.outputs["echo"] == value).all()
        sizes = {call.rows for call in triton.log("infer")}
        assert len(sizes) >= 4, f"only batches of {sizes} were formed"
        assert gateway.arena.batches == 0

    run(test, profile=make_profile(shapes=[SHAPE, (4, 16, 3)]))


@pytest.mark.parametrize("way", ["auto", "off"])
def test_both_ways_to_triton_give_the_same_results(way: str) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        body = np.random.default_rng(3).integers(0, 256, (5, *SHAPE), dtype=np.uint8)
        tickets = gateway.submit(record.stream_id, body.tobytes())
        for row, ticket in enumerate(tickets):
            np.testing.assert_array_equal((await ticket.result).outputs["echo"], body[row])
        assert {call.way for call in triton.log("infer")} == {"shm" if way == "auto" else "message"}
        assert bool(triton.regions) == (way == "auto")

    run(test, triton={"shared_memory": way})


def test_a_result_says_where_the_time_went() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.05
        record = await admitted(gateway, deadline_ms=5_000)
        [first] = gateway.submit(record.stream_id, frame(1))
        [second] = gateway.submit(record.stream_id, frame(2))
        results = [await first.result, await second.result]
        for result in results:
            assert result.latency_ms == pytest.approx(result.queue_ms + result.execute_ms)
            assert (result.outcome, result.reason, result.deadline_ms, result.batch) == (Outcome.MET, "", 5_000, 1)
            assert result.execute_ms >= 50
        assert results[0].queue_ms < results[1].queue_ms

    run(test)


def test_bad_bodies_leave_the_stream_as_it_was() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        size = record.frame_bytes
        for bad in (b"", bytes(size - 1), bytes(size + 1), bytes(3 * size - 1), bytes(4 * size)[: -size // 2]):
            with pytest.raises(FrameSizeMismatch) as refusal:
                gateway.submit(record.stream_id, bad)
            assert refusal.value.members == {"expected_bytes": size, "received_bytes": len(bad)}
        [ticket] = gateway.submit(record.stream_id, frame(9))
        assert (await ticket.result).seq == 0
        assert gateway.totals.refused["frame_size_mismatch"] == record.refused["frame_size_mismatch"] == 8

    run(test)


def test_a_finite_stream_takes_its_frames_and_no_more() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway, frames=3)
        tickets = gateway.submit(record.stream_id, frame(1) * 2)
        with pytest.raises(StreamFinished):
            gateway.submit(record.stream_id, frame(1) * 2)
        tickets += gateway.submit(record.stream_id, frame(3))
        for ticket in tickets:
            await ticket.result
        assert (record.state, record.ended, gateway.streams()) == ("finished", True, [])
        with pytest.raises(StreamFinished):
            gateway.submit(record.stream_id, frame(1))

    run(test)


def test_a_closed_stream_serves_what_waits_and_takes_nothing() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.02
        record = await admitted(gateway)
        tickets = [*gateway.submit(record.stream_id, frame(1)), *gateway.submit(record.stream_id, frame(2))]
        assert (await gateway.close_stream(record.stream_id)).state == "closing"
        with pytest.raises(StreamClosed):
            gateway.submit(record.stream_id, frame(3))
        assert [(await ticket.result).outcome for ticket in tickets] == [Outcome.MET] * 2
        assert gateway.stream(record.stream_id).state == "closed"
        assert [result.seq for result in await gateway.results(record.stream_id, -1, 0)] == [0, 1]
        with pytest.raises(StreamClosed):
            gateway.submit(record.stream_id, frame(3))
        assert (await gateway.close_stream(record.stream_id)) is record

    run(test)


def test_only_the_last_closed_streams_are_remembered() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        ids = []
        for _ in range(4):
            record = await admitted(gateway)
            await gateway.close_stream(record.stream_id)
            ids.append(record.stream_id)
        for forgotten in ids[:2]:
            with pytest.raises(StreamNotFound):
                gateway.stream(forgotten)
        assert [gateway.stream(known).state for known in ids[2:]] == ["closed", "closed"]

    run(test, limits={"closed_streams_kept": 2})


@pytest.mark.parametrize("how", ["cancel", "cancel the future", "cancel who waits"])
def test_a_frame_nobody_waits_for_is_not_executed(how: str) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.1
        record = await admitted(gateway, deadline_ms=5_000)
        [running] = gateway.submit(record.stream_id, frame(0))
        waiting = [*gateway.submit(record.stream_id, frame(1) + frame(2) + frame(3))]
        victim = waiting[0]
        if how == "cancel":
            gateway.cancel(victim)
        elif how == "cancel the future":
            victim.result.cancel()
        else:
            task = asyncio.create_task(_wait_for(victim.result))
            await asyncio.sleep(0)
            task.cancel()
        await until(lambda: record.outcomes[Outcome.CANCELLED] == 1)
        stamps = [(await ticket.result).outputs["stamp"] for ticket in (running, *waiting[1:])]
        assert [stamp[0] for stamp in stamps] == [0, 2, 3]
        assert stamps[1][1] == 2, "the cancelled frame was executed with the others"
        assert gateway.arena.moves == 1
        gateway.cancel(running)  # over: without effect

    async def _wait_for(future: asyncio.Future[Any]) -> None:
        await future

    run(test)


def test_five_hundred_abandoned_frames_leave_nothing() -> None:
    """Field report 1."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.2 if call.shape[1] == 4 else 0.0
        blocker = await admitted(gateway, shape=(4, 4, 3))
        record = await admitted(gateway)
        [running] = gateway.submit(blocker.stream_id, frame(0, (4, 4, 3)))
        for _ in range(500):
            [ticket] = gateway.submit(record.stream_id, frame(1))
            gateway.cancel(ticket)
        assert gateway.arena.batches == 1
        await running.result
        assert gateway.arena.batches == 0
        assert record.outcomes == {Outcome.CANCELLED: 500}
        [ticket] = gateway.submit(record.stream_id, frame(7))
        assert (await ticket.result).outputs["stamp"][0] == 7
        assert len(triton.log("infer")) == 2

    run(test, profile=make_profile(shapes=[SHAPE, (4, 4, 3)]))


def test_a_full_arena_refuses_before_the_engine_hears_of_it() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.05
        record = await admitted(gateway, period_ms=100, deadline_ms=10_000, shape=(64, 64, 3))
        body = frame(1, (64, 64, 3)) * 8
        tickets = gateway.submit(record.stream_id, frame(1, (64, 64, 3)))
        while gateway.arena.free_bytes >= len(body):
            tickets += gateway.submit(record.stream_id, body)
        with pytest.raises(ArenaFull) as refusal:
            gateway.submit(record.stream_id, body)
        assert refusal.value.retry_after_s
        assert record.refused["arena_full"] == gateway.totals.refused["arena_full"] == 8
        assert record.accepted == len(tickets)
        for ticket in tickets:
            await ticket.result
        assert gateway.submit(record.stream_id, frame(1, (64, 64, 3)))

    run(test, profile=make_profile(shapes=[(64, 64, 3)]))


def test_late_frames_expire_unless_they_are_to_be_served() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.1 if call.shape[1] == 4 else 0.0
        blocker = await admitted(gateway, shape=(4, 4, 3), deadline_ms=500)
        dropping = await admitted(gateway, deadline_ms=30)
        serving = await admitted(gateway, deadline_ms=30, on_late=OnLate.SERVE)
        gateway.submit(blocker.stream_id, frame(0, (4, 4, 3)))
        [late] = gateway.submit(dropping.stream_id, frame(1))
        [served] = gateway.submit(serving.stream_id, frame(2))
        dropped = await late.result
        assert (dropped.outcome, dropped.outputs, dropped.batch) == (Outcome.EXPIRED, None, 0)
        assert dropped.latency_ms >= 30
        result = await served.result
        assert (result.outcome, result.outputs["stamp"][0]) == (Outcome.MISSED, 2)

    run(test, profile=make_profile(shapes=[SHAPE, (4, 4, 3)]))


# ---------------------------------------------------------------- results


def test_a_long_poll_waits_for_the_next_result_and_no_longer() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.03
        record = await admitted(gateway)
        assert await gateway.results(record.stream_id, -1, 10) == []
        poll = asyncio.create_task(gateway.results(record.stream_id, -1, 5_000))
        await asyncio.sleep(0)
        gateway.submit(record.stream_id, frame(5))
        assert [result.seq for result in await poll] == [0]
        assert await gateway.results(record.stream_id, 0, 10) == []
        late = asyncio.create_task(gateway.results(record.stream_id, 0, 5_000))
        await asyncio.sleep(0)
        await gateway.close_stream(record.stream_id)
        assert await late == [], "the end of a stream ends the wait"

    run(test)


def test_the_ring_keeps_the_last_results() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        for value in range(6):
            [ticket] = gateway.submit(record.stream_id, frame(value))
            await ticket.result
        assert [result.seq for result in await gateway.results(record.stream_id, -1, 0)] == [2, 3, 4, 5]
        assert [result.seq for result in await gateway.results(record.stream_id, 3, 0)] == [4, 5]

    run(test, limits={"results_kept": 4})


def test_a_result_that_overtook_another_is_shown_after_it() -> None:
    """Else a caller that has seen seq 1 would never see seq 0."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.05
        record = await admitted(gateway)
        gateway.submit(record.stream_id, frame(0))
        [second] = gateway.submit(record.stream_id, frame(1))
        gateway.cancel(second)
        assert (await second.result).outcome is Outcome.CANCELLED
        assert await gateway.results(record.stream_id, -1, 0) == []
        both = await gateway.results(record.stream_id, -1, 1_000)
        assert [(result.seq, result.outcome) for result in both] == [(0, Outcome.MET), (1, Outcome.CANCELLED)]

    run(test)


# ---------------------------------------------------------------- models, life


def test_models_and_metadata() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        states = {state.name: state.state for state in gateway.model_facts.states()}
        assert states == {"echo": "ready", "idle": "absent"}
        metadata = gateway.model_facts.metadata("echo")
        assert [tensor.name for tensor in metadata.inputs + metadata.outputs] == ["frames", "echo", "stamp"]
        with pytest.raises(ModelNotLoaded):
            gateway.model_facts.metadata("idle")
        with pytest.raises(UnknownModel):
            gateway.model_facts.metadata("echo", "2")

    run(test, Model("echo"), Model("idle", loaded=False))


def test_a_gateway_that_stops_gives_every_frame_its_outcome() -> None:
    async def main() -> None:
        async with StandIn() as triton, running_gateway(triton.url) as gateway:
            triton.calls.clear()
            triton.delay_s = lambda call: 0.3
            record = await admitted(gateway, deadline_ms=2_000)
            tickets = [t for value in range(4) for t in gateway.submit(record.stream_id, frame(value))]
            await asyncio.sleep(0.02)
            stopping = asyncio.create_task(gateway.stop())
            await asyncio.sleep(0.02)
            assert not gateway.ready
            with pytest.raises(Stopping):
                gateway.submit(record.stream_id, frame(1))
            with pytest.raises(Stopping):
                await gateway.register(make_spec())
            await stopping
            outcomes = [(await ticket.result).outcome for ticket in tickets]
            assert outcomes == [Outcome.MET, *[Outcome.CANCELLED] * 3], "the running job was given time"
            [infer], [unregister] = triton.log("infer"), triton.log("unregister")
            assert infer.ended is not None
            assert unregister.began >= infer.ended
            balanced(gateway)
            await gateway.stop()

    before = shm_files()
    asyncio.run(main())
    assert shm_files() == before


def test_a_gateway_that_was_not_started_says_so() -> None:
    async def main() -> None:
        gateway = Gateway(make_settings("127.0.0.1:9"), make_profile())
        assert not gateway.ready
        with pytest.raises(FramegateError, match="not been started"):
            gateway.model_facts.states()
        await gateway.stop()

    asyncio.run(main())


def test_without_triton_the_gateway_runs_and_says_503() -> None:
    async def main() -> None:
        async with running_gateway("127.0.0.1:9", wait_ready=False) as gateway:
            await until(lambda: gateway.triton_reason != "not connected yet")
            assert not gateway.ready
            with pytest.raises(TritonUnavailable) as refusal:
                await gateway.register(make_spec())
            assert refusal.value.retry_after_s

    asyncio.run(main())


def test_a_name_that_could_lead_out_of_the_repository_is_never_sent_to_triton() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        states = {state.name: state.reason for state in gateway.model_facts.states()}
        assert "not of the form" in states["../../etc"]

    async def main() -> None:
        profile = make_profile(models=["echo", "../../etc"])
        async with StandIn() as triton, running_gateway(triton.url, profile) as gateway:
            assert triton.log("load") == []
            await test(gateway, triton)

    asyncio.run(main())


def test_a_frame_on_which_the_engine_fails_leaves_nothing_behind() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        parts = gateway._parts

        def fails(event: object, now_ns: int) -> None:
            raise ValueError(event)

        parts.driver.engine.handle = fails  # type: ignore[assignment, method-assign]
        with pytest.raises(ValueError, match="FramesArrived"):
            gateway.submit(record.stream_id, frame(1))
        assert gateway.arena.batches == 0
        assert parts.delivery._body.size == 0

    run(test)
