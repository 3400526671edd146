"""Calls over a real Triton's HTTP endpoint: answers and failures as over gRPC, and outputs in shared memory."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.core.types import Outcome
from gateway.runtime import output_rooms
from gateway.runtime.region import Region, shared_region
from gateway.triton.client import TritonClient
from gateway.triton.embedded import EmbeddedTriton
from gateway.triton.types import BackendError, InferenceCall, InSharedMemory, OutputLayout, OutputRoom
from tests.e2e.v2_models import identity
from tests.echoes import exchange
from tests.runtime_support import make_profile, running_gateway, until

pytestmark = pytest.mark.e2e

SHAPE = (8, 8, 3)
ROWS = 3
SIZE = ROWS * 192
#: Where the input lies, and where room for outputs is.
AT, ROOM_AT = 4096, 8192
#: Takes its time, and then returns the sum of each frame as often as it likes: not as its configuration says.
_PYTHON = """
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep({delay_s})
        responses = []
        for request in requests:
            frames = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            sums = frames.reshape(len(frames), -1).sum(axis=1, dtype=np.float32)
            names = np.array([[b"frame"]] * len(frames), dtype=np.object_)
            sums = np.repeat(sums[:, None], {width}, axis=1)
            outputs = [pb_utils.Tensor("SUM", sums), pb_utils.Tensor("NAME", names)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
"""
_CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 8
input [ {{ name: "IN" data_type: TYPE_UINT8 dims: [ 8, 8, 3 ] }} ]
output [ {{ name: "SUM" data_type: TYPE_FP32 dims: [ {said} ] }} ]
output [ {{ name: "NAME" data_type: TYPE_STRING dims: [ 1 ] }} ]
"""


def python_model(repository: Path, name: str, *, said: int = 1, width: int = 1, delay_s: float = 0.0) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(_CONFIG.format(name=name, said=said))
    (repository / name / "1" / "model.py").write_text(_PYTHON.format(width=width, delay_s=delay_s))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTriton]:
    folder = tmp_path_factory.mktemp("http")
    repository = folder / "models"
    identity(repository, "fixed", "UINT8", SHAPE)
    identity(repository, "free", "UINT8", (-1, -1, 3))
    python_model(repository, "sums")
    python_model(repository, "liar", said=1, width=50)
    python_model(repository, "slow", delay_s=0.5)
    with EmbeddedTriton(repository, folder / "triton.log", models=["fixed", "free", "sums", "liar", "slow"]) as triton:
        yield triton


Test = Callable[[list[TritonClient], Region], Awaitable[None]]
FRAMES = np.random.default_rng(3).integers(0, 256, (ROWS, *SHAPE), dtype=np.uint8)


def on_both(server: EmbeddedTriton, test: Test) -> None:
    """Run a test with a client over gRPC and one over HTTP; frames lie in the region already."""

    async def main() -> None:
        groups = ({"url": server.grpc_url}, server.addresses)
        clients = [TritonClient(**group, max_message_bytes=1 << 20) for group in groups]
        region = shared_region(1 << 16)
        region.view[AT : AT + SIZE] = FRAMES.tobytes()
        await clients[0].register_region(region.name, region.key, region.size)
        try:
            assert await clients[1].try_http(region.name) == ""
            assert [client.over_http for client in clients] == [False, True]
            await test(clients, region)
        finally:
            await clients[0].unregister_region(region.name)
            for client in clients:
                await client.close()
            region.close()

    asyncio.run(main())


def call(opened: Region, **fields: Any) -> InferenceCall:
    place = InSharedMemory(fields.pop("region", opened.name), AT, SIZE)
    defaults = {"model": "fixed", "version": "", "input_name": "IN", "datatype": "UINT8", "shape": (ROWS, *SHAPE)}
    return InferenceCall(**(defaults | fields), data=place)


@pytest.mark.parametrize("model", ["fixed", "free", "sums", "liar"])
@pytest.mark.parametrize("version", ["", "1"])
def test_the_same_answers(server: EmbeddedTriton, model: str, version: str) -> None:
    async def test(clients: list[TritonClient], region: Region) -> None:
        first, second = [await client.infer(call(region, model=model, version=version)) for client in clients]
        assert first.version == second.version == "1"
        assert first.keys() == second.keys()
        for name, array in first.items():
            assert array.dtype == second[name].dtype
            np.testing.assert_array_equal(array, second[name])
        if model in ("fixed", "free"):
            np.testing.assert_array_equal(second["OUT"], FRAMES)

    on_both(server, test)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "nobody"},
        {"version": "7"},
        {"input_name": "IMAGE"},
        {"datatype": "FP32"},
        {"shape": (ROWS, 8, 3, 8)},
        {"shape": (ROWS + 1, *SHAPE)},
        {"region": "framegate-1-0123456789abcdef"},
    ],
    ids=str,
)
def test_the_same_refusals(server: EmbeddedTriton, fields: dict[str, Any]) -> None:
    async def test(clients: list[TritonClient], region: Region) -> None:
        found = []
        for client in clients:
            with pytest.raises(BackendError) as refusal:
                await client.infer(call(region, **fields))
            error = refusal.value
            found.append((error.message, error.code, error.unreachable, error.version_gone, error.forgot_region))
        assert found[0] == found[1]
        assert not error.unreachable

    on_both(server, test)


def test_outputs_are_written_to_their_room(server: EmbeddedTriton) -> None:
    """One has a place, one comes in the answer; nothing beside the place is touched."""

    async def test(clients: list[TritonClient], region: Region) -> None:
        layout = OutputLayout({"SUM": (64, 4 * ROWS)}, ("NAME",), 128)
        room = OutputRoom(region.name, region.view, ROOM_AT, layout)
        outputs = await clients[1].infer(call(region, model="sums", room=room))
        expected = FRAMES.reshape(ROWS, -1).sum(axis=1, dtype=np.float32)
        np.testing.assert_array_equal(outputs["SUM"][:, 0], expected)
        assert outputs["NAME"].tolist() == [[b"frame"]] * ROWS
        written = region.view[ROOM_AT : ROOM_AT + 128]
        assert bytes(written[64 : 64 + 4 * ROWS]) == expected.tobytes()
        assert not any(written[:64])
        assert not any(written[64 + 4 * ROWS :])
        written.release()

    on_both(server, test)


@pytest.mark.parametrize(
    ("model", "places"),
    [("liar", {"SUM": (0, 4 * ROWS)}), ("fixed", {"OUT": (0, SIZE - 1)}), ("fixed", {"OUTPUT": (0, 64)})],
)
def test_outputs_that_do_not_fit_are_refused_in_words_that_are_known(
    server: EmbeddedTriton, model: str, places: dict[str, tuple[int, int]]
) -> None:
    async def test(clients: list[TritonClient], region: Region) -> None:
        room = OutputRoom(region.name, region.view, ROOM_AT, OutputLayout(places, (), 1024))
        with pytest.raises(BackendError) as refusal:
            await clients[1].infer(call(region, model=model, room=room))
        assert refusal.value.unfit_room
        assert not refusal.value.unreachable
        assert not any(region.view[ROOM_AT + 1024 : ROOM_AT + 4096])
        assert (await clients[1].infer(call(region, model=model))).version == "1"

    on_both(server, test)


def test_a_lost_call_is_ended_by_triton_which_lives_on(server: EmbeddedTriton) -> None:
    """Its connection is closed under it. It is run to its end, and writes to its room all the same."""

    async def test(clients: list[TritonClient], region: Region) -> None:
        layout = OutputLayout({"SUM": (0, 4 * ROWS)}, ("NAME",), 64)
        room = OutputRoom(region.name, region.view, ROOM_AT, layout)
        for _ in range(3):
            region.view[ROOM_AT : ROOM_AT + 64] = bytes(64)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await clients[1].infer(call(region, model="slow", room=room))
            assert not any(region.view[ROOM_AT : ROOM_AT + 64])
            await until(lambda: any(region.view[ROOM_AT : ROOM_AT + 64]), 5)
        assert (await clients[1].infer(call(region, model="slow"))).version == "1"
        assert await clients[0].live()

    on_both(server, test)


@pytest.mark.parametrize("model", ["fixed", "free"])
def test_each_frame_gets_itself_back_through_the_gateway(
    server: EmbeddedTriton, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of many sizes, all at one time in one arena; of one model the outputs have a place in it as well."""
    monkeypatch.setattr(output_rooms, "WORTH_BYTES", 0)

    async def main() -> None:
        profile = make_profile(batches=(1, 2, 4, 8), shapes=[SHAPE], models=[model], execution_ms=5)
        async with running_gateway(
            server.grpc_url, profile, wait_ready=False, triton=server.addresses, arena={"bytes": 1 << 20}
        ) as gateway:
            await until(lambda: gateway.ready, 30)
            done = await exchange(gateway, [SHAPE], 1_500, seed=4, model=model)
            assert set(done.outcomes) <= {Outcome.MET, Outcome.MISSED, Outcome.CANCELLED}
            assert done.outcomes[Outcome.MET] > 1_000
            assert len(done.batches) >= 4
            await until(lambda: gateway.arena.batches == 0)

    asyncio.run(main())
