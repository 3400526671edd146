"""Injected delays, and small jobs, on a real Triton: what runs is what the model says of the scaled frame."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import pytest

from gateway.core.profile import Profile
from gateway.core.types import Outcome
from gateway.runtime.gateway import Gateway
from gateway.runtime.results import FrameResult
from gateway.triton.embedded import EmbeddedTriton
from tests.runtime_support import make_profile, make_settings, make_spec, until

pytestmark = pytest.mark.e2e

MODEL = "centerface"
LARGE, SMALL = (192, 256, 3), (96, 128, 3)
LARGE_MS, SMALL_MS, DELAY_MS = 300.0, 250.0, 600
#: As in `tests.e2e.test_runtime`: the order of sums inside the runtime.
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def slow_triton(
    built_models: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedTriton]:
    """One that takes delays."""
    log = tmp_path_factory.mktemp("slow") / "triton.log"
    with EmbeddedTriton(built_models(MODEL), log, fault_injection=True) as triton:
        yield triton


@asynccontextmanager
async def camera(server: EmbeddedTriton) -> AsyncIterator[tuple[Gateway, Callable[[np.ndarray], object]]]:
    """A gateway, and how to send a frame; the device is warm."""
    entries = [
        entry
        for shape, ms in ((LARGE, LARGE_MS), (SMALL, SMALL_MS))
        for entry in make_profile(batches=(1, 2), shapes=[shape], models=[MODEL], execution_ms=ms).entries
    ]
    gateway = Gateway(make_settings(server.grpc_url, arena={"bytes": 8 << 20}), Profile(tuple(entries)))
    await gateway.start()
    try:
        await until(lambda: gateway.ready, 60)
        # Eight frames in two seconds: as many as a test sends, whenever it does.
        spec = make_spec(4_000, 8_000, model=MODEL, shape=LARGE, burst=8)
        registration = await gateway.register(spec)
        assert registration.stream is not None, registration.verdict
        stream_id = registration.stream.stream_id

        async def send(frame: np.ndarray) -> FrameResult:
            (ticket,) = gateway.submit(stream_id, frame.tobytes())
            return await ticket.result

        await send(noise(0))
        yield gateway, send
    finally:
        await gateway.stop()


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, LARGE, dtype=np.uint8)


def test_a_delay_is_taken_and_paid_back_by_results_of_the_scaled_frame(
    slow_triton: EmbeddedTriton, built_models: Callable[..., Path]
) -> None:
    session = onnxruntime.InferenceSession(built_models(MODEL) / MODEL / "1" / "model.onnx")
    names = [output.name for output in session.get_outputs()]

    async def main() -> None:
        async with camera(slow_triton) as (gateway, send):
            gateway.delay_jobs(1, DELAY_MS)
            slow = await send(noise(1))
            assert slow.execute_ms >= DELAY_MS
            assert (slow.degraded, slow.shape) == (False, LARGE)
            frame = noise(2)
            small = await send(frame)
            assert small.outcome is Outcome.MET
            assert small.execute_ms < LARGE_MS, "the delay was for one job"
            assert (small.degraded, small.shape) == (True, SMALL)
            scaled = cv2.resize(frame, (SMALL[1], SMALL[0]), interpolation=cv2.INTER_AREA)
            rows = session.run(names, {session.get_inputs()[0].name: scaled[np.newaxis]})
            for name, row in zip(names, rows, strict=True):
                np.testing.assert_allclose(small.outputs[name], row[0], atol=TOLERANCE)
            # Each saves most of `LARGE_MS`: the excess of about 320 ms is gone after two of them.
            degraded = [(await send(noise(seed))).degraded for seed in range(3, 6)]
            assert degraded == sorted(degraded, reverse=True)
            assert degraded[-1] is False

    asyncio.run(main())


def test_without_the_flag_a_delay_is_ignored(triton_server: EmbeddedTriton) -> None:
    async def main() -> None:
        async with camera(triton_server) as (gateway, send):
            gateway.delay_jobs(3, DELAY_MS)
            began = time.monotonic()
            results = [await send(noise(seed)) for seed in range(3)]
            assert time.monotonic() - began < 3 * DELAY_MS / 1_000
            assert all(result.execute_ms < DELAY_MS for result in results)
            assert not any(result.degraded for result in results)

    asyncio.run(main())
