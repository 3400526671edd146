"""Real models of the zoo taking turns in a real Triton's memory: more of them than fit, frames of all, and a kill."""

import asyncio
import math
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from gateway.core.profile import Profile
from gateway.core.profile_entry import ModelEntry, ProfileEntry
from gateway.core.types import ModelState, Outcome, ServiceClass
from gateway.core.verdict import Reason
from gateway.errors import ModelPinned, NoRoomForModel
from gateway.runtime.gateway import Gateway
from gateway.triton.client import TritonClient
from gateway.triton.embedded import EmbeddedTriton
from tests.runtime_support import make_settings, make_spec, until

pytestmark = pytest.mark.e2e

FACES, SORTS = "centerface", "mobilenet_v2"
SHAPES = {FACES: (96, 128, 3), SORTS: (224, 224, 3)}
#: Frames per batch: by batches it is decided how many frames a swap serves. Times are generous.
BATCHES, EXECUTION_MS = (1, 8), 40.0
TOLERANCE = 1e-3


@pytest.fixture
def server(built_models: Callable[..., Path], tmp_path: Path) -> Iterator[EmbeddedTriton]:
    """A Triton of its own, for it may be killed."""
    with EmbeddedTriton(built_models(FACES, SORTS), tmp_path / "triton.log") as triton:
        yield triton


@pytest.fixture(scope="module")
def references(built_models: Callable[..., Path]) -> dict[str, onnxruntime.InferenceSession]:
    repository = built_models(FACES, SORTS)
    return {name: onnxruntime.InferenceSession(repository / name / "1" / "model.onnx") for name in SHAPES}


@asynccontextmanager
async def gateway_on(
    server: EmbeddedTriton, profile: Profile | None = None, **residency: Any
) -> AsyncIterator[Gateway]:
    entries = tuple(
        ProfileEntry(model, "1", shape, "UINT8", batch, 100, *(EXECUTION_MS * batch,) * 3)
        for model, shape in SHAPES.items()
        for batch in BATCHES
    )
    settings = make_settings(server.grpc_url, arena={"bytes": 16 << 20}, residency={"max_models": 1} | residency)
    gateway = Gateway(settings, profile or Profile(entries=entries))
    await gateway.start()
    try:
        await until(lambda: gateway.ready, 60)
        yield gateway
    finally:
        await gateway.stop()


def state(gateway: Gateway, model: str) -> ModelState:
    return next(view.state for view in gateway.model_views() if view.model == model)


async def streams(gateway: Gateway) -> dict[str, str]:
    """Best-effort streams of both models, by model."""
    found = {}
    for model, shape in SHAPES.items():
        spec = make_spec(100, 40_000, model=model, shape=shape, service_class=ServiceClass.BEST_EFFORT)
        registration = await gateway.register(spec)
        assert registration.stream is not None
        found[model] = registration.stream.stream_id
    return found


def noise(seed: int, model: str) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, SHAPES[model], dtype=np.uint8)


def test_frames_of_two_models_in_room_for_one_are_all_answered_and_right(
    server: EmbeddedTriton, references: dict[str, onnxruntime.InferenceSession]
) -> None:
    """While frames of both come, Triton never has both, and each answer is what the model itself says."""

    async def main() -> None:
        async with gateway_on(server) as gateway:
            ids = await streams(gateway)
            client = TritonClient(server.grpc_url, max_message_bytes=1 << 20)
            most, watching = 0, True

            async def watch() -> None:
                nonlocal most
                while watching:
                    there = {m.name for m in await client.index() if m.state in ("ready", "loading", "unloading")}
                    most = max(most, len(there))
                    await asyncio.sleep(0.01)

            watcher = asyncio.create_task(watch())
            sent = []
            for seed in range(24):
                model = (FACES, SORTS)[seed % 2 if seed % 6 else 0]
                frame = noise(seed, model)
                sent.append((model, frame, gateway.submit(ids[model], frame.tobytes())[0].result))
                await asyncio.sleep(0.15)
            for model, frame, future in sent:
                result = await future
                assert result.outcome is Outcome.MET, result.reason
                session = references[model]
                rows = session.run(None, {session.get_inputs()[0].name: frame[np.newaxis]})
                for output, row in zip(session.get_outputs(), rows, strict=True):
                    np.testing.assert_allclose(result.outputs[output.name], row[0], atol=TOLERANCE)
            watching = False
            await watcher
            await client.close()
            assert most == 1
            assert gateway.view().memory.held == 1

    asyncio.run(main())


def test_a_swap_takes_little_longer_than_triton_does(server: EmbeddedTriton) -> None:
    """Against Triton's own unload and load in the same run; the bound leaves room for warm-ups and a busy machine."""

    async def main() -> None:
        async with gateway_on(server) as gateway:
            await gateway.load_model(SORTS)
            async with asyncio.timeout(60):
                swaps = []
                for model in (FACES, SORTS, FACES, SORTS):
                    began = time.monotonic()
                    await gateway.load_model(model)
                    swaps.append(time.monotonic() - began)
        client = TritonClient(server.grpc_url, max_message_bytes=1 << 20)
        alone = []
        for model, other in ((FACES, SORTS), (SORTS, FACES), (FACES, SORTS), (SORTS, FACES)):
            began = time.monotonic()
            await client.unload(other)
            while any(m.name == other and m.state != "unavailable" for m in await client.index()):
                await asyncio.sleep(0.01)
            await client.load(model, 60)
            alone.append(time.monotonic() - began)
        await client.close()
        print(f"swaps {sorted(swaps)}, Triton alone, without first executions, {sorted(alone)}")
        assert min(swaps) < 1.25 * min(alone) + 0.2

    asyncio.run(main())


def test_what_is_pinned_stays_and_says_so(server: EmbeddedTriton) -> None:
    async def main() -> None:
        async with gateway_on(server) as gateway:
            ids = await streams(gateway)
            real_time = make_spec(1_000, 4_000, model=FACES, shape=SHAPES[FACES])
            registration = await gateway.register(real_time)
            assert registration.stream is not None, registration.verdict
            refused = await gateway.register(make_spec(1_000, 4_000, model=SORTS, shape=SHAPES[SORTS]))
            assert refused.verdict.reason is Reason.MEMORY
            with pytest.raises(NoRoomForModel):
                await gateway.load_model(SORTS)
            with pytest.raises(ModelPinned):
                await gateway.unload_model(FACES)
            [ticket] = gateway.submit(ids[SORTS], noise(1, SORTS).tobytes())
            result = await ticket.result
            assert (result.outcome, result.reason.partition(":")[0]) == (Outcome.FAILED, "no_room")
            [ticket] = gateway.submit(registration.stream.stream_id, noise(1, FACES).tobytes())
            assert (await ticket.result).outcome is Outcome.MET

    asyncio.run(main())


@pytest.mark.parametrize(
    ("version", "shape", "close_reason", "said"),
    [
        ("1", SHAPES[SORTS], "", ""),
        ("1", (224, 224, 4), "model_changed", "takes frames of shape"),
        ("7", SHAPES[SORTS], "version_gone", "version"),
    ],
)
def test_a_model_that_never_was_there_takes_turns_as_what_its_profile_says(
    server: EmbeddedTriton, version: str, shape: tuple[int, ...], close_reason: str, said: str
) -> None:
    async def main() -> None:
        faces, sorts = (FACES, "1", SHAPES[FACES]), (SORTS, version, shape)
        entries = [ProfileEntry(*each, "UINT8", 1, 100, *(EXECUTION_MS,) * 3) for each in (faces, sorts)]
        times = [ModelEntry(name, "1", 1_000, 200, 1 << 27, swaps=5, warm_up_ms=300.0) for name in SHAPES]
        profile = Profile(tuple(entries), tuple(times))
        async with gateway_on(server, profile) as gateway:
            ids = []
            for model, names, frames in (faces, sorts):
                spec = make_spec(10_000, 15_000, model=model, version=names, shape=frames, swapping=True)
                registration = await gateway.register(spec)
                assert registration.stream is not None, registration.verdict
                ids.append(registration.stream.stream_id)
            assert (state(gateway, FACES), state(gateway, SORTS)) == (ModelState.RESIDENT, ModelState.ABSENT)
            tickets = [gateway.submit(ids[0], bytes(math.prod(SHAPES[FACES])))[0]]
            tickets += gateway.submit(ids[1], bytes(math.prod(shape)))
            first, second = [await ticket.result for ticket in tickets]
            assert first.outcome is Outcome.MET, first.reason
            assert second.outcome is (Outcome.FAILED if said else Outcome.MET), second.reason
            assert said in second.reason
            assert gateway.stream(ids[1]).close_reason == close_reason

    asyncio.run(main())


def test_a_killed_triton_is_back_with_what_was_resident(server: EmbeddedTriton) -> None:
    """Within 5 s of being ready; the other model is loaded when a frame of it comes."""

    async def main() -> None:
        async with gateway_on(server) as gateway:
            ids = await streams(gateway)
            await gateway.load_model(FACES)
            await gateway.pin_model(SORTS)
            await until(lambda: state(gateway, SORTS) is ModelState.RESIDENT, 20)
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            await until(lambda: not gateway.ready, 10)
            await asyncio.to_thread(server.stop)
            server.start()
            client = TritonClient(server.grpc_url, max_message_bytes=1 << 20)
            while not await ready(client):
                await asyncio.sleep(0.01)
            began = time.monotonic()
            await client.close()
            await until(lambda: gateway.ready, 20)
            [ticket] = gateway.submit(ids[SORTS], noise(1, SORTS).tobytes())
            assert (await ticket.result).outcome is Outcome.MET
            took_s = time.monotonic() - began
            print(f"serving {took_s:.2f} s after Triton was live")
            assert took_s < 5
            assert state(gateway, SORTS) is ModelState.RESIDENT
            await gateway.pin_model(SORTS, pinned=False)
            [ticket] = gateway.submit(ids[FACES], noise(1, FACES).tobytes())
            assert (await ticket.result).outcome is Outcome.MET

    asyncio.run(main())


async def ready(client: TritonClient) -> bool:
    try:
        return await client.live(0.5)
    except Exception:  # noqa: BLE001 - whatever it is, Triton is not there yet
        return False
