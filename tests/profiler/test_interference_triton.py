"""Instances in Triton, by configurations that go with the load call."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.errors import FramegateError
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError
from profiler.interference_plan import StudyPlan
from profiler.interference_triton import StudiedModels, with_instances
from tests.profiler.interference_support import StudyStandIn
from tests.stand_in import Model

OWN = {
    "name": "m",
    "backend": "onnxruntime",
    "max_batch_size": 16,
    "dynamic_batching": {"max_queue_delay_microseconds": 100},
    "instance_group": [
        {
            "name": "m_0",
            "kind": "KIND_GPU",
            "count": 1,
            "gpus": [1, 0],
            "rate_limiter": {"resources": [{"name": "device", "global": True, "count": 1}]},
        },
        {"kind": "KIND_CPU", "count": 2},
    ],
}


def test_the_copy_has_so_many_instances_on_one_device_that_share_nothing() -> None:
    before = json.dumps(OWN)
    changed = with_instances(OWN, 3)
    assert changed == {
        "name": "m",
        "backend": "onnxruntime",
        "max_batch_size": 16,
        "instance_group": [{"kind": "KIND_GPU", "count": 3, "gpus": [1]}],
    }
    assert json.dumps(OWN) == before
    assert with_instances({"name": "m"}, 2)["instance_group"] == [{"count": 2}]


@pytest.mark.parametrize("key", ["ensemble_scheduling", "sequence_batching"])
def test_models_without_instances_of_their_own_are_refused(key: str) -> None:
    with pytest.raises(FramegateError, match=r"^m "):
        with_instances({"name": "m", key: {}}, 2)


def with_models(
    plan: StudyPlan, *models: Model, act: Callable[[StudiedModels], Awaitable[Any]], **config: Any
) -> tuple[StudyStandIn, Any]:
    async def main() -> tuple[StudyStandIn, Any]:
        async with StudyStandIn(*models, config=config) as triton:
            client = TritonClient(triton.url, max_message_bytes=1 << 20)
            try:
                studied = StudiedModels(client, plan)
                assert await studied.connect() == "2.51.0"
                return triton, await act(studied)
            finally:
                await client.close()

    return asyncio.run(main())


def test_only_the_models_of_a_point_are_loaded_and_loads_are_not_repeated() -> None:
    async def act(studied: StudiedModels) -> None:
        await studied.serve({"a": 1, "b": 1})
        await studied.serve({"a": 1, "b": 1})
        await studied.serve({"b": 1})
        served = await studied.serve({"b": 4})
        assert served["b"].shape == (48, 64, 3)
        assert served["b"].input.name == "frames"

    plan = StudyPlan(("a", "b"), sizes={"b": (48, 64)})
    triton, _ = with_models(plan, Model("a", loaded=False), Model("b", loaded=False), act=act)
    assert triton.served == [{"a": 0}, {"a": 1}, {"a": 1, "b": 0}, {"a": 1, "b": 1}, {"b": 1}, {"b": 4}]


def test_triton_has_at_the_end_what_it_had_at_the_start() -> None:
    async def act(studied: StudiedModels) -> None:
        assert studied.others == ("other",)
        await studied.serve({"a": 2, "b": 2})
        await studied.serve({"b": 3})
        await studied.restore()

    models = [Model("a"), Model("b"), Model("c", loaded=False), Model("other")]
    triton, _ = with_models(StudyPlan(("a", "b", "c")), *models, act=act, default_model_filename="m.onnx")
    assert triton.served[-1] == {"a": 0, "b": 1, "other": 0}, "a by its own file, b by what its file said"
    given = triton._given["b"]
    assert given["default_model_filename"] == "m.onnx"


def test_a_broken_model_is_asked_for_once_and_leaves_the_others_alone() -> None:
    async def act(studied: StudiedModels) -> None:
        for _ in range(3):
            with pytest.raises((BackendError, FramegateError), match="no weights"):
                await studied.serve({"a": 1})
        await studied.serve({"b": 1})

    triton, _ = with_models(
        StudyPlan(("a", "b")), Model("a", loaded=False, load_error="no weights"), Model("b", loaded=False), act=act
    )
    assert [call.name for call in triton.log("load")].count("a") == 1
    assert triton.served[-1] == {"b": 1}


def test_a_shape_that_does_not_fit_is_told() -> None:
    async def act(studied: StudiedModels) -> None:
        with pytest.raises(FramegateError, match="1 sizes do not fill them"):
            await studied.serve({"a": 1})

    with_models(StudyPlan(("a",), sizes={"a": (5,)}), Model("a"), act=act)


def test_nobody_there_is_told_with_the_address_and_what_to_do() -> None:
    async def main() -> None:
        client = TritonClient("127.0.0.1:9", max_message_bytes=1 << 20)
        try:
            await StudiedModels(client, StudyPlan(("a",), connect_limit_s=0.0)).connect()
        finally:
            await client.close()

    with pytest.raises(BackendError, match=r"127\.0\.0\.1:9.*--triton"):
        asyncio.run(main())
