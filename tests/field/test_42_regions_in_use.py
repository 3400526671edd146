"""Report 42: a region is in use until the last call that reads it has ended."""

import asyncio

from gateway.core.types import Outcome
from tests.runtime_support import admitted, frame, gateway_on_stand_in, running_gateway, shm_files, until
from tests.stand_in import StandIn


def test_a_stream_that_ends_during_a_call_unregisters_nothing(length):
    """Its resolution cannot change; a camera that wants another one ends the stream and registers again."""

    async def main():
        async with gateway_on_stand_in() as (gateway, triton):
            for _ in range(length(2, 30)):
                triton.delay_s = lambda call: 0.4
                record = await admitted(gateway, deadline_ms=1_500)
                [ticket] = gateway.submit(record.stream_id, frame(1))
                await until(lambda: triton.log("infer") and triton.log("infer")[-1].ended is None)
                await gateway.close_stream(record.stream_id)
                again = await admitted(gateway, deadline_ms=1_500)
                assert gateway.arena.batches == 1, "the block of the call is in use"
                assert (await ticket.result).outcome is Outcome.MET
                assert gateway.arena.batches == 0
                await gateway.close_stream(again.stream_id)
            assert triton.log("unregister") == []
            region = gateway.arena.region.name
        assert [call.name for call in triton.log("unregister")] == [region]

    before = shm_files()
    asyncio.run(main())
    assert shm_files() == before


def test_a_stop_that_may_not_wait_leaves_the_rest_to_the_next_gateway():
    """Triton refuses for as long as its call runs. The file goes, and the registration with the next start."""

    async def main():
        async with StandIn() as triton:
            async with running_gateway(triton.url) as gateway:
                triton.delay_s = lambda call: 4.0
                triton.busy_unregisters = 1_000
                record = await admitted(gateway, deadline_ms=20_000)
                [ticket] = gateway.submit(record.stream_id, frame(1))
                await until(lambda: triton.log("infer")[-1].ended is None)
                left = gateway.arena.region.name
            assert (await ticket.result).outcome is Outcome.FAILED
            assert set(triton.regions) == {left}
            triton.busy_unregisters = 0
            triton.delay_s = lambda call: 0.0
            async with running_gateway(triton.url) as gateway:
                await until(lambda: set(triton.regions) == {gateway.arena.region.name})
            assert triton.regions == {}

    before = shm_files()
    asyncio.run(main())
    assert shm_files() == before
