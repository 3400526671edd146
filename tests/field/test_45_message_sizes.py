"""Report 45: tensors far above gRPC's own default of 4 MB, inside messages, both ways; the profiler as well."""

import asyncio

import numpy as np
import orjson
import pytest

from profiler.plan import Plan
from profiler.quick import measure
from tests.api.served import FRAME, SMALL, Served, problem
from tests.field.support import MB, rss_bytes, steady
from tests.runtime_support import make_settings
from tests.stand_in import Model, StandIn

MIB = 1 << 20
INSIDE = {"shared_memory": "off", "max_message_bytes": 80 * MIB}
#: About 6, 24 and 60 million bytes.
SIX, MANY, SIXTY = (1_000, 2_000, 3), (2_000, 4_000, 3), (4_000, 5_000, 3)


def times(*shapes):
    return {SMALL: {1: 5.0}} | {shape: {1: 500.0} for shape in shapes}


def post(served, shape, body, model):
    contract = {"model": model, "period_ms": 5_000, "deadline_ms": 5_000, "on_late": "serve"}
    with served.stream(shape=shape, **contract) as stream:
        answer = served.http.post(stream["frames_url"], content=body)
    assert answer.status_code == 200, answer.text
    return answer.content


def test_large_tensors_inside_messages(length):
    """6 MB in and out, 60 MB in, 60 MB out; a small stream goes on beside them."""
    large = length(MANY, SIXTY)
    blob = large[0] * large[1] * 3
    models = (
        Model("echo"),
        Model("takes", outputs=("stamp",)),
        Model("gives", outputs=("blob",), blob_bytes=blob),
    )
    arena = {"bytes": 128 * MIB}
    with Served(*models, times=times(SIX, large), triton=INSIDE, arena=arena) as served:
        assert not served.gateway.shared_memory
        rss = rss_bytes()
        with steady(served, FRAME, deadline_ms=2_000, fps=5) as camera:
            frame = np.random.default_rng(45).bytes(6_000_000)
            [result] = orjson.loads(post(served, SIX, frame, "echo"))["results"]
            assert np.array(result["outputs"]["echo"]["data"], np.uint8).tobytes() == frame
            [result] = orjson.loads(post(served, large, b"\x07" * blob, "takes"))["results"]
            assert result["outputs"]["stamp"]["data"][:2] == [7, 1]
            text = post(served, SMALL, b"\x07" * 192, "gives")
            assert b'"data":[' + b"7," * (blob - 1) + b"7]" in text
        assert camera.outcomes["met"] > 3
        assert set(camera.outcomes) == {"met"}
        assert rss_bytes() - rss < 1_000 * MB
    calls = [call for call in served.stand_in.log("infer") if call.shape[1:] in (SIX, large)]
    assert {call.way for call in calls} == {"message"}


def test_what_is_above_the_limit_names_it():
    """Too large a frame is refused when its stream registers; too large an answer, when its model is warmed."""
    limit = 5 * MIB
    models = (Model("echo"), Model("gives", outputs=("blob",), blob_bytes=limit + 1))
    triton = INSIDE | {"max_message_bytes": limit}
    with Served(*models, times=times(SIX), triton=triton, arena={"bytes": 32 * MIB}) as served:
        document = problem(served.register(shape=SIX), 413, "body_too_large")
        assert document["limit_bytes"] == limit
        assert "FRAMEGATE_TRITON__MAX_MESSAGE_BYTES" in document["detail"]
        document = problem(served.register(model="gives"), 409, "model_not_loaded")
        assert str(limit) in document["detail"]
        assert "FRAMEGATE_TRITON__MAX_MESSAGE_BYTES" in document["detail"]
        with served.stream() as stream:
            assert served.http.post(stream["frames_url"], content=FRAME).status_code == 200


def test_an_answer_that_is_too_large_only_now_and_then_fails_that_frame_alone():
    model = Model("echo", outputs=("stamp", "blob"), blob_bytes=1)
    triton = INSIDE | {"max_message_bytes": MIB}
    with Served(model, triton=triton) as served, served.stream() as stream:
        model.blob_bytes = MIB
        document = problem(served.http.post(stream["frames_url"], content=FRAME), 502, "frame_failed")
        assert "FRAMEGATE_TRITON__MAX_MESSAGE_BYTES" in document["detail"]
        model.blob_bytes = 1
        assert served.http.get("/v2/health/ready").status_code == 200


@pytest.mark.parametrize("way", ["off", "auto"])
def test_the_profiler_takes_the_same_sizes(way, length):
    large = length(MANY, SIXTY)
    models = (
        Model("echo"),
        Model("takes", outputs=("stamp",)),
        Model("gives", outputs=("blob",), blob_bytes=large[0] * large[1] * 3),
    )

    async def main():
        async with StandIn(*models) as triton:
            settings = make_settings(triton.url, triton={"shared_memory": way}, arena={"bytes": 128 * MIB})
            reports = [
                await measure(Plan((model,), (shape[:2],), (1,), samples=2), settings, "a test")
                for model, shape in (("echo", SIX), ("takes", large), ("gives", SMALL))
            ]
            return [report.failures for report in reports], [len(report.profile.entries) for report in reports]

    assert asyncio.run(main()) == ([()] * 3, [1] * 3)
