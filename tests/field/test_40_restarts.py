"""Report 40: Triton is restarted and has forgotten everything; streams go on by themselves."""

import asyncio
import time
from contextlib import ExitStack
from functools import partial

import pytest

from gateway.core.types import ModelState, Outcome, ServiceClass
from gateway.errors import TritonUnavailable
from tests.api.served import FRAME, Served, wait_until
from tests.field.support import POLICED, steady
from tests.runtime_support import admitted, frame, gateway_on_stand_in, make_profile, until
from tests.stand_in import Model

CONTRACT = {"fps": 5, "deadline_ms": 900, "jitter_ms": 150}
#: What may become of a frame meanwhile.
HONEST = {"met", "missed", "frame_expired", "frame_failed"}


def all_above(cameras, counts):
    return all(camera.outcomes["met"] > count for camera, count in zip(cameras, counts, strict=True))


def restart(served, how):
    """Restart the stand-in, and return when it could be asked again."""
    if how == "with calls in flight":
        wait_until(lambda: any(call.ended is None for call in served.stand_in.log("infer")), "no call is in flight")
    for _ in range(2 if how == "twice within 2 s" else 1):
        served.run(served.stand_in.restart(pause_s=0.3))
    return time.monotonic()


@pytest.mark.parametrize("how", ["idle", "with calls in flight", "twice within 2 s"])
def test_streams_go_on_after_restarts(how, length, caplog):
    """Eight streams: one call is in Triton's hands, other frames wait. Nobody does anything by hand."""
    with Served(scheduling=POLICED) as served, served.stream(name="idle") as quiet:
        if how == "with calls in flight":
            served.stand_in.delay_s = lambda call: 0.02
        for _ in range(length(1, 20)):
            with ExitStack() as stack:
                streams = [] if how == "idle" else [steady(served, FRAME, **CONTRACT) for _ in range(8)]
                cameras = [stack.enter_context(stream) for stream in streams]
                wait_until(partial(all_above, cameras, [0] * len(cameras)), "they do not run")
                there = restart(served, how)
                wait_until(lambda: served.http.get("/v2/health/ready").status_code == 503, "it was not noticed")
                wait_until(lambda: served.http.get("/v2/health/ready").status_code == 200, "it did not recover")
                assert time.monotonic() - there < 5
                assert set(served.stand_in.regions) == {served.gateway.arena.region.name}
                assert served.stand_in.models["echo"].loaded
                met = [camera.outcomes["met"] for camera in cameras]
                wait_until(partial(all_above, cameras, met), "not all go on")
            for camera in cameras:
                assert set(camera.outcomes) <= HONEST
        answer = served.http.post(quiet["frames_url"], content=FRAME)
        assert answer.json()["results"][0]["outcome"] == "met"
        loads = len(served.stand_in.log("load"))
        time.sleep(1.2)
        assert len(served.stand_in.log("load")) == loads, "it goes on loading"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_restart_during_a_reload():
    """The load is forgotten; what was there is there again, in its new version, and streams go on."""

    async def main():
        names = ("a", "b", "c")
        models = [Model(name, loaded=False) for name in names]
        async with gateway_on_stand_in(
            make_profile(models=names), *models, models=list(names), residency={"max_models": 2}
        ) as (gateway, triton):
            stream = await admitted(gateway, model="b")
            triton.models["b"].load_delay_s, triton.models["b"].next_versions = 5.0, ("2",)
            load = asyncio.create_task(gateway.load_model("b"))
            await until(lambda: triton.log("load"))
            await triton.restart()
            triton.models["b"].load_delay_s = 0.0
            with pytest.raises(TritonUnavailable):
                await load
            await until(lambda: gateway.ready, limit_s=5)
            assert gateway.stream_version(stream).version == "2"
            result = await gateway.submit(stream.stream_id, frame(1))[0].result
            assert (result.outcome, result.version) == (Outcome.MET, "2")
            states = {view.model: view.state for view in gateway.model_views()}
            assert states["b"] is ModelState.RESIDENT
            assert list(states.values()).count(ModelState.RESIDENT) == 2, "there is room for two"

    asyncio.run(main())


def test_no_model_is_held_to_have_failed_because_of_a_restart_that_nobody_saw():
    """It answers calls again before it was missed, but has no frame arena to warm a model in."""

    async def main():
        models = [Model(name, loaded=False) for name in "ab"]
        async with gateway_on_stand_in(make_profile(models="ab"), *models, residency={"max_models": 1}) as (
            gateway,
            triton,
        ):
            stream = await admitted(gateway, model="b", deadline_ms=5_000, service_class=ServiceClass.BEST_EFFORT)
            await gateway.load_model("a")
            await triton.restart()
            [ticket] = gateway.submit(stream.stream_id, frame(7))
            result = await ticket.result
            assert (result.outcome, result.reason) == (Outcome.MET, "")

    asyncio.run(main())
