"""Report 21: each frame gets its own answer, whatever stands beside it, came before it or has been given up."""

import asyncio
import random

import pytest

from gateway.core.types import Outcome
from gateway.triton.embedded import EmbeddedTriton
from tests.e2e.v2_models import identity
from tests.echoes import LARGEST, exchange
from tests.runtime_support import gateway_on_stand_in, make_profile, running_gateway, until

SHAPES = ((8, 8, 3), (16, 16, 3))


def test_ten_thousand_frames_of_two_shapes_get_themselves_back(length):
    """Answers are delayed at random; the stand-in reads the shared memory only then."""
    rng = random.Random(21)

    async def main():
        profile = make_profile(batches=range(1, LARGEST + 1), shapes=SHAPES, execution_ms=1.5)
        async with gateway_on_stand_in(profile, arena={"bytes": 8 << 20}) as (gateway, triton):
            triton.delay_s = lambda call: rng.choice([0, 0, 0.001, 0.004])
            done = await exchange(gateway, SHAPES, length(2_000, 10_000), seed=21)
            assert set(done.outcomes) <= {Outcome.MET, Outcome.MISSED, Outcome.CANCELLED}
            assert done.outcomes[Outcome.CANCELLED] > 20
            assert len(done.batches) >= 6, "batches of many sizes"
            assert {call.shape[1:] for call in triton.log("infer")} == set(SHAPES), "no call has two shapes"
            assert max(call.rows for call in triton.log("infer")) <= LARGEST
            await until(lambda: gateway.arena.batches == 0)

    asyncio.run(main())


@pytest.mark.e2e
def test_they_do_on_the_real_triton(tmp_path, length):
    """An ONNX identity with a free picture size, run in batches of up to 16."""
    repository = tmp_path / "models"
    identity(repository, "same", "UINT8", (-1, -1, 3), max_batch=LARGEST)

    async def main(server):
        sizes = (1, 2, 4, 8, LARGEST)
        profile = make_profile(batches=sizes, shapes=SHAPES, models=["same"], execution_ms=10)
        async with running_gateway(server.grpc_url, profile, wait_ready=False, arena={"bytes": 8 << 20}) as gateway:
            await until(lambda: gateway.ready, 60)
            assert gateway.shared_memory
            done = await exchange(gateway, SHAPES, length(1_500, 10_000), seed=4, model="same")
            assert set(done.outcomes) <= {Outcome.MET, Outcome.MISSED, Outcome.CANCELLED}
            assert done.outcomes[Outcome.MET] > length(1_000, 7_000)
            assert len(done.batches) >= 6
            await until(lambda: gateway.arena.batches == 0)

    with EmbeddedTriton(repository, tmp_path / "triton.log") as server:
        asyncio.run(main(server))
