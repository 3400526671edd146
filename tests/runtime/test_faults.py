"""What goes wrong with Triton, and what must come of it. Numbers are those of the field reports."""

import asyncio
import logging
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.core.types import Outcome
from gateway.errors import ArenaTooSmall, ModelNotLoaded, TritonUnavailable
from gateway.runtime.gateway import Gateway
from gateway.runtime.region import SHM_DIRECTORY
from tests.runtime_support import (
    SHAPE,
    admitted,
    frame,
    gateway_on_stand_in,
    make_profile,
    make_settings,
    make_spec,
    running_gateway,
    shm_files,
    until,
)
from tests.stand_in import Model, StandIn

Test = Callable[[Gateway, StandIn], Awaitable[None]]


def run(test: Test, *models: Model, profile: Any = None, **options: Any) -> None:
    async def main() -> None:
        async with gateway_on_stand_in(profile, *models, **options) as (gateway, triton):
            await test(gateway, triton)

    before = shm_files()
    asyncio.run(main())
    assert shm_files() == before


async def served(gateway: Gateway, stream_id: str, value: int = 7) -> Outcome:
    [ticket] = gateway.submit(stream_id, frame(value))
    result = await ticket.result
    if result.outputs is not None:
        assert result.outputs["stamp"][0] == value
    return result.outcome


# ---------------------------------------------------------------- restarts (40, 50)


@pytest.mark.parametrize("way", ["auto", "off"])
@pytest.mark.parametrize("times", [1, 2])
def test_40_a_restarted_triton_is_set_up_again(way: str, times: int) -> None:
    """Idle, once and twice within 2 s: the region and the models are there again without anybody's help."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        assert await served(gateway, record.stream_id) is Outcome.MET
        for _ in range(times):
            await triton.restart(pause_s=0.3)
        assert await until(lambda: not gateway.ready, 5) < 5
        await until(lambda: gateway.ready, 5)
        assert await served(gateway, record.stream_id) is Outcome.MET
        assert set(triton.regions) == ({gateway.arena.region.name} if way == "auto" else set())
        assert [call.name for call in triton.log("load")].count("echo") >= 1

    run(test, triton={"shared_memory": way})


def test_40_a_restart_with_a_call_in_flight_fails_that_job_and_no_other() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 5.0
        record = await admitted(gateway, deadline_ms=20_000)
        [running] = gateway.submit(record.stream_id, frame(1))
        [waiting] = gateway.submit(record.stream_id, frame(2))
        await until(lambda: triton.log("infer"))
        triton.delay_s = lambda call: 0.0
        await triton.restart()
        failed = await running.result
        assert (failed.outcome, failed.outputs) == (Outcome.FAILED, None)
        assert failed.reason
        done = await waiting.result
        assert (done.outcome, done.outputs["stamp"][0]) == (Outcome.MET, 2)
        assert gateway.arena.batches == 0

    run(test)


def test_40_while_triton_is_away_frames_expire_and_registrations_get_503() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway, deadline_ms=100)
        await triton.stop()
        await until(lambda: not gateway.ready, 5)
        assert await served(gateway, record.stream_id) is Outcome.EXPIRED
        with pytest.raises(TritonUnavailable):
            await gateway.register(make_spec())
        await triton.start()
        await until(lambda: gateway.ready, 5)
        assert await served(gateway, record.stream_id) is Outcome.MET

    run(test)


def test_50_the_gateway_starts_first_and_becomes_ready_by_itself() -> None:
    async def main() -> None:
        triton = StandIn(Model("echo", loaded=False))
        await triton.start()
        await triton.stop()  # its port is known now, and nobody listens on it
        async with running_gateway(triton.url, wait_ready=False) as gateway:
            await asyncio.sleep(0.5)
            assert not gateway.ready
            await triton.start()
            assert await until(lambda: gateway.ready, 5) < 5
            record = await admitted(gateway)
            assert await served(gateway, record.stream_id) is Outcome.MET
        await triton.stop()

    asyncio.run(main())


def test_46_an_unready_server_changes_nothing_while_it_answers() -> None:
    """Triton says not ready during a long load; what matters is whether our models are there."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        triton.live = False  # the stand-in has no separate ready flag: not even this is asked while all is well
        await asyncio.sleep(1.3)
        assert gateway.ready
        assert await served(gateway, record.stream_id) is Outcome.MET

    run(test)


def test_a_stop_right_after_a_failed_job_is_not_lost() -> None:
    """The supervisor is cancelled in the very moment in which it is woken to have a look."""

    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        triton.error = lambda call: "CUDA error 700"
        [ticket] = gateway.submit(record.stream_id, frame(1))
        await ticket.result
        async with asyncio.timeout(5):
            await gateway.stop()

    run(test)


# ---------------------------------------------------------------- models (30, 35)


def test_35_a_model_that_cannot_be_loaded_does_not_stop_the_others() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        states = {state.name: (state.state, state.reason) for state in gateway.model_facts.states()}
        assert states["echo"] == ("ready", "")
        assert states["broken"][0] == "failed"
        assert "Protobuf parsing failed" in states["broken"][1]
        assert "zoo" not in states["broken"][1]
        assert states["nowhere"][0] == "failed"
        assert "framegate zoo build nowhere" in states["nowhere"][1]
        with pytest.raises(ModelNotLoaded, match="Protobuf parsing failed"):
            await gateway.register(make_spec(model="broken"))
        record = await admitted(gateway)
        assert await served(gateway, record.stream_id) is Outcome.MET

    broken = Model("broken", loaded=False, load_error="load failed: Protobuf parsing failed")
    run(test, Model("echo", loaded=False), broken, models=["echo", "broken", "nowhere"])


def test_30_every_batch_that_may_be_formed_is_warmed_before_the_model_is_ready() -> None:
    async def main() -> None:
        async with StandIn() as triton:
            cold: set[tuple[int, ...]] = set()

            def first_time_is_slow(call: Any) -> float:
                slow = call.shape not in cold
                cold.add(call.shape)
                return 0.3 if slow else 0.0

            triton.delay_s = first_time_is_slow
            async with running_gateway(triton.url, make_profile(batches=(1, 4))) as gateway:
                assert cold == {(rows, *SHAPE) for rows in (1, 2, 3, 4)}
                record = await admitted(gateway, deadline_ms=250)
                for count in (1, 2, 3, 4):
                    for ticket in gateway.submit(record.stream_id, frame(5) * count):
                        assert (await ticket.result).outcome is Outcome.MET

    asyncio.run(main())


def test_a_model_that_fails_in_its_warm_up_is_reported_with_the_batch() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        [state] = gateway.model_facts.states()
        assert state.state == "failed"
        assert "with 1 frames failed: no kernel" in state.reason

    async def main() -> None:
        async with StandIn() as triton:
            triton.error = lambda call: "no kernel"
            async with running_gateway(triton.url, wait_ready=False) as gateway:
                await until(lambda: gateway.triton_ready)
                await test(gateway, triton)

    asyncio.run(main())


def test_24_a_model_without_a_batch_axis_gets_its_frames_one_by_one_as_they_are() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        tickets = gateway.submit(record.stream_id, frame(1) + frame(2) + frame(3))
        results = [await ticket.result for ticket in tickets]
        assert [result.outputs["stamp"][0] for result in results] == [1, 2, 3]
        assert [result.outputs["echo"].shape for result in results] == [SHAPE] * 3
        assert {call.shape for call in triton.log("infer")} == {SHAPE}

    run(test, Model("echo", max_batch_size=0), profile=make_profile(batches=(1,)))


def test_24_frames_of_a_reply_with_too_few_rows_are_tried_again_alone() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.reply_rows = lambda rows: 1
        triton.delay_s = lambda call: 0.02
        record = await admitted(gateway)
        first = gateway.submit(record.stream_id, frame(1))
        batch = gateway.submit(record.stream_id, frame(2) + frame(3))
        assert (await first[0].result).outcome is Outcome.MET
        for ticket in batch:
            result = await ticket.result
            assert result.outcome is Outcome.MET
            assert result.batch == 1
        assert [call.rows for call in triton.log("infer")] == [1, 2, 1, 1]

    run(test)


def test_a_failed_job_carries_tritons_reason_and_the_next_one_runs() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        triton.error = lambda call: "CUDA error 700" if len(triton.log("infer")) == 1 else ""
        [ticket] = gateway.submit(record.stream_id, frame(1))
        result = await ticket.result
        assert (result.outcome, result.reason, result.batch) == (Outcome.FAILED, "CUDA error 700", 1)
        assert await served(gateway, record.stream_id) is Outcome.MET
        assert gateway.ready, "one failed job is no lost worker"

    run(test)


# ---------------------------------------------------------------- calls that take too long (42)


def test_42_a_job_that_was_given_up_holds_its_memory_until_its_call_ends() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        triton.delay_s = lambda call: 0.8
        record = await admitted(gateway, deadline_ms=5_000)
        [ticket] = gateway.submit(record.stream_id, frame(1))
        result = await ticket.result
        assert result.outcome is Outcome.FAILED
        assert not gateway.ready, "a Triton that still has the job is not usable"
        assert gateway.arena.batches == 1
        assert triton.log("infer")[0].ended is None
        triton.delay_s = lambda call: 0.0
        await until(lambda: gateway.ready)
        assert triton.log("infer")[0].ended is not None
        assert gateway.arena.batches == 0
        assert await served(gateway, record.stream_id) is Outcome.MET

    run(test, triton={"call_timeout_ms": 100, "connect_timeout_ms": 100})


def test_42_the_region_is_unregistered_after_the_last_call() -> None:
    async def main() -> None:
        async with StandIn() as triton, running_gateway(triton.url) as gateway:
            triton.calls.clear()
            triton.delay_s = lambda call: 0.4
            record = await admitted(gateway, deadline_ms=2_000)
            [ticket] = gateway.submit(record.stream_id, frame(1))
            await until(lambda: triton.log("infer"))
            await gateway.close_stream(record.stream_id)
            await gateway.stop()
            assert (await ticket.result).outcome is Outcome.MET
            assert triton.log("infer")[0].ended is not None
            assert triton.log("infer")[0].ended <= triton.log("unregister")[0].began

    asyncio.run(main())


def test_42_a_refused_unregistration_is_asked_for_again() -> None:
    async def main() -> None:
        before = shm_files()
        async with StandIn() as triton:
            async with running_gateway(triton.url):
                triton.busy_unregisters = 3
            assert len(triton.log("unregister")) == 4
            assert triton.regions == {}
            assert shm_files() == before

    asyncio.run(main())


def test_a_stop_during_a_call_that_never_ends_is_bounded_and_honest() -> None:
    async def main() -> None:
        async with StandIn() as triton, running_gateway(triton.url) as gateway:
            triton.delay_s = lambda call: 60.0
            record = await admitted(gateway, deadline_ms=60_000)
            [running] = gateway.submit(record.stream_id, frame(1))
            [waiting] = gateway.submit(record.stream_id, frame(2))
            await until(lambda: len(triton.log("infer")) > 8)
            began = time.monotonic()
            await gateway.stop()
            assert time.monotonic() - began < 4
            assert (await running.result).outcome is Outcome.FAILED
            assert (await waiting.result).outcome is Outcome.CANCELLED

    asyncio.run(main())


# ---------------------------------------------------------------- shared memory (43, 44)


def test_a_triton_that_refuses_shared_memory_gets_its_frames_in_messages(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with StandIn() as triton:
            triton.refuse_region = "client shared memory is disabled"
            async with running_gateway(triton.url) as gateway:
                record = await admitted(gateway)
                assert await served(gateway, record.stream_id) is Outcome.MET
                assert {call.way for call in triton.log("infer")} == {"message"}

    asyncio.run(main())
    assert "client shared memory is disabled" in caplog.text


def test_43_two_gateways_on_one_triton_do_not_disturb_each_other() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        record = await admitted(gateway)
        mine = gateway.arena.region.name
        for _ in range(5):
            async with running_gateway(triton.url) as other:
                assert set(triton.regions) == {mine, other.arena.region.name}
                assert await served(gateway, record.stream_id) is Outcome.MET
            assert set(triton.regions) == {mine}
        assert await served(gateway, record.stream_id) is Outcome.MET
        assert gateway.ready

    run(test)


def test_43_a_killed_gateway_is_cleaned_up_after_by_the_next() -> None:
    code = (
        "import asyncio, sys\n"
        "from tests.runtime_support import running_gateway\n"
        "async def main():\n"
        "    async with running_gateway('127.0.0.1:9', wait_ready=False) as gateway:\n"
        "        print(gateway.arena.region.name, flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root)
    assert process.stdout is not None
    path = SHM_DIRECTORY / process.stdout.readline().strip()
    assert path.exists()

    async def start_and_stop() -> None:
        async with running_gateway("127.0.0.1:9", wait_ready=False):
            pass

    asyncio.run(start_and_stop())
    assert path.exists(), "a living gateway's memory was taken from it"
    children = _children(process.pid)
    assert children, "the process for counter-offers is a child"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    asyncio.run(start_and_stop())
    assert not path.exists()
    for child in children:
        _wait_until_gone(child)


def test_43_regions_of_killed_gateways_are_unregistered_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    """Triton holds a mapping of each until it is told, and nobody else will tell it."""

    async def main() -> None:
        async with StandIn() as triton, running_gateway(triton.url) as other:
            dead, foreign, odd = "framegate-4711-00112233445566ff", "somebody-else", "framegate-notes"
            for name in (dead, foreign, odd):
                triton.regions[name] = mmap.mmap(-1, 4096)
            alive = other.arena.region.name
            async with running_gateway(triton.url) as gateway:
                assert set(triton.regions) == {alive, gateway.arena.region.name, foreign, odd}
            assert [call.name for call in triton.log("unregister")] == [dead, gateway.arena.region.name]

    caplog.set_level(logging.INFO)
    asyncio.run(main())
    assert "framegate-4711-00112233445566ff" in caplog.text


def test_43_a_dead_region_that_stays_registered_keeps_nobody_from_serving() -> None:
    async def main() -> None:
        async with StandIn() as triton:
            triton.regions["framegate-4711-00112233445566ff"] = mmap.mmap(-1, 4096)
            triton.busy_unregisters = 1
            async with running_gateway(triton.url) as gateway:
                record = await admitted(gateway)
                assert await served(gateway, record.stream_id) is Outcome.MET

    asyncio.run(main())


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children")
    threads = Path(f"/proc/{pid}/task").iterdir()
    assert text.exists()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]


def _wait_until_gone(pid: int) -> None:
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} outlived its gateway")


def test_44_too_little_shared_memory_is_a_clear_error_at_the_start() -> None:
    """The tmpfs itself has less than is asked for."""

    async def main() -> None:
        stat = os.statvfs(SHM_DIRECTORY)
        size = stat.f_blocks * stat.f_frsize + (1 << 20)
        gateway = Gateway(make_settings("127.0.0.1:9", arena={"bytes": size}), make_profile())
        with pytest.raises(ArenaTooSmall, match="FRAMEGATE_TRITON__SHARED_MEMORY=off"):
            await gateway.start()
        await gateway.stop()

    before = shm_files()
    asyncio.run(main())
    assert shm_files() == before


def test_a_gateway_of_its_own_memory_needs_no_dev_shm() -> None:
    async def test(gateway: Gateway, triton: StandIn) -> None:
        assert not gateway.arena.region.shared
        record = await admitted(gateway)
        assert await served(gateway, record.stream_id) is Outcome.MET

    run(test, triton={"shared_memory": "off"})
