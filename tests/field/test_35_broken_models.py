"""Report 35: loads of broken models end, in words; nobody else notices; after a repair a load works."""

import asyncio
import time
from pathlib import Path

import pytest

from gateway.api.keeper import keep_running
from gateway.core.types import ModelState, Outcome
from gateway.errors import ModelLoadFailed
from gateway.triton.embedded import EmbeddedTriton
from tests.e2e.adding_models import SHAPE, adding, put_config, put_version
from tests.runtime_support import admitted, frame, gateway_on_stand_in, make_profile, running_gateway, until
from tests.stand_in import Model

#: A load that fails takes 0.4 s on the real Triton.
LIMIT_S = 5.0


def broken_models(repository: Path) -> dict[str, str]:
    """Write models that cannot be loaded; return for each what must be said of it."""
    whole = adding(1)
    put_version(repository, "truncated", 1, whole[: len(whole) // 2])
    put_version(repository, "zero_bytes", 1, b"")
    put_config(repository, "no_version")
    (put_config(repository, "folder_v1") / "v1").mkdir()
    (put_config(repository, "empty_folder") / "1").mkdir()
    put_version(repository, "odd_dims", 1, adding(1, (4, 4, 3)))
    put_config(repository, "odd_dims", dims=(5, 5, 3))
    return {
        "truncated": "Protobuf parsing failed",
        "zero_bytes": "No graph was found",
        "no_version": "at least one version must be available",
        "folder_v1": "at least one version must be available",
        "empty_folder": "model.onnx does not exist",
        "odd_dims": "input 'pixels' has the shape [-1, 5, 5, 3], the model: [-1, 4, 4, 3]",
    }


def repair(repository: Path, name: str) -> None:
    (repository / name / "1").mkdir(exist_ok=True)
    (repository / name / "1" / "model.onnx").write_bytes(adding(1, (5, 5, 3) if name == "odd_dims" else (-1, -1, 3)))


@pytest.mark.e2e
def test_broken_folders_on_the_real_triton(tmp_path):
    repository = tmp_path / "models"
    expected = broken_models(repository)
    put_version(repository, "camera", 1)
    put_version(repository, "good", 1)

    async def failed(gateway, name):
        began_s = time.monotonic()
        with pytest.raises(ModelLoadFailed) as refusal:
            await gateway.load_model(name)
        assert time.monotonic() - began_s < LIMIT_S
        return refusal.value.detail

    async def main(server):
        profile = make_profile(models=["camera"], batches=(1, 2, 4), execution_ms=15)
        async with running_gateway(server.grpc_url, profile, wait_ready=False, models=["camera"]) as gateway:
            await until(lambda: gateway.ready, 30)
            stream = await admitted(gateway, model="camera", shape=SHAPE, period_ms=100, deadline_ms=800)
            outcomes, over = [], asyncio.Event()

            async def camera():
                while not over.is_set():
                    ticket = gateway.submit(stream.stream_id, frame(7, SHAPE))[0]
                    result = await ticket.result
                    outcomes.append((result.outcome, None if result.outputs is None else result.outputs["sum"].max()))
                    await asyncio.sleep(0.1)

            watched = asyncio.create_task(camera())
            good, *said = await asyncio.gather(
                gateway.load_model("good"), *(failed(gateway, name) for name in expected)
            )
            assert good.state is ModelState.RESIDENT
            views = {view.model: view for view in gateway.model_views()}
            for (name, words), told in zip(expected.items(), said, strict=True):
                assert words in told, name
                assert views[name].state is ModelState.FAILED, name
                assert words in views[name].reason, name
            await gateway.unload_model("good")
            for name in expected:
                repair(repository, name)
            views = await asyncio.gather(*(gateway.load_model(name) for name in (*expected, "good")))
            assert {view.state for view in views} == {ModelState.RESIDENT}
            over.set()
            await watched
            assert len(outcomes) > 10
            assert {outcome for outcome, _ in outcomes} <= {Outcome.MET, Outcome.MISSED}
            assert {value for _, value in outcomes} == {8}, "each answer is its frame's"

    with EmbeddedTriton(repository, tmp_path / "triton.log") as server:
        asyncio.run(main(server))


@pytest.mark.e2e
def test_a_version_folder_that_ends_the_real_triton(tmp_path):
    """Triton 2.51 ends when it finds a version beyond 64 bits. It is restarted, and the other model is served."""
    repository = tmp_path / "models"
    put_version(repository, "camera", 1)
    put_version(repository, "deadly", 99_999_999_999_999_999_999, adding(1))

    async def main(server):
        keeper = asyncio.create_task(keep_running(server))
        profile = make_profile(models=["camera"], batches=(1, 2, 4), execution_ms=15)
        try:
            async with running_gateway(
                server.grpc_url, profile, wait_ready=False, models=["camera", "deadly"]
            ) as gateway:
                await until(lambda: gateway.ready, 20)
                said = {state.name: state.reason for state in gateway.model_facts.states()}
                assert "Triton ended 2 times while it was loaded" in said["deadly"]
                stream = await admitted(gateway, model="camera", shape=SHAPE, period_ms=100, deadline_ms=800)
                result = await gateway.submit(stream.stream_id, frame(7, SHAPE))[0].result
                assert result.outputs["sum"].max() == 8
        finally:
            keeper.cancel()

    with EmbeddedTriton(repository, tmp_path / "triton.log") as server:
        asyncio.run(main(server))


def test_a_load_that_never_answers():
    models = (Model("echo"), Model("good", loaded=False), Model("stuck", loaded=False, load_hangs=True))

    async def main():
        async with gateway_on_stand_in(make_profile(), *models, models=["echo"], residency={"load_timeout_s": 0.4}) as (
            gateway,
            triton,
        ):
            stream = await admitted(gateway, period_ms=100)
            loads = [gateway.load_model("stuck"), gateway.load_model("good")]
            began_s = time.monotonic()
            stuck = asyncio.gather(*loads, return_exceptions=True)
            outcomes = []
            while not stuck.done():
                outcomes.append((await gateway.submit(stream.stream_id, frame(1))[0].result).outcome)
                await asyncio.sleep(0.02)
            failure, good = await stuck
            assert time.monotonic() - began_s < 1.0
            assert isinstance(failure, ModelLoadFailed)
            assert "did not load it within 0.4 s" in failure.detail
            assert good.state is ModelState.RESIDENT
            assert set(outcomes) == {Outcome.MET}
            triton.models["stuck"].load_hangs = False
            assert (await gateway.load_model("stuck")).state is ModelState.RESIDENT

    asyncio.run(main())
