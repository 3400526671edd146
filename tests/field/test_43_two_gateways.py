"""Report 43: several gateways in front of one Triton, of which one comes, goes, and is killed."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from gateway.core.types import Outcome
from gateway.runtime.region import SHM_DIRECTORY
from tests.runtime_support import admitted, frame, gateway_on_stand_in, running_gateway

ROOT = Path(__file__).parents[2]
#: A whole gateway that is registered with the Triton at the first argument.
OTHER = """
import asyncio, sys
from tests.runtime_support import running_gateway
async def main():
    async with running_gateway(sys.argv[1]) as gateway:
        print(gateway.arena.region.name, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


class Sender:
    """Sends frames all the time, in the background."""

    def __init__(self, gateway, record):
        self.outcomes = []
        self._gateway, self._record = gateway, record

    async def _run(self):
        while True:
            [ticket] = self._gateway.submit(self._record.stream_id, frame(7))
            self.outcomes.append((await ticket.result).outcome)
            await asyncio.sleep(0.1)

    async def __aenter__(self):
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_error):
        assert not self._task.done(), self._task.exception()
        self._task.cancel()
        await asyncio.wait([self._task])


async def sending(gateway):
    return Sender(gateway, await admitted(gateway, period_ms=100, deadline_ms=2_000))


def test_one_comes_and_goes_the_other_has_no_error(length):
    async def main():
        async with gateway_on_stand_in() as (gateway, triton), await sending(gateway) as sender:
            mine = gateway.arena.region.name
            for _ in range(length(10, 100)):
                async with running_gateway(triton.url) as other, await sending(other) as others:
                    assert set(triton.regions) == {mine, other.arena.region.name}
                    while len(others.outcomes) < 2:
                        await asyncio.sleep(0.02)
                assert set(triton.regions) == {mine}
                assert set(others.outcomes) == {Outcome.MET}
            assert gateway.ready
        assert set(sender.outcomes) == {Outcome.MET}
        assert len(sender.outcomes) > 10

    asyncio.run(main())


def test_a_killed_one_is_cleaned_up_after_and_the_other_is_not(length):
    async def start(url):
        process = await asyncio.to_thread(
            subprocess.Popen, [sys.executable, "-c", OTHER, url], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        name = (await asyncio.to_thread(process.stdout.readline)).strip()
        assert (SHM_DIRECTORY / name).exists()
        return process, name

    async def main():
        async with gateway_on_stand_in() as (gateway, triton), await sending(gateway) as sender:
            mine = gateway.arena.region.name
            killed = set()
            for _ in range(length(1, 20)):
                process, name = await start(triton.url)
                assert {mine, name} <= set(triton.regions)
                process.send_signal(signal.SIGKILL)
                await asyncio.to_thread(process.communicate)
                killed.add(name)
            async with running_gateway(triton.url) as after:
                assert set(triton.regions) == {mine, after.arena.region.name}
                assert [name for name in killed if (SHM_DIRECTORY / name).exists()] == []
                assert (SHM_DIRECTORY / mine).exists()
        assert set(sender.outcomes) == {Outcome.MET}

    asyncio.run(main())
