"""Results in binary: who gets them, how they are laid out, and that the SDK reads them."""

import asyncio
import dataclasses
import json

import httpx
import numpy as np
import pytest

from gateway.api.binary_results import BinaryAnswer, wants_binary
from gateway.api.results import AT_ONCE_BYTES
from gateway.client import wire
from gateway.client.client import FramegateClient
from gateway.core.types import Outcome
from gateway.runtime.results import FrameResult
from tests.api.asgi import Client, scope
from tests.api.served import FRAME, problem
from tests.api.test_bad_clients import head
from tests.api.test_impatience import keep_results

BINARY = {"accept": "application/octet-stream"}
ONE = FrameResult("s", 0, Outcome.MET, "", 5.0, 10.0, 1, 1.0, 4.0, False, (2, 2), {})


def of(**outputs):
    return dataclasses.replace(ONE, outputs=outputs)


def answered(results, rest=None):
    """Return headers, document and the bytes behind it of an answer with these results, and the messages sent."""
    client = Client()
    asyncio.run(BinaryAnswer(results, rest or {})(scope(), client.receive, client.send))
    headers = dict(client.sent[0]["headers"])
    assert int(headers[b"content-length"]) == len(client.body)
    size = int(headers[b"inference-header-content-length"])
    return headers, json.loads(client.body[:size]), client.body[size:], client


@pytest.mark.parametrize(
    ("accept", "binary"),
    [
        ("application/octet-stream", True),
        ("Application/Octet-Stream", True),
        ("application/octet-stream, application/json;q=0.5", True),
        ("application/json, application/octet-stream", True),
        ("text/html , application/octet-stream ; q=0.8,*/*;q=0.1", True),
        ("application/octet-stream;q=0.5, application/json", False),
        ("application/octet-stream;q=0", False),
        ("application/octet-stream;q=x", False),
        ("application/json", False),
        ("*/*", False),
        ("application/*", False),
        ("", False),
        ("octet-stream", False),
        (",;=,", False),
    ],
)
def test_who_asks_for_binary(accept, binary):
    assert wants_binary(accept.encode()) is binary


@pytest.mark.parametrize(
    ("array", "datatype", "data"),
    [
        (np.array([np.nan, -np.inf, -0.0], np.float32), "FP32", b"\0\0\xc0\x7f\0\0\x80\xff\0\0\0\x80"),
        (np.array([[1.5, -2.0]], np.float16), "FP16", b"\x00\x3e\x00\xc0"),
        (np.array([2**64 - 1], np.uint64), "UINT64", b"\xff" * 8),
        (np.array([True, False]), "BOOL", b"\x01\x00"),
        (np.arange(6, dtype=np.int16).reshape(2, 3).T, "INT16", b"\0\0\3\0\1\0\4\0\2\0\5\0"),
        (np.array([b"caf\xc3\xa9", b"", b"\xff"], object), "BYTES", b"\5\0\0\0caf\xc3\xa9\0\0\0\0\1\0\0\0\xff"),
        (np.zeros((0, 4), np.float32), "FP32", b""),
        (np.zeros((0,), object), "BYTES", b""),
        (np.float32(2.5).reshape(()), "FP32", b"\0\0\x20\x40"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_outputs_keep_every_bit(array, datatype, data):
    headers, document, rest, client = answered([of(y=array)])
    [result] = document["results"]
    assert result["outputs"]["y"] == {
        "datatype": datatype,
        "shape": list(array.shape),
        "parameters": {"binary_data_size": len(data)},
    }
    assert rest == data
    [read] = wire.results_of(httpx.Response(200, headers=list(headers.items()), content=client.body))
    assert read.outputs["y"].tolist() == array.tolist() or np.isnan(array).any()
    assert read.outputs["y"].shape == array.shape


def test_the_bytes_come_in_the_order_of_the_document():
    results = [of(b=np.array([1], np.uint8), a=np.array([2], np.uint8)), of(c=np.array([3], np.uint8))]
    results.append(dataclasses.replace(ONE, outcome=Outcome.EXPIRED, outputs=None))
    headers, document, rest, _ = answered(results, {"next_after": 3})
    assert headers[b"content-type"] == b"application/octet-stream"
    assert rest == b"\1\2\3"
    assert [list(result["outputs"] or "-") for result in document["results"]] == [["b", "a"], ["c"], ["-"]]
    assert document["next_after"] == 3


@pytest.mark.parametrize("size", [AT_ONCE_BYTES - 1, AT_ONCE_BYTES, 5 * AT_ONCE_BYTES + 3])
def test_large_answers_come_in_blocks_of_some_size(size):
    """Small outputs share a block, large ones are cut: each block costs a call of the kernel."""
    large = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    results = [of(y=large, z=np.full(10, seq, np.uint8)) for seq in range(3)] + [of(y=np.zeros(3, np.uint8))] * 300
    _, _, rest, client = answered(results)
    assert rest == b"".join(large.tobytes() + bytes([seq]) * 10 for seq in range(3)) + bytes(900)
    sizes = [len(message["body"]) for message in client.sent[1:]]
    assert max(sizes) <= max(2 * AT_ONCE_BYTES, 200_000)  # the JSON is in one piece
    assert len(sizes) < 30


def test_others_get_their_turn_while_many_strings_are_written():
    async def test():
        turns = 0

        async def tick():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        client = Client()
        texts = np.array([b"x"] * 50_000, object)
        await BinaryAnswer([of(y=texts)], {})(scope(), client.receive, client.send)
        ticking.cancel()
        assert turns > 20
        assert client.body.endswith(b"\1\0\0\0x" * 50_000)

    asyncio.run(test())


def echoes(answer):
    """Return what the model gave back of each frame of a binary answer."""
    assert int(answer.headers["content-length"]) == len(answer.content)
    return [result.outputs["echo"].tobytes() for result in wire.results_of(answer)]


def test_a_frames_call_is_answered_in_binary(served):
    with served.stream(burst=4) as stream:
        answer = served.http.post(stream["frames_url"], content=FRAME * 2, headers=BINARY)
        assert answer.headers["content-type"] == "application/octet-stream"
        assert echoes(answer) == [FRAME] * 2
        results = json.loads(answer.content[: int(answer.headers["inference-header-content-length"])])["results"]
        over_json = served.http.post(stream["frames_url"], content=FRAME).json()["results"][0]
        assert set(over_json) == set(results[0])
        problem(served.http.post(stream["frames_url"], content=FRAME[1:], headers=BINARY), 400, "frame_size_mismatch")
        later = served.http.post(stream["frames_url"], params={"wait": "false"}, content=FRAME, headers=BINARY)
        assert later.json()["seqs"] == [3]
        served.http.get(stream["results_url"], params={"after": 2, "timeout_ms": 5_000})  # it has ended then


def test_a_large_answer_has_a_length_in_binary_also_for_http_1_0(served):
    with served.stream() as stream:
        answer = served.http.post(stream["frames_url"], content=FRAME * 400, headers=BINARY)
        assert echoes(answer) == [FRAME] * 400
        with served.connect() as connection:
            call = head(
                "POST", stream["frames_url"], f"Content-Length: {192 * 400}", "Accept: application/octet-stream"
            )
            connection.sendall(call.replace(b"HTTP/1.1", b"HTTP/1.0") + FRAME * 400)
            data = b""
            while part := connection.recv(1 << 16):
                data += part
        top, _, body = data.partition(b"\r\n\r\n")
        assert b"content-length: %d" % len(body) in top
        assert abs(len(body) - len(answer.content)) < 5_000  # times differ


def test_a_long_poll_is_answered_in_binary_too(served):
    with served.stream() as stream:
        served.http.post(stream["frames_url"], content=FRAME)
        keep_results(served, stream, 3, AT_ONCE_BYTES)
        answer = served.http.get(stream["results_url"], headers=BINARY)
        document = json.loads(answer.content[: int(answer.headers["inference-header-content-length"])])
        assert (document["next_after"], document["state"]) == (3, "active")
        assert echoes(answer) == [FRAME] + [b"\xff" * AT_ONCE_BYTES] * 3


@pytest.mark.parametrize("binary", [False, True])
def test_the_sdk_gets_the_same_either_way(served, binary):
    async def conversation():
        async with FramegateClient(served.url, binary=binary) as client:
            stream = await client.register("echo", (8, 8, 3), period_ms=200, deadline_ms=400, burst=4)
            try:
                frames = [np.full((8, 8, 3), value, np.uint8) for value in (1, 2)]
                posted = await client.post_frames(stream, frames, timestamp_ms=2.5)
                later = await client.results(stream, after=0)
            finally:
                await client.close(stream)
            return posted, later

    posted, later = asyncio.run(conversation())
    assert [result.outputs["echo"].tolist() for result in posted] == [np.full((8, 8, 3), v).tolist() for v in (1, 2)]
    assert [(result.seq, result.outcome, result.timestamp_ms) for result in posted] == [
        (0, "met", 2.5),
        (1, "met", 2.5),
    ]
    assert [(result.seq, result.outputs["echo"][0, 0, 0]) for result in later] == [(1, 2)]
    assert posted[0].outputs["echo"].flags.writeable is not binary
