"""The client against the stand-in: every call, both ways for tensors, and every kind of failure."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from gateway.runtime.region import shared_region
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, InferenceCall, InSharedMemory, TensorInfo, latest
from tests.stand_in import Model, StandIn

MIB = 1 << 20


def on_stand_in(
    test: Callable[[TritonClient, StandIn], Awaitable[None]], *models: Model, limit: int = 64 * MIB
) -> None:
    async def main() -> None:
        async with StandIn(*models) as triton:
            client = TritonClient(triton.url, max_message_bytes=limit)
            try:
                await test(client, triton)
            finally:
                await client.close()

    asyncio.run(main())


def call(frames: np.ndarray, model: str = "echo") -> InferenceCall:
    return InferenceCall(model, "1", "frames", "UINT8", frames.shape, memoryview(frames).cast("B"))


def noise(rows: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, height, width, 3), dtype=np.uint8)


def test_what_triton_says_of_itself_and_its_models() -> None:
    async def test(client: TritonClient, triton: StandIn) -> None:
        assert await client.live()
        assert (await client.server()).version == "2.51.0"
        assert "system_shared_memory" in (await client.server()).extensions
        states = {(state.name, state.version): state.state for state in await client.index()}
        assert states == {("echo", "1"): "ready", ("echo", "3"): "ready", ("flat", ""): "absent"}
        metadata = await client.metadata("echo")
        assert (metadata.version, metadata.versions, metadata.max_batch_size) == ("3", ("1", "3"), 64)
        assert metadata.inputs == (TensorInfo("frames", "UINT8", (-1, -1, 3)),)
        assert metadata.outputs[1] == TensorInfo("stamp", "INT32", (3,))
        await client.load("flat", timeout_s=5)
        flat = await client.metadata("flat")
        assert (flat.max_batch_size, flat.inputs[0].shape) == (0, (-1, -1, 3)), "no axis is taken for the batch"
        await client.unload("flat")
        assert not triton.models["flat"].loaded

    on_stand_in(test, Model("echo", versions=("1", "3")), Model("flat", max_batch_size=0, loaded=False))


def test_both_ways_give_the_same_answer() -> None:
    async def test(client: TritonClient, triton: StandIn) -> None:
        frames, region = noise(3, 8, 8), shared_region(4096)
        region.view[640 : 640 + frames.nbytes] = frames.tobytes()
        await client.register_region(region.name, region.key, region.size)
        assert await client.region_names() == {region.name}
        place = InSharedMemory(region.name, 640, frames.nbytes)
        by_memory = await client.infer(InferenceCall("echo", "1", "frames", "UINT8", frames.shape, place))
        by_message = await client.infer(call(frames))
        assert [c.way for c in triton.log("infer")] == ["shm", "message"]
        for outputs in (by_memory, by_message):
            np.testing.assert_array_equal(outputs["echo"], frames)
            np.testing.assert_array_equal(outputs["stamp"][:, 0], frames[:, 0, 0, 0])
        await client.unregister_region(region.name)
        assert await client.region_names() == frozenset()
        region.close()

    on_stand_in(test)


@pytest.mark.parametrize(("size", "outputs"), [(6, ("echo",)), (60, ("stamp",)), (60, ("echo",))])
def test_large_messages_pass_both_ways(size: int, outputs: tuple[str, ...]) -> None:
    """Field report 45: gRPC's own limit is 4 MB."""

    async def test(client: TritonClient, triton: StandIn) -> None:
        frames = noise(1, 1024, size * MIB // 3 // 1024)
        reply = await client.infer(call(frames))
        assert tuple(reply) == outputs
        if "echo" in outputs:
            np.testing.assert_array_equal(reply["echo"], frames)

    on_stand_in(test, Model("echo", outputs=outputs))


def test_a_message_over_the_limit_is_refused_with_the_limit() -> None:
    async def test(client: TritonClient, triton: StandIn) -> None:
        with pytest.raises(BackendError, match=str(MIB)) as refusal:
            await client.infer(call(noise(1, 1024, 400)))
        assert refusal.value.code == "RESOURCE_EXHAUSTED"
        assert not refusal.value.unreachable

    on_stand_in(test, limit=MIB)


def test_failures_carry_tritons_words() -> None:
    async def test(client: TritonClient, triton: StandIn) -> None:
        with pytest.raises(BackendError, match="'nobody' is not found") as unknown:
            await client.metadata("nobody")
        assert (unknown.value.code, unknown.value.unreachable) == ("NOT_FOUND", False)
        triton.error = lambda _: "out of memory in conv3"
        with pytest.raises(BackendError, match="out of memory in conv3"):
            await client.infer(call(noise(1, 2, 2)))
        with pytest.raises(BackendError, match="Unable to open shared memory region"):
            await client.register_region("gone", "/framegate-gone", 64)
        with pytest.raises(ValueError, match="must be named"):
            await client.unregister_region("")

    on_stand_in(test)


def test_an_absent_triton_is_unreachable_and_a_silent_one_times_out() -> None:
    async def test(client: TritonClient, triton: StandIn) -> None:
        triton.models["echo"].load_delay_s = 5
        with pytest.raises(BackendError) as silent:
            await client.load("echo", timeout_s=0.1)
        assert silent.value.timed_out
        await triton.stop()
        with pytest.raises(BackendError) as absent:
            await client.live(0.5)
        assert absent.value.unreachable

    on_stand_in(test)


def test_inference_and_control_have_a_connection_each() -> None:
    """Field report 37: a control call must not queue in front of a job."""

    async def test(client: TritonClient, triton: StandIn) -> None:
        await client.infer(call(noise(1, 2, 2)))
        await client.load("echo", timeout_s=5)
        peers = {c.method: c.peer for c in triton.calls}
        assert peers["infer"] != peers["load"]

    on_stand_in(test)


@pytest.mark.parametrize(
    ("versions", "expected"), [(("1", "10", "9"), "10"), (("1",), "1"), ((), ""), (("a", "2"), "2"), (("a", "b"), "b")]
)
def test_the_latest_version_is_the_highest_number(versions: tuple[str, ...], expected: str) -> None:
    assert latest(versions) == expected
