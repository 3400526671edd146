"""The SDK against a real ASGI application."""

from __future__ import annotations

import asyncio
import re

import httpx
import numpy as np
import pytest
from starlette.responses import JSONResponse, PlainTextResponse
from stub_gateway import StubGateway, problem

from gateway.client.client import FramegateClient
from gateway.client.connection import KEEP_ALIVE_S
from gateway.client.problems import GatewayUnreachable, NotSchedulable, ProblemError
from gateway.client.types import CounterOffer, tensor
from gateway.settings import Settings

SHAPE = (4, 6, 3)


def talk(stub, conversation):
    """Run `conversation(client)` against `stub`."""

    async def main():
        async with FramegateClient("http://stub", transport=httpx.ASGITransport(stub.app())) as client:
            return await conversation(client)

    return asyncio.run(main())


async def registered(client, **fields):
    return await client.register("centerface", SHAPE, **{"fps": 10, "deadline_ms": 200, **fields})


def test_registering_returns_a_handle_and_sends_only_what_was_given():
    stub = StubGateway()
    handle = talk(stub, lambda client: registered(client, name="door", frames=5))
    assert (handle.stream_id, handle.period_ms, handle.shape) == ("s0", 100.0, SHAPE)
    assert handle.evidence.utilization == 0.25
    assert handle.evidence.first_miss is None
    assert stub.bodies == [
        {"model": "centerface", "shape": [4, 6, 3], "deadline_ms": 200, "fps": 10, "name": "door", "frames": 5}
    ]


def test_groups_jitter_and_the_worst_latency_are_there():
    async def conversation(client):
        handle = await registered(client, burst=4, jitter_ms=2.5)
        return handle, await client.stream(handle)

    handle, info = talk(StubGateway(), conversation)
    assert (handle.burst, handle.jitter_ms, handle.evidence.worst_latency_ms) == (4, 2.5, 61.0)
    assert (info.worst_latency_ms, info.observed_worst_latency_ms) == (61.0, None)


def test_a_refusal_carries_evidence_and_counter_offers():
    with pytest.raises(NotSchedulable) as caught:
        talk(StubGateway(refuse=True), registered)
    error = caught.value
    assert (error.status, error.code, error.detail) == (409, "not_schedulable", "it does not fit")
    assert error.evidence.reason == "deadline_miss"
    assert error.evidence.first_miss.late_ms == 25.5
    assert error.evidence.first_miss.names == ("door", "yard")
    assert [str(offer) for offer in error.counter_offers] == [
        "period_ms 250.0 (4.00 fps)",
        "deadline_ms 480.0",
        "shape 72x88x3",
    ]


def test_an_offer_may_be_a_choice():
    offer = CounterOffer.from_json({"field": "swapping", "value": True, "fps": None})
    assert (offer.value, str(offer)) == (True, "swapping true")


def test_a_rate_is_given_once():
    with pytest.raises(ValueError, match="either fps or period_ms"):
        talk(StubGateway(), lambda client: registered(client, period_ms=100))
    with pytest.raises(ValueError, match="either fps or period_ms"):
        talk(StubGateway(), lambda client: client.check("m", SHAPE, deadline_ms=5))


def test_checking_is_a_value_either_way():
    async def conversation(client):
        return await client.check("centerface", SHAPE, fps=2, deadline_ms=400)

    fits = talk(StubGateway(), conversation)
    assert fits.admitted
    assert fits.counter_offers == ()
    refused = talk(StubGateway(refuse=True), conversation)
    assert not refused.admitted
    assert refused.evidence.reason == "utilization"
    assert refused.counter_offers[0].value == 250.0
    assert (fits.detail, refused.detail) == ("it fits", "it does not fit")


def test_each_frame_gets_its_own_arrays():
    async def conversation(client):
        handle = await registered(client)
        return await client.post_frames(handle, [np.full(SHAPE, k, np.uint8) for k in (3, 9)])

    first, second = talk(StubGateway(), conversation)
    assert [first.seq, second.seq] == [0, 1]
    assert (first.outcome, first.batch, first.queue_ms, first.shape) == ("met", 2, 2.0, SHAPE)
    assert first.outputs["echo"].dtype == np.float32
    assert first.outputs["echo"].shape == (2, 3)
    assert np.isnan(first.outputs["echo"][0, 2])
    assert [result.outputs["echo"][1, 0] for result in (first, second)] == [3, 9]


def test_bytes_are_sent_as_they_are_and_wrong_arrays_are_not_sent():
    async def conversation(client):
        handle = await registered(client)
        with pytest.raises(ValueError, match="has shape"):
            await client.post_frames(handle, [np.zeros((6, 4, 3), np.uint8)])
        with pytest.raises(ValueError, match="no frame"):
            await client.post_frames(handle, [])
        return await client.post_frames(handle, [memoryview(bytes(72))])

    [result] = talk(StubGateway(), conversation)
    assert result.outputs["echo"][1, 0] == 0


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [(504, "frame_expired", "expired"), (502, "frame_failed", "failed"), (503, "frame_cancelled", "cancelled")],
)
def test_a_single_frame_without_a_result_is_an_outcome(status, code, outcome):
    stub = StubGateway()
    carried = {**StubGateway.result(4, np.zeros(SHAPE)), "outcome": outcome, "outputs": None, "batch": None}
    stub.frame_answers = [problem(status, code, "too late"), problem(status, code, "too late", result=carried)]

    async def conversation(client):
        handle = await registered(client)
        return [await client.post_frames(handle, [np.zeros(SHAPE, np.uint8)]) for _ in range(2)]

    [bare], [full] = talk(stub, conversation)
    assert (bare.outcome, bare.seq, bare.outputs) == (outcome, None, {})
    assert (full.outcome, full.seq, full.latency_ms, full.batch) == (outcome, 4, 12.5, None)


def test_frames_can_be_sent_without_waiting_and_polled_for():
    stub = StubGateway()

    async def conversation(client):
        handle = await registered(client)
        later = await client.post_frames_later(handle, [np.zeros(SHAPE, np.uint8)] * 3)
        return later, await client.results(handle, after=6, timeout_ms=50)

    later, [result] = talk(stub, conversation)
    assert later["seqs"] == [0, 1, 2]
    assert result.seq == 7
    assert stub.calls == [{"after": "6", "timeout_ms": "50"}]


def test_streams_are_listed_looked_at_and_closed():
    async def conversation(client):
        handle = await registered(client, name="door")
        await client.post_frames(handle, [np.zeros(SHAPE, np.uint8)])
        listed = await client.streams()
        return listed, await client.close(handle), await client.stream("s0")

    [listed], closed, seen = talk(StubGateway(), conversation)
    assert (listed.stream_id, listed.name, listed.state, listed.accepted) == ("s0", "door", "active", 1)
    assert closed.state == seen.state == "closed"
    assert seen.outcomes["met"] == 1


def test_problems_are_exceptions_with_code_status_and_detail():
    with pytest.raises(ProblemError, match="404 stream_not_found: there is no such stream") as caught:
        talk(StubGateway(), lambda client: client.stream("nobody"))
    assert not isinstance(caught.value, NotSchedulable)
    assert caught.value.document["title"] == "stream_not_found"


@pytest.mark.parametrize("body", ["<html>bad gateway</html>", '["a list"]'])
def test_an_error_that_is_no_problem_document_still_has_a_code(body):
    stub = StubGateway(frame_answers=[PlainTextResponse(body, 502, {"retry-after": "7"})])

    async def conversation(client):
        await client.post_frames(await registered(client), [bytes(72)])

    with pytest.raises(ProblemError) as caught:
        talk(stub, conversation)
    assert (caught.value.code, caught.value.detail, caught.value.retry_after_s) == ("http_502", body, 7.0)


def test_an_answer_without_reason_is_not_lost():
    stub = StubGateway(frame_answers=[JSONResponse({"results": [{"seq": 0, "outcome": "cancelled"}]})])

    async def conversation(client):
        return await client.post_frames(await registered(client), [bytes(72)])

    [result] = talk(stub, conversation)
    assert (result.outcome, result.latency_ms, result.outputs) == ("cancelled", None, {})


def test_readiness_models_and_metrics():
    async def conversation(client):
        return await client.ready(), await client.models(), await client.metrics()

    ready, models, metrics = talk(StubGateway(), conversation)
    assert ready is True
    assert [model.name for model in models.models] == ["centerface"]
    assert "framegate_frames_total" in metrics
    assert talk(StubGateway(refuse=True), lambda client: client.ready()) is False


def test_a_gateway_that_is_not_there():
    async def main():
        async with FramegateClient("http://127.0.0.1:1", timeout_s=2) as client:
            assert await client.ready() is False
            with pytest.raises(GatewayUnreachable, match=re.escape("GET http://127.0.0.1:1/v1/streams")):
                await client.streams()

    asyncio.run(main())


def test_tensors_keep_their_type_and_refuse_a_wrong_count():
    assert tensor({"datatype": "INT64", "shape": [2], "data": [2**53 + 1, -1]}).tolist() == [2**53 + 1, -1]
    assert tensor({"datatype": "BYTES", "shape": [1], "data": ["face"]}).dtype == object
    with pytest.raises(ValueError, match="reshape"):
        tensor({"datatype": "FP32", "shape": [3], "data": [1.0, 2.0]})


def test_connections_are_given_up_before_the_gateway_gives_them_up():
    """A slow camera must not send into a connection that is just being closed."""
    assert Settings().server.keep_alive_s > KEEP_ALIVE_S
