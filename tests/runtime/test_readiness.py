"""Whether the gateway says that it is of use exactly when it is: nothing to serve, and an engine that failed."""

import asyncio
import logging
import re
from typing import Any

import pytest

from gateway.core.profile import Profile
from gateway.core.profile_entry import ModelEntry
from gateway.errors import EngineFailed, NothingServed
from tests.api.served import FRAME, Served, problem, wait_until
from tests.runtime_support import (
    SHAPE,
    admitted,
    frame,
    gateway_on_stand_in,
    make_profile,
    make_spec,
    running_gateway,
    shm_files,
    until,
)
from tests.stand_in import Model, StandIn

BIG = (900, 900, 3)


@pytest.mark.parametrize(
    ("profile", "model", "reason"),
    [
        (Profile(), Model("echo"), "The profile has no entries"),
        (make_profile(models=["nobody"]), Model("echo"), "nobody.*failed to load"),
        (make_profile(), Model("echo", loaded=False, load_error="out of memory"), "echo.*out of memory"),
        (make_profile(), Model("echo", max_batch_size=2), "the model takes at most 2"),
        (make_profile(), Model("echo", datatype="INT8"), "takes INT8, not UINT8"),
        (make_profile(shapes=[BIG], batches=(1,)), Model("echo"), "FRAMEGATE_ARENA__BYTES"),
    ],
)
def test_a_gateway_that_can_serve_nothing_is_not_ready_and_says_why(
    profile: Profile, model: Model, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with StandIn(model) as triton, running_gateway(triton.url, profile, wait_ready=False) as gateway:
            await until(lambda: gateway.triton_ready)
            assert not gateway.ready
            error = gateway.unready()
            assert isinstance(error, NothingServed)
            assert error.retry_after_s
            assert re.search(reason, error.detail), error.detail
            # The profiler, which makes the profile, is not warned that there is none.
            assert bool(re.search(reason, caplog.text)) is bool(profile.entries)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [((4096,), "echo: it needs 4.0 KiB, .* budget is 1 B "), ((), "its size is not in the profile")],
)
def test_nor_is_one_whose_budget_holds_no_model(
    sizes: tuple[int, ...], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """``--memory-budget 1`` where 1GiB was meant; or a profile without sizes."""

    async def main() -> None:
        models = tuple(ModelEntry("echo", "1", 20.0, 20.0, size) for size in sizes)
        profile = Profile(make_profile().entries, models)
        residency: dict[str, object] = {"budget_bytes": 1}
        async with (
            StandIn() as triton,
            running_gateway(triton.url, profile, wait_ready=False, residency=residency) as gateway,
        ):
            await until(lambda: gateway.triton_ready)
            error = gateway.unready()
            assert isinstance(error, NothingServed)
            assert re.search(reason, error.detail), error.detail
            assert re.search(reason, caplog.text)

    asyncio.run(main())


def test_one_category_is_enough() -> None:
    async def main() -> None:
        profile = make_profile(models=["nobody", "echo"], shapes=[BIG, SHAPE], batches=(1,))
        async with gateway_on_stand_in(profile) as (gateway, _triton):
            assert gateway.unready() is None

    asyncio.run(main())


def test_a_model_that_comes_later_makes_it_ready() -> None:
    """Somebody loads the model: it is asked for at the next start of Triton, and served from then on."""

    async def main() -> None:
        model = Model("echo", loaded=False, load_error="no space")
        async with StandIn(model) as triton, running_gateway(triton.url, wait_ready=False) as gateway:
            await until(lambda: gateway.triton_ready)
            assert not gateway.ready
            model.load_error = ""
            await triton.restart()
            await until(lambda: gateway.ready, 5)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("budget_mb", "serves", "never"),
    [
        (8, "serves a/1; on demand: b; frames", "model c can never be loaded: it needs 9.0 MiB, and .* is 8.0 MiB"),
        (1, "serves nothing; frames", "model b can never be loaded: it needs 5.0 MiB, and .* is 1.0 MiB"),
    ],
)
def test_the_start_says_what_comes_on_demand_and_what_never_can(
    budget_mb: int, serves: str, never: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sizes = {"a": 4, "b": 5, "c": 9}
    profile = Profile(
        make_profile(models=sizes).entries, tuple(ModelEntry(name, "1", 20, 10, mb << 20) for name, mb in sizes.items())
    )

    async def main() -> None:
        async with StandIn(*(Model(name, loaded=False) for name in sizes)) as triton:
            residency = {"budget_bytes": budget_mb << 20}
            async with running_gateway(triton.url, profile, wait_ready=False, residency=residency) as gateway:
                await until(lambda: gateway.triton_ready)

    asyncio.run(main())
    assert serves in caplog.text
    assert re.search(never, caplog.text)


def broken_engine(*_: Any) -> Any:
    raise RuntimeError("a fault of ours")


def test_a_failed_engine_takes_nothing_and_lets_nobody_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with gateway_on_stand_in() as (gateway, triton):
            triton.delay_s = lambda call: 0.1
            record = await admitted(gateway, deadline_ms=5_000)
            tickets = [t for value in range(3) for t in gateway.submit(record.stream_id, frame(value))]
            gateway._engine.handle = broken_engine
            with pytest.raises(RuntimeError, match="a fault of ours"):
                gateway.cancel(tickets[2])
            for ticket in tickets:
                with pytest.raises(EngineFailed):
                    await asyncio.wait_for(ticket.result, 1)
            assert gateway.broken
            assert isinstance(gateway.unready(), EngineFailed)
            for call in (gateway.register, gateway.check):
                with pytest.raises(EngineFailed):
                    await call(make_spec())
            with pytest.raises(EngineFailed):
                gateway.submit(record.stream_id, frame(1))
            assert record.refused["engine_failed"] == 1
            await asyncio.sleep(0.15)  # the job that ran ends, and changes nothing
            async with asyncio.timeout(3):
                await gateway.stop()

    before = shm_files()
    asyncio.run(main())
    assert shm_files() == before
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.name for record in errors] == ["gateway.runtime.driver"]
    assert "a fault of ours" in caplog.text


def test_a_failed_engine_asks_for_a_restart_over_http() -> None:
    with Served() as served:
        stream = served.register().json()
        assert served.http.get("/v2/health/live").json() == {"live": True}
        served.gateway._engine.handle = broken_engine
        problem(served.http.post(stream["frames_url"], content=FRAME), 500, "internal")
        for method, path in (("GET", "/v2/health/live"), ("GET", "/v2/health/ready"), ("POST", stream["frames_url"])):
            problem(
                served.http.request(method, path, content=FRAME if method == "POST" else None), 503, "engine_failed"
            )
        problem(served.register(), 503, "engine_failed")


def test_readiness_over_http_says_what_is_missing() -> None:
    served = Served(Model("echo", loaded=False, load_error="it is broken")).start(ready=False)
    try:
        wait_until(lambda: served.gateway.triton_ready, "Triton is not found")
        document = problem(served.http.get("/v2/health/ready"), 503, "nothing_served")
        assert "it is broken" in document["error"]
        assert served.http.get("/v2/health/live").status_code == 200
    finally:
        served.stop()
