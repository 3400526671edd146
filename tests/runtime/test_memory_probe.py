"""What models hold is asked of Triton and the device; an unload is over once its memory is back, or known not to be."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from gateway.core.events import Event, MemoryMeasured
from gateway.runtime.memory_probe import MemoryProbe
from gateway.triton.client import TritonClient
from gateway.triton.metrics_page import MetricsPage
from gateway.triton.types import BackendError
from tests.runtime_support import until
from tests.stand_in import Model, StandIn

MB = 1 << 20
INTERVAL_S = 0.08

Test = Callable[[MemoryProbe, StandIn], Awaitable[None]]


def on_stand_in(test: Test, *models: Model, planned: int = MB) -> None:
    async def main() -> None:
        async with StandIn(*models) as triton:
            client = TritonClient(triton.url, max_message_bytes=MB)
            page = MetricsPage(triton.metrics_url)
            probe = MemoryProbe(client, page, {"echo": planned}.get, interval_s=INTERVAL_S)
            try:
                await test(probe, triton)
            finally:
                await probe.stop()
                await client.close()

    asyncio.run(main())


async def unloaded(probe: MemoryProbe, triton: StandIn) -> tuple[int | None, float]:
    """Return what the probe says of an unload, and how long it took to say so."""
    model = triton.models["echo"]
    await probe.leaving("echo")
    model.loaded, model.state = False, "UNAVAILABLE"
    triton.repository.lost_bytes += round(model.bytes * (1 - model.gives_back))
    began_s = time.monotonic()
    used = await probe.gone("echo")
    model.loaded, model.state = True, "READY"
    return used, time.monotonic() - began_s


@pytest.mark.parametrize(("held", "planned", "said"), [(3 * MB, MB, 3 * MB), (MB, 3 * MB, None)])
def test_a_size_that_is_reported_counts_where_it_is_the_larger(held: int, planned: int, said: int | None) -> None:
    async def test(probe: MemoryProbe, triton: StandIn) -> None:
        assert await probe.loaded("echo") == said

    on_stand_in(test, Model("echo", bytes=held), planned=planned)


def test_a_model_that_gives_everything_back_is_trusted_for_a_while() -> None:
    async def test(probe: MemoryProbe, triton: StandIn) -> None:
        used, took_s = await unloaded(probe, triton)
        assert used == triton.repository.base_bytes
        assert took_s < INTERVAL_S / 2
        asked = triton.metrics.asked
        assert await unloaded(probe, triton) == (None, pytest.approx(0, abs=0.01))
        assert triton.metrics.asked == asked, "it was not even asked for"

    on_stand_in(test)


def test_one_that_keeps_a_part_is_waited_for_until_the_figure_is_new_each_time() -> None:
    async def test(probe: MemoryProbe, triton: StandIn) -> None:
        for lost in (0.4 * MB, 0.8 * MB):
            used, took_s = await unloaded(probe, triton)
            assert used == pytest.approx(triton.repository.base_bytes + lost, abs=1)
            assert took_s >= INTERVAL_S

    on_stand_in(test, Model("echo", gives_back=0.6))


def test_an_old_figure_is_not_taken_for_a_leak() -> None:
    """The page shows the memory as freed only some time after the unload."""

    async def test(probe: MemoryProbe, triton: StandIn) -> None:
        model = triton.models["echo"]
        await probe.leaving("echo")
        asyncio.get_running_loop().call_later(INTERVAL_S / 2, lambda: setattr(model, "loaded", False))
        model.state = ""
        assert await probe.gone("echo") == triton.repository.base_bytes

    on_stand_in(test)


def test_without_the_page_an_unload_is_over_at_once() -> None:
    async def test(probe: MemoryProbe, triton: StandIn) -> None:
        triton.metrics.broken = True
        assert await unloaded(probe, triton) == (None, pytest.approx(0, abs=INTERVAL_S / 2))

    on_stand_in(test)


def test_the_device_is_measured_while_nothing_comes_or_goes() -> None:
    async def test(probe: MemoryProbe, triton: StandIn) -> None:
        posted: list[Event] = []
        quiet = False
        probe.start(posted.append, lambda: quiet)
        await asyncio.sleep(2 * INTERVAL_S)
        assert posted == []
        quiet, began_s = True, time.monotonic()
        await until(lambda: posted)
        # It looks eight times in an interval, so that it may have been told up to an eighth of one before.
        assert time.monotonic() - began_s >= 0.85 * INTERVAL_S, "what the page said before is too old"
        assert posted == [MemoryMeasured(triton.repository.base_bytes + MB)]
        await asyncio.sleep(2 * INTERVAL_S)
        assert len(posted) == 1, "nothing has changed"
        triton.models["echo"].bytes = 5 * MB
        probe.changed()
        await until(lambda: len(posted) > 1)
        assert posted[-1] == MemoryMeasured(triton.repository.base_bytes + 5 * MB)

    on_stand_in(test)


def test_pages_that_are_no_metrics() -> None:
    async def answer(text: bytes) -> int | None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(text)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            port = server.sockets[0].getsockname()[1]
            return await MetricsPage(f"127.0.0.1:{port}").gpu_bytes()
        finally:
            server.close()
            await server.wait_closed()

    async def main() -> None:
        ok = b"HTTP/1.1 200 OK\r\n\r\n"
        two = b'nv_gpu_memory_used_bytes{gpu_uuid="a"} 1000000.000000\nnv_gpu_memory_used_bytes{gpu_uuid="b"} 5.0\n'
        assert await answer(ok + b"# HELP nv_gpu_memory_used_bytes GPU used memory, in bytes\n" + two) == 1_000_005
        assert await answer(ok + b"nv_cpu_memory_used_bytes 7.0\n") is None
        for text in (
            b"HTTP/1.1 404 Not Found\r\n\r\n",
            b"",
            b"\xff\xfe",
            ok + b'nv_gpu_memory_used_bytes{a="b"} many\n',
        ):
            with pytest.raises(BackendError, match="metrics"):
                await answer(text)
        with pytest.raises(BackendError, match="no metrics at"):
            await MetricsPage("127.0.0.1:1").gpu_bytes()

    asyncio.run(main())


@pytest.mark.parametrize("url", ["https://triton:8002/metrics", "http://", "ftp://triton"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="is not of the form"):
        MetricsPage(url)
