"""The gateway on Triton's HTTP endpoint: which calls go there, what comes back, and who has the memory in trouble."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from gateway.core.types import Outcome
from gateway.runtime.gateway import Gateway
from gateway.runtime.region import shared_region
from gateway.runtime.results import FrameResult
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, InferenceCall, InSharedMemory
from tests.runtime_support import (
    admitted,
    frame,
    gateway_on_stand_in,
    make_profile,
    running_gateway,
    shm_files,
    until,
)
from tests.stand_in import Model, StandIn

#: Every output has a known size, and they are large enough for a room.
BLOB = 80_000
FIXED = {"dims": (8, 8, 3), "outputs": ("echo", "stamp", "blob"), "blob_bytes": BLOB}
ARENA = {"bytes": 8 << 20}


def run(test: Callable[[Gateway, StandIn], Awaitable[None]], *models: Model, **options: Any) -> None:
    async def main() -> None:
        async with gateway_on_stand_in(options.pop("profile", None), *models, arena=ARENA, **options) as (
            gateway,
            triton,
        ):
            await test(gateway, triton)

    before = shm_files()
    asyncio.run(main())
    assert shm_files() == before


async def served(gateway: Gateway, stream_id: str, *values: int) -> list[FrameResult]:
    tickets = gateway.submit(stream_id, b"".join(map(frame, values)))
    results = [await ticket.result for ticket in tickets]
    for value, result in zip(values, results, strict=True):
        if result.outputs is not None:
            assert result.outputs["stamp"][0] == value
            assert (result.outputs["echo"] == value).all()
            if "blob" in result.outputs:
                assert (result.outputs["blob"] == value).all()
    return results


def ways(triton: StandIn) -> set[str]:
    """How calls came: over which protocol, and where their frames lay."""
    return {f"{'http' if call.peer.startswith('http') else 'grpc'}, {call.way}" for call in triton.log("infer")}


# ---------------------------------------------------------------- the way there


def test_frames_and_outputs_of_known_size_go_through_shared_memory() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        triton.http.written = 0
        for values in ((1,), (2, 3, 4), tuple(range(5, 12))):
            for result in await served(gateway, record.stream_id, *values):
                assert result.outcome is Outcome.MET
                assert result.outputs["blob"].shape == (BLOB,)
        assert ways(triton) == {"http, shm"}
        assert triton.http.written == 3 * len(triton.log("infer"))
        assert triton.http.connections == 2
        assert gateway.arena.batches == 0

    run(test, Model("echo", **FIXED))


def test_outputs_of_unknown_size_come_in_the_answer() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        [result] = await served(gateway, record.stream_id, 9)
        assert result.outputs.keys() == {"echo", "stamp"}
        assert ways(triton) == {"http, shm"}
        assert triton.http.written == 0

    run(test)


def test_a_model_without_a_batch_axis() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        for result in await served(gateway, record.stream_id, 1, 2):
            assert (result.outcome, result.batch) == (Outcome.MET, 1)
            assert result.outputs["echo"].shape == (8, 8, 3)

    run(test, Model("echo", max_batch_size=0, **FIXED), profile=make_profile(batches=(1,)))


def test_kept_outputs_are_not_written_over_by_later_jobs() -> None:
    """Each job's room is the same memory, and the frames of the next one may lie there as well."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        kept = [(await served(gateway, record.stream_id, value))[0] for value in range(40)]
        for value, result in enumerate(kept):
            assert (result.outputs["echo"] == value).all()
            assert (result.outputs["blob"] == value).all()

    run(test, Model("echo", **FIXED))


@pytest.mark.parametrize(
    ("triton", "way"),
    [
        ({"http_url": ""}, "grpc, shm"),
        ({"shared_memory": "off"}, "grpc, message"),
        ({"http_url": "127.0.0.1:9"}, "grpc, shm"),
    ],
)
def test_everything_else_goes_over_grpc(triton: dict[str, str], way: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without an endpoint, without shared memory, and where nobody answers."""

    async def test(gateway: Gateway, stand_in: StandIn) -> None:
        record = await admitted(gateway)
        [result] = await served(gateway, record.stream_id, 1)
        assert result.outcome is Outcome.MET
        assert ways(stand_in) == {way}

    run(test, Model("echo", **FIXED), triton=triton)
    said = "all calls go over gRPC: 127.0.0.1:9 (FRAMEGATE_TRITON__HTTP_URL) is not its HTTP endpoint: no connection"
    assert (said in caplog.text) == (triton == {"http_url": "127.0.0.1:9"})


def test_the_endpoint_of_another_triton_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with StandIn() as other, StandIn() as triton:
            group = {"http_url": other.addresses["http_url"]}
            async with running_gateway(triton.url, triton=group) as gateway:
                record = await admitted(gateway)
                assert (await served(gateway, record.stream_id, 1))[0].outcome is Outcome.MET
                assert ways(triton) == {"grpc, shm"}
                assert other.log("infer") == []

    asyncio.run(main())
    assert "does not have the frame arena open" in caplog.text


def test_delays_that_are_asked_for_reach_the_backend() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        gateway.delay_jobs(1, 5)
        await served(gateway, record.stream_id, 1)
        await served(gateway, record.stream_id, 2)
        assert [call.parameters for call in triton.log("infer")] == [{"framegate_delay_ms": 5}, {}]
        assert ways(triton) == {"http, shm"}

    run(test)


# ---------------------------------------------------------------- rooms that do not fit


def test_outputs_larger_than_the_model_says_come_in_the_answer_after_all() -> None:
    """The call that finds out is run again, having been answered; from then on nothing is run twice."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        triton.models["echo"].blob_bytes = BLOB + 1
        for value, calls in ((1, 2), (2, 3)):
            [result] = await served(gateway, record.stream_id, value)
            assert (result.outcome, result.outputs["blob"].shape) == (Outcome.MET, (BLOB + 1,))
            assert len(triton.log("infer")) == calls
        assert ways(triton) == {"http, shm"}

    run(test, Model("echo", **FIXED))


def test_a_new_version_without_an_output_is_asked_again_without_rooms() -> None:
    """Triton may be ahead of what is known of the model, when a call names no version."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        triton.models["echo"].outputs = ("echo", "stamp")
        [result] = await served(gateway, record.stream_id, 3)
        assert result.outcome is Outcome.MET
        assert result.outputs.keys() == {"echo", "stamp"}

    run(test, Model("echo", **FIXED))


def test_in_a_full_arena_outputs_come_in_the_answer() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        written = triton.http.written
        with gateway.arena.lend(gateway.arena.region.size // 2):
            [result] = await served(gateway, record.stream_id, 3)
            assert result.outputs["blob"].shape == (BLOB,)
            assert triton.http.written == written
            assert ways(triton) == {"http, shm"}

    run(test, Model("echo", **FIXED))


# ---------------------------------------------------------------- trouble


def test_a_refusal_fails_that_job_with_tritons_words() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        triton.error = lambda call: "CUDA error 700" if len(triton.log("infer")) == 1 else ""
        [result] = await served(gateway, record.stream_id, 1)
        assert (result.outcome, result.reason) == (Outcome.FAILED, "CUDA error 700")
        assert (await served(gateway, record.stream_id, 2))[0].outcome is Outcome.MET
        assert gateway.ready

    run(test, Model("echo", **FIXED))


def test_what_a_lost_call_still_writes_lies_in_nobodys_frames(caplog: pytest.LogCaptureFixture) -> None:
    """Its connection broke, and Triton goes on with it."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 1.5 if call.rows == 1 and len(triton.log("infer")) == 1 else 0.0
        record = await admitted(gateway, deadline_ms=10_000)
        [ticket] = gateway.submit(record.stream_id, frame(1))
        await until(lambda: triton.log("infer"))
        lost = triton.log("infer")[0]
        triton.http.break_off()
        result = await ticket.result
        assert (result.outcome, result.outputs) == (Outcome.FAILED, None)
        await until(lambda: gateway.ready, 5)
        assert lost.ended is None, "it still runs"
        arena, frames = gateway.arena, 8 * len(frame(1))
        assert arena.batches == 1, "the block of the outputs, which followed that of the frames"
        with arena.lend(frames) as before, arena.lend(arena.free_bytes) as after:
            assert (before.offset, after.offset > frames) == (0, True)
            kept = slice(frames, after.offset)
            arena.region.view[kept] = bytes(after.offset - frames)
            await until(lambda: lost.ended is not None)
            await until(lambda: any(arena.region.view[kept]))
            assert not any(before.view)
            assert not any(after.view)
        assert (await served(gateway, record.stream_id, 2))[0].outcome is Outcome.MET
        assert "come inside answers" in caplog.text
        await triton.restart()
        await until(lambda: not gateway.ready, 5)
        await until(lambda: gateway.ready, 5)
        assert gateway.arena.batches == 0
        assert (await served(gateway, record.stream_id, 3))[0].outcome is Outcome.MET

    run(test, Model("echo", **FIXED))


def test_a_job_that_was_given_up_holds_its_rooms_until_its_call_ends() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.8
        record = await admitted(gateway, deadline_ms=5_000)
        [ticket] = gateway.submit(record.stream_id, frame(1))
        assert (await ticket.result).outcome is Outcome.FAILED
        assert not gateway.ready
        assert gateway.arena.batches == 2, "frames and outputs"
        triton.delay_s = lambda call: 0.0
        await until(lambda: gateway.ready)
        assert gateway.arena.batches == 0
        assert (await served(gateway, record.stream_id, 2))[0].outcome is Outcome.MET

    run(test, Model("echo", **FIXED), triton={"call_timeout_ms": 100, "connect_timeout_ms": 100})


@pytest.mark.parametrize("busy", [False, True])
def test_a_restarted_triton_is_called_over_http_again(busy: bool) -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway, deadline_ms=10_000)
        tickets = []
        if busy:
            triton.delay_s = lambda call: 5.0
            tickets = gateway.submit(record.stream_id, frame(1))
            await until(lambda: triton.log("infer"))
            triton.delay_s = lambda call: 0.0
        await triton.restart(pause_s=0.2)
        for ticket in tickets:
            assert (await ticket.result).outcome is Outcome.FAILED
        await until(lambda: not gateway.ready, 5)
        await until(lambda: gateway.ready, 5)
        triton.calls.clear()
        assert (await served(gateway, record.stream_id, 2))[0].outcome is Outcome.MET
        assert ways(triton) == {"http, shm"}
        assert gateway.arena.batches == 0

    run(test, Model("echo", **FIXED))


def test_when_only_the_http_endpoint_goes_calls_go_over_grpc() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway, deadline_ms=10_000)
        await triton.http.stop()
        [result] = await served(gateway, record.stream_id, 1)
        assert result.outcome is Outcome.FAILED, "this looks like the loss of Triton"
        await until(lambda: gateway.ready, 5)
        assert (await served(gateway, record.stream_id, 2))[0].outcome is Outcome.MET
        assert triton.log("infer")[-1].peer.startswith("ipv4")

    run(test, Model("echo", **FIXED))


def test_a_stop_during_a_call_ends_in_time_and_leaves_nothing() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 60.0
        record = await admitted(gateway, deadline_ms=60_000)
        [ticket] = gateway.submit(record.stream_id, frame(1))
        await until(lambda: triton.log("infer"))
        async with asyncio.timeout(4):
            await gateway.stop()
        assert (await ticket.result).outcome is Outcome.FAILED

    run(test, Model("echo", **FIXED))


# ---------------------------------------------------------------- both ways are one


def test_both_ways_say_the_same() -> None:
    """Answers, and every kind of failure: the same words and codes."""

    async def both(clients: list[TritonClient], call: InferenceCall) -> list[Any]:
        found: list[Any] = []
        for client in clients:
            try:
                outputs = await client.infer(call)
                found.append({name: array.tolist() for name, array in outputs.items()} | {"": outputs.version})
            except BackendError as error:
                found.append((error.message, error.code, error.unreachable, error.version_gone, error.forgot_region))
        return found

    async def main() -> None:
        async with StandIn(Model("echo", versions=("1", "3"))) as triton:
            clients = [
                TritonClient(**group, max_message_bytes=1 << 20) for group in ({"url": triton.url}, triton.addresses)
            ]
            region, frames = shared_region(1 << 16), np.arange(2 * 192, dtype=np.uint8)
            region.view[640 : 640 + frames.nbytes] = frames.tobytes()
            await clients[0].register_region(region.name, region.key, region.size)
            assert await clients[1].try_http(region.name) == ""
            assert [client.over_http for client in clients] == [False, True]

            def call(**fields: Any) -> InferenceCall:
                place = InSharedMemory(fields.pop("region", region.name), 640, frames.nbytes)
                defaults = {"model": "echo", "version": "", "input_name": "frames", "datatype": "UINT8"}
                return InferenceCall(**(defaults | {"shape": (2, 8, 8, 3)} | fields), data=place)

            for fields in ({}, {"version": "1"}):
                first, second = await both(clients, call(**fields))
                first["stamp"] = [row[:2] for row in first["stamp"]]  # the third is the call's number
                second["stamp"] = [row[:2] for row in second["stamp"]]
                assert first == second
            for fields in ({"model": "nobody"}, {"version": "2"}, {"region": "framegate-1-" + "0" * 16}):
                first, second = await both(clients, call(**fields))
                assert isinstance(first, tuple)
                assert first == second
            triton.error = lambda call: "out of memory in conv3"
            first, second = await both(clients, call())
            assert first == second == ("out of memory in conv3", "INTERNAL", False, False, False)
            for client in clients:
                await client.close()
            region.close()

    asyncio.run(main())
