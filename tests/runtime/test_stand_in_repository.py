"""The stand-in for Triton as far as models come and go: what other tests rest on."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Awaitable

import numpy as np
import pytest

from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, InferenceCall
from tests.runtime.test_triton_client import call, on_stand_in
from tests.runtime_support import until
from tests.stand_in import Model, StandIn

FRAMES = np.zeros((1, 8, 8, 3), np.uint8)


def frames_for(model: str, version: str = "") -> InferenceCall:
    return InferenceCall(model, version, "frames", "UINT8", FRAMES.shape, memoryview(FRAMES).cast("B"))


async def failure(awaitable: Awaitable[object]) -> str:
    with pytest.raises(BackendError) as error:
        await awaitable
    return error.value.message


async def states(client: TritonClient) -> dict[tuple[str, str], str]:
    return {(entry.name, entry.version): entry.state for entry in await client.index()}


async def state(client: TritonClient) -> str:
    (found,) = [*(await states(client)).values()]
    return found


def test_a_model_comes_and_goes_in_its_time() -> None:
    async def test(client: TritonClient, triton: StandIn) -> None:
        assert await state(client) == "absent"
        load = asyncio.create_task(client.load("echo", timeout_s=5))
        await until(lambda: triton.models["echo"].state == "LOADING")
        assert await state(client) == "loading"
        assert "not found" in await failure(client.infer(frames_for("echo")))
        await load
        assert await state(client) == "ready"
        await client.unload("echo")
        assert await state(client) == "unloading"
        assert "not found" in await failure(client.infer(frames_for("echo")))
        await until(lambda: triton.models["echo"].state == "UNAVAILABLE")
        (row,) = await client.index()
        assert (row.state, row.reason) == ("unavailable", "unloaded")
        assert [name for _, _, name in triton.repository.states] == ["LOADING", "READY", "UNLOADING", "UNAVAILABLE"]
        assert len(triton.repository.strays) == 2
        (came,), (went,) = triton.log("load"), triton.log("unload")
        assert came.ended - came.began >= 0.05
        assert went.ended - went.began >= 0.05

    on_stand_in(test, Model("echo", loaded=False, load_delay_s=0.05, unload_delay_s=0.05))


def test_an_unload_waits_for_the_calls_in_flight() -> None:
    async def test(client: TritonClient, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.1
        running = asyncio.create_task(client.infer(call(FRAMES)))
        await until(lambda: triton.models["echo"].using)
        await client.unload("echo")
        assert await state(client) == "unloading"
        assert "echo" in await running
        await until(lambda: triton.models["echo"].state == "UNAVAILABLE")
        assert triton.repository.strays == []

    on_stand_in(test)


def test_loads_and_unloads_that_fail_or_never_end() -> None:
    async def test(client: TritonClient, triton: StandIn) -> None:
        model = triton.models["echo"]
        model.load_error = "no space"
        assert await failure(client.load("echo", timeout_s=5)) == "no space"
        (row,) = await client.index()
        assert (row.state, row.reason) == ("unavailable", "no space")
        model.load_error, model.load_hangs = "", True
        assert "Deadline" in await failure(client.load("echo", timeout_s=0.05))
        assert await state(client) == "loading"
        model.load_hangs = False
        await until(lambda: model.loaded, limit_s=1)  # it goes on, though nobody waits for it any more
        model.unload_error = "busy"
        assert await failure(client.unload("echo")) == "busy"
        model.unload_error, model.unload_hangs = "", True
        await client.unload("echo")
        await asyncio.sleep(0.05)
        assert await state(client) == "unloading"

    on_stand_in(test, Model("echo", loaded=False))


def test_failures_and_delays_of_single_calls() -> None:
    async def test(client: TritonClient, triton: StandIn) -> None:
        triton.repository.load_error = lambda call: "" if len(triton.log("load")) > 1 else "the first one fails"
        triton.repository.load_delay_s = lambda call: 0.05 if len(triton.log("load")) > 1 else 0.0
        assert await failure(client.load("echo", timeout_s=5)) == "the first one fails"
        await client.load("echo", timeout_s=5)
        first, second = triton.log("load")
        assert first.error == "the first one fails"
        assert second.ended - second.began >= 0.05
        assert first.peer == second.peer

    on_stand_in(test, Model("echo", loaded=False))


def test_a_reload_serves_on_and_switches_when_it_succeeds() -> None:
    async def reload(client: TritonClient, triton: StandIn) -> None:
        before = len(triton.log("load"))
        load = asyncio.create_task(client.load("echo", timeout_s=5))
        await until(lambda: len(triton.log("load")) > before)
        assert await states(client) == {("echo", "1"): "ready"}
        await client.infer(frames_for("echo"))
        await load

    async def test(client: TritonClient, triton: StandIn) -> None:
        model = triton.models["echo"]
        model.next_versions, model.load_delay_s, model.load_error = ("2",), 0.05, "corrupt"
        assert await failure(reload(client, triton)) == "corrupt"
        assert await states(client) == {("echo", "1"): "ready"}
        model.load_error = ""
        await reload(client, triton)
        assert await states(client) == {("echo", "2"): "ready"}
        assert "version 1 is not at ready state" in await failure(client.infer(frames_for("echo", "1")))
        await client.infer(frames_for("echo", "2"))

    on_stand_in(test)


def test_memory_that_does_not_come_back() -> None:
    async def used(client: TritonClient, triton: StandIn) -> int:
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(triton.metrics_url).read().decode())
        (value,) = re.findall(r"^nv_gpu_memory_used_bytes\{.*\} (\d+)", page, re.MULTILINE)
        return int(value)

    async def test(client: TritonClient, triton: StandIn) -> None:
        base = await used(client, triton)
        assert base == triton.repository.base_bytes
        for cycle in range(3):
            await client.load("echo", timeout_s=5)
            (stats,) = (await client.statistics("echo"))["model_stats"]
            assert int(stats["memory_usage"][0]["byte_size"]) == 1_000
            assert await used(client, triton) == base + 1_000 + 400 * cycle
            await client.unload("echo")
            assert await used(client, triton) == base + 400 * (cycle + 1)

    on_stand_in(test, Model("echo", loaded=False, bytes=1_000, gives_back=0.6))
