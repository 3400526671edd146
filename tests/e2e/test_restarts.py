"""The embedded Triton is killed and comes back by itself with a model of the framework that takes longest to import."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.api.keeper import keep_running
from gateway.core.types import Outcome
from gateway.triton.embedded import EmbeddedTriton
from tests.runtime_support import admitted, frame, make_profile, running_gateway, until

pytestmark = [pytest.mark.e2e, pytest.mark.zoo]

SHAPE = (96, 96, 3)
#: TensorFlow takes 7 s to import. Measured: 6 to 10 s on two busy cores.
LIMIT_S = 20.0


def test_a_graphdef_is_served_again(built_models: Callable[..., Path], tmp_path: Path) -> None:
    async def main(server: EmbeddedTriton) -> None:
        keeper = asyncio.create_task(keep_running(server))
        profile = make_profile(models=["inception_v3"], batches=(1,), shapes=(SHAPE,), execution_ms=300)
        async with running_gateway(server.grpc_url, profile, wait_ready=False) as gateway:
            await until(lambda: gateway.ready, 60)
            stream = await admitted(gateway, model="inception_v3", shape=SHAPE, period_ms=1_000, deadline_ms=5_000)
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            killed_s = time.monotonic()
            await until(lambda: not gateway.ready)
            await until(lambda: gateway.ready, LIMIT_S)
            result = await gateway.submit(stream.stream_id, frame(1, SHAPE))[0].result
            assert result.outcome is Outcome.MET
            assert time.monotonic() - killed_s < LIMIT_S
        keeper.cancel()

    with EmbeddedTriton(built_models("inception_v3"), tmp_path / "triton.log") as server:
        asyncio.run(main(server))
