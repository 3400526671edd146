"""The gateway on a real Triton with a real model: frames in, tensors out, Triton killed and back."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from gateway.core.profile import Profile
from gateway.core.types import Outcome, StreamSpec
from gateway.errors import DtypeMismatch, ShapeMismatch
from gateway.runtime.gateway import Gateway
from gateway.runtime.region import SHM_DIRECTORY
from gateway.triton.client import TritonClient
from gateway.triton.embedded import EmbeddedTriton
from profiler.plan import Plan
from profiler.quick import measure
from tests.runtime_support import make_profile, make_settings, make_spec, shm_files, until

pytestmark = pytest.mark.e2e

MODEL = "centerface"
SHAPES = ((96, 128, 3), (64, 64, 3))
#: What a row of a batch may differ from a batch of one: the order of sums inside the runtime.
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def reference(built_models: Callable[..., Path]) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    session = onnxruntime.InferenceSession(built_models(MODEL) / MODEL / "1" / "model.onnx")
    names = [output.name for output in session.get_outputs()]

    def infer(frame: np.ndarray) -> dict[str, np.ndarray]:
        rows = session.run(names, {session.get_inputs()[0].name: frame[np.newaxis]})
        return {name: row[0] for name, row in zip(names, rows, strict=True)}

    return infer


@asynccontextmanager
async def gateway_on(server: EmbeddedTriton, **groups: Any) -> AsyncIterator[Gateway]:
    profile = make_profile(batches=(1, 2, 4), shapes=SHAPES, models=[MODEL], execution_ms=40)
    settings = make_settings(server.grpc_url, arena={"bytes": 8 << 20}, **groups)
    gateway = Gateway(settings, profile)
    await gateway.start()
    try:
        await until(lambda: gateway.ready, 60)
        yield gateway
    finally:
        await gateway.stop()


def spec(shape: tuple[int, ...] = SHAPES[0]) -> StreamSpec:
    return make_spec(500, 2_000, model=MODEL, shape=shape)


def noise(seed: int, shape: tuple[int, ...] = SHAPES[0]) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("way", ["auto", "off"])
def test_each_frame_gets_what_the_model_says_of_it(triton_server: EmbeddedTriton, reference: Any, way: str) -> None:
    """Two shapes, several batch sizes, both ways to Triton, against the model run directly at batch 1."""

    async def main() -> None:
        async with gateway_on(triton_server, triton={"shared_memory": way}) as gateway:
            assert gateway.shared_memory == (way == "auto")
            assert (gateway.model_facts.metadata(MODEL)).max_batch_size >= 4
            ids = {}
            for shape in SHAPES:
                registration = await gateway.register(spec(shape))
                assert registration.stream is not None, registration.verdict
                ids[shape] = registration.stream.stream_id
            sent = []
            for seed in range(24):
                shape = SHAPES[seed % 5 == 0]
                frame = noise(seed, shape)
                sent.append((frame, gateway.submit(ids[shape], frame.tobytes())[0].result))
            batches = set()
            for frame, future in sent:
                result = await future
                assert result.outcome in {Outcome.MET, Outcome.MISSED}
                batches.add(result.batch)
                expected = reference(frame)
                assert result.outputs.keys() == expected.keys()
                for name, row in expected.items():
                    assert result.outputs[name].shape == row.shape
                    np.testing.assert_allclose(result.outputs[name], row, atol=TOLERANCE)
            assert {1, 4} <= batches
            assert gateway.arena.batches == 0

    before = shm_files()
    asyncio.run(main())
    assert shm_files() == before


def test_registrations_are_checked_against_the_real_metadata(triton_server: EmbeddedTriton) -> None:
    async def main() -> None:
        async with gateway_on(triton_server) as gateway:
            for fields, error in (({"shape": (3, 96, 128)}, ShapeMismatch), ({"dtype": "FP32"}, DtypeMismatch)):
                with pytest.raises(error):
                    await gateway.register(make_spec(**({"model": MODEL, "shape": SHAPES[0]} | fields)))

    asyncio.run(main())


def test_the_profile_of_the_dispatch_path_predicts_a_frame(triton_server: EmbeddedTriton) -> None:
    """An idle device and one slow stream: the latency's median is the profiled one of one frame, within 5 ms."""

    async def main() -> None:
        settings = make_settings(triton_server.grpc_url, arena={"bytes": 8 << 20})
        report = await measure(Plan((MODEL,), (SHAPES[0][:2],), (1, 2), samples=30), settings, "here")
        assert report.failures == ()
        assert [(entry.batch, entry.shape, entry.count) for entry in report.profile.entries] == [
            (batch, SHAPES[0], 30) for batch in (1, 2)
        ]
        assert report.profile.triton_version.startswith("2.")
        profile = Profile.from_dict(report.profile.to_dict())
        gateway = Gateway(settings, profile)
        await gateway.start()
        await until(lambda: gateway.ready, 60)
        registration = await gateway.register(make_spec(200, 1_000, model=MODEL, shape=SHAPES[0]))
        assert registration.stream is not None, registration.verdict
        latencies = []
        for seed in range(15):
            [ticket] = gateway.submit(registration.stream.stream_id, noise(seed).tobytes())
            latencies.append((await ticket.result).latency_ms)
            await asyncio.sleep(0.05)
        await gateway.stop()
        assert abs(float(np.median(latencies)) - report.profile.entries[0].p50_ms) < 5

    asyncio.run(main())


def test_43_regions_of_killed_gateways_are_closed(triton_server: EmbeddedTriton) -> None:
    """A gateway that was killed, its file removed by the next one: Triton would map its memory for good."""

    async def main() -> None:
        name = f"framegate-{os.getpid()}-{0:016x}"
        path = SHM_DIRECTORY / name
        client = TritonClient(triton_server.grpc_url, max_message_bytes=1 << 20)
        path.write_bytes(bytes(4096))
        try:
            await client.register_region(name, f"/{name}", 4096)
        finally:
            path.unlink()
        assert name in await client.region_names()
        async with gateway_on(triton_server) as gateway:
            assert await client.region_names() == {gateway.arena.region.name}
        await client.close()

    asyncio.run(main())


@pytest.fixture
def own_triton(built_models: Callable[..., Path], tmp_path: Path) -> Iterator[EmbeddedTriton]:
    """One that may be killed."""
    with EmbeddedTriton(built_models(MODEL), tmp_path / "triton.log") as triton:
        yield triton


def test_a_killed_triton_comes_back_into_service(own_triton: EmbeddedTriton) -> None:
    """Field report 40, with a real one: its registrations and models are gone, its address is the same."""

    async def main() -> None:
        async with gateway_on(own_triton) as gateway:
            registration = await gateway.register(spec())
            assert registration.stream is not None
            stream_id = registration.stream.stream_id
            tickets = [ticket for seed in range(9) for ticket in gateway.submit(stream_id, noise(seed).tobytes())]
            assert own_triton.pid is not None
            os.kill(own_triton.pid, signal.SIGKILL)
            outcomes = [(await ticket.result).outcome for ticket in tickets]
            assert set(outcomes) <= {Outcome.MET, Outcome.MISSED, Outcome.FAILED, Outcome.EXPIRED}
            await until(lambda: not gateway.ready, 10)
            await asyncio.to_thread(own_triton.stop)
            own_triton.start()
            await until(lambda: gateway.ready, 20)
            [ticket] = gateway.submit(stream_id, noise(1).tobytes())
            assert (await ticket.result).outcome is Outcome.MET
            record = gateway.stream(stream_id)
            assert record.accepted == record.outcomes.total() == 10

    asyncio.run(main())


def stubs_of(pid: int, model: str) -> list[int]:
    """Return the processes of Python models called `model` below process `pid`."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"triton_python_backend_stub" in command and model.encode() in command:
                found.append(int(child))
            found += stubs_of(int(child), model)
    return found


def test_a_model_whose_process_was_killed_comes_back_by_itself(own_triton: EmbeddedTriton) -> None:
    """Triton goes on saying that it is ready, and fails each of its jobs."""

    async def main() -> None:
        async with gateway_on(own_triton) as gateway:
            registration = await gateway.register(spec())
            assert registration.stream is not None
            stream_id = registration.stream.stream_id
            assert own_triton.pid is not None
            [stub] = stubs_of(own_triton.pid, MODEL)
            os.kill(stub, signal.SIGKILL)
            [ticket] = gateway.submit(stream_id, noise(0).tobytes())
            failed = await ticket.result
            assert failed.outcome is Outcome.FAILED, failed
            [state] = [state for state in gateway.model_facts.states() if state.name == MODEL]
            assert state.state == "failed"
            assert "is being reloaded" in state.reason
            assert not gateway.ready
            await until(lambda: gateway.ready, 20)
            [ticket] = gateway.submit(stream_id, noise(1).tobytes())
            assert (await ticket.result).outcome is Outcome.MET
            assert gateway.triton_ready

    asyncio.run(main())
