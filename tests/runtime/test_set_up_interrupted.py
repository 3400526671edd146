"""Triton is restarted while it is set up, too quickly for any call to fail."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from gateway.core.types import Outcome
from gateway.runtime.gateway import Gateway
from gateway.triton.client import TritonClient
from tests.runtime_support import admitted, frame, running_gateway, until
from tests.stand_in import Model, StandIn


async def set_up(triton: StandIn, interrupted: Callable[[Gateway], Awaitable[None]]) -> None:
    async with running_gateway(triton.url, triton=triton.addresses, wait_ready=False) as gateway:
        await interrupted(gateway)
        await until(lambda: gateway.ready, 5)
        record = await admitted(gateway)
        [ticket] = gateway.submit(record.stream_id, frame(7))
        assert (await ticket.result).outcome is Outcome.MET
        assert triton.log("infer")[-1].peer.startswith("http")
        assert set(triton.regions) == {gateway.arena.region.name}


def nothing_is_held_against_the_model(caplog: pytest.LogCaptureFixture) -> None:
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == []


def test_before_its_http_endpoint_answers(caplog: pytest.LogCaptureFixture) -> None:
    """The question for the region is asked again for half a second: another Triton may answer it."""

    async def main() -> None:
        async with StandIn(Model("echo", loaded=False)) as triton:
            await triton.http.stop()

            async def interrupted(_gateway: Gateway) -> None:
                await until(lambda: triton.log("register"))
                await triton.restart()

            await set_up(triton, interrupted)

    asyncio.run(main())
    nothing_is_held_against_the_model(caplog)


@pytest.mark.parametrize("call", ["try_http", "index", "load", "metadata"])
def test_after_a_call(call: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels connect again without a word, and the new Triton knows neither the arena nor the models."""
    original = getattr(TritonClient, call)

    async def main() -> None:
        async with StandIn(Model("echo", loaded=False)) as triton:
            restarted = asyncio.Event()

            async def and_restart(*arguments: object) -> object:
                found = await original(*arguments)
                if not restarted.is_set():
                    restarted.set()
                    await triton.restart()
                return found

            monkeypatch.setattr(TritonClient, call, and_restart)

            async def interrupted(_gateway: Gateway) -> None:
                await restarted.wait()

            await set_up(triton, interrupted)

    asyncio.run(main())
    nothing_is_held_against_the_model(caplog)
