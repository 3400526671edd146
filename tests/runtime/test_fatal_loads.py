"""A model whose load ends Triton does not keep everything else from being served."""

import asyncio

import pytest

from gateway.runtime.fatal_loads import FatalLoads
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError
from tests.runtime_support import gateway_on_stand_in, make_profile, make_spec, until
from tests.stand_in import Call, Model, StandIn


def deadly(triton: StandIn, name: str) -> list[asyncio.Task[None]]:
    """Have Triton die, and come back, whenever it is to load that model; return the restarts."""
    restarts: list[asyncio.Task[None]] = []

    def delay(call: Call) -> float:
        if call.name != name:
            return 0.0
        restarts.append(asyncio.get_running_loop().create_task(triton.restart()))
        return 1.0

    triton.repository.load_delay_s = delay
    return restarts


def test_after_the_second_time_it_is_refused_for_a_while() -> None:
    async def main() -> None:
        async with StandIn(Model("good", loaded=False), Model("bad", loaded=False)) as triton:
            client = TritonClient(triton.url, max_message_bytes=1 << 20)
            loads, restarts = FatalLoads(client), deadly(triton, "bad")
            for times in (1, 2):
                with pytest.raises(BackendError) as died:
                    await loads.load("bad", 5.0)
                assert died.value.unreachable
                await restarts.pop()
                assert (loads.suspect("bad"), loads.suspect("good")) == (True, False), times
            with pytest.raises(BackendError, match="Triton ended 2 times while it was loaded"):
                await loads.load("bad", 5.0)
            assert restarts == [], "Triton was not asked"
            await until_up(client)
            await loads.load("good", 5.0)
            triton.repository.load_delay_s = lambda call: 0.0
            loads.clear("bad")
            await loads.load("bad", 5.0)
            assert not loads.suspect("bad")
            await client.close()

    asyncio.run(main())


def test_a_refusal_is_no_death_and_neither_is_a_triton_that_is_away() -> None:
    async def main() -> None:
        async with StandIn(Model("echo", loaded=False, load_error="damaged")) as triton:
            client = TritonClient(triton.url, max_message_bytes=1 << 20)
            loads = FatalLoads(client)
            for _ in range(3):
                with pytest.raises(BackendError, match="damaged"):
                    await loads.load("echo", 5.0)
            await triton.stop()
            with pytest.raises(BackendError):
                await loads.load("echo", 5.0)
            assert not loads.suspect("echo")
            await client.close()

    asyncio.run(main())


async def until_up(client: TritonClient) -> None:
    while True:
        try:
            if await client.live():
                return
        except BackendError:
            await asyncio.sleep(0.02)


def test_the_others_are_served_all_the_same() -> None:
    """Both are loaded at once; whichever it was, the third set-up goes without the one that it was."""

    async def main() -> None:
        models = (Model("echo"), Model("bad", loaded=False))
        profile = make_profile(models=("echo", "bad"))
        async with gateway_on_stand_in(profile, *models, wait_ready=False) as (gateway, triton):
            restarts = deadly(triton, "bad")
            await until(lambda: gateway.triton_ready, limit_s=15)
            assert len(restarts) == 2
            assert (await gateway.register(make_spec(model="echo"))).stream is not None
            said = {state.name: state.reason for state in gateway.model_facts.states()}
            assert "Triton ended 2 times" in said["bad"]
            triton.repository.load_delay_s = lambda call: 0.0

    asyncio.run(main())
