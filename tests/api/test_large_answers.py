"""Answers that are written piece by piece: what others get of the loop meanwhile, counted in its turns."""

import asyncio
import dataclasses
import itertools
import json

import numpy as np
import pytest

from gateway.api.results import AT_ONCE_BYTES, AT_ONCE_RESULTS, PagedAnswer, dump, frame_result, is_large
from gateway.core.types import Outcome
from gateway.runtime.results import FrameResult
from tests.api.asgi import DISCONNECT, Client, scope
from tests.api.served import FRAME
from tests.api.test_bad_clients import head
from tests.api.test_impatience import keep_results

ONE = FrameResult(
    "s", 0, Outcome.MET, "", 5.0, 10.0, 1, 1.0, 4.0, False, (2, 2), {"y": np.arange(20_000, dtype=np.float32)}
)
RESULTS = [dataclasses.replace(ONE, seq=seq) for seq in range(10)]
#: What follows the results of a long poll.
REST = {"next_after": 9, "state": "active"}


def outputs(**arrays):
    return dataclasses.replace(ONE, reason='"data":[]', outputs=arrays)


#: Large, small, empty, strings, and names that look like members.
ODD = [
    outputs(),
    outputs(y=np.arange(100_000, dtype=np.int64), data=np.zeros((0, 3)), z=np.ones(3, np.float16)),
    outputs(y=np.array([b'"data":[]'] * 20_000, object), shape=np.zeros((300, 300), np.uint8)),
    outputs(y=np.array(["x" * AT_ONCE_BYTES, "y", "z" * AT_ONCE_BYTES], object)),
    outputs(y=np.full(AT_ONCE_BYTES + 1, 255, np.uint8), nothing=np.zeros(0, np.float32)),
    dataclasses.replace(ONE, outcome=Outcome.EXPIRED, outputs=None),
]


@pytest.mark.parametrize("rest", [{}, REST])
@pytest.mark.parametrize("results", [RESULTS, ODD, *([each] for each in ODD)])
def test_it_is_what_would_have_been_written_at_once(results, rest):
    client = Client()
    asyncio.run(PagedAnswer(results, rest)(scope("GET"), client.receive, client.send))
    assert client.body == dump({"results": [frame_result(result) for result in results], **rest})
    assert client.sent[0]["headers"] == [(b"content-type", b"application/json")]


def test_no_piece_is_large():
    """One frame of 8 MB: others would wait some 100 ms for it in one piece."""
    client = Client()
    result = outputs(y=np.full((1024, 1024, 8), 255, np.uint8))
    asyncio.run(PagedAnswer([result], {})(scope("GET"), client.receive, client.send))
    assert max(len(message.get("body", b"")) for message in client.sent) < 5 * AT_ONCE_BYTES


def test_small_results_come_together():
    """A piece costs a turn of the loop and a write: there are few, and none that is large."""
    client = Client()
    results = of(np.zeros(3)) * (4 * AT_ONCE_RESULTS)
    asyncio.run(PagedAnswer(results, REST)(scope("GET"), client.receive, client.send))
    assert client.body == dump({"results": [frame_result(result) for result in results], **REST})
    sizes = [len(message["body"]) for message in client.sent[1:]]
    assert max(sizes) < 2 * AT_ONCE_BYTES
    assert len(sizes) < 8


def test_others_get_their_turn_between_two_pieces():
    async def test():
        turns, seen = 0, []

        async def tick():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        client = Client()

        async def send(message):  # as a server that never has to wait
            seen.append(turns)
            await client.send(message)

        ticking = asyncio.ensure_future(tick())
        await PagedAnswer(RESULTS, REST)(scope("GET"), client.receive, send)
        ticking.cancel()
        pieces = seen[1:-1]  # without the head and the end
        assert len(pieces) > len(RESULTS)
        assert all(after > before for before, after in itertools.pairwise(pieces))

    asyncio.run(test())


def test_it_ends_when_the_client_goes_away():
    client = Client()

    async def receive():
        while len(client.sent) < 4:
            await asyncio.sleep(0)
        return DISCONNECT

    asyncio.run(PagedAnswer(RESULTS, REST)(scope("GET"), receive, client.send))
    assert len(client.sent) < 8


def of(*arrays):
    return [dataclasses.replace(ONE, outputs=None if array is None else {"y": array}) for array in arrays]


@pytest.mark.parametrize(
    ("results", "large"),
    [
        ([], False),
        (of(np.zeros(AT_ONCE_BYTES * 2, np.uint8)), True),
        (of(np.zeros(AT_ONCE_BYTES, np.uint8)), False),
        (of(np.array([b"x"], object)), False),
        (of(np.zeros(AT_ONCE_BYTES, np.uint8), None), False),
        (of(np.zeros(AT_ONCE_BYTES, np.uint8), np.zeros(1, np.uint8)), True),
        (of(np.array([b"x"], object), None), True),
        (of(None, None), False),
        (of(None) * AT_ONCE_RESULTS, False),
        (of(None) * (AT_ONCE_RESULTS + 1), True),
    ],
    ids=[
        *("none", "one", "one at the limit", "one of strings", "at the limit", "above it", "strings", "no outputs"),
        *("many", "very many"),
    ],
)
def test_what_is_large(results, large):
    assert is_large(results) is large


def test_small_answers_have_a_length_and_large_ones_come_in_pieces(served):
    with served.stream() as stream:
        small = served.http.post(stream["frames_url"], content=FRAME * 2)
        assert int(small.headers["content-length"]) == len(small.content)
        large = served.http.post(stream["frames_url"], content=FRAME * 400)
        assert large.headers["transfer-encoding"] == "chunked"
        assert [result["seq"] for result in large.json()["results"]] == list(range(2, 402))


def test_a_long_poll_comes_in_pieces_too(served):
    with served.stream() as stream:
        served.http.post(stream["frames_url"], content=FRAME)
        keep_results(served, stream, 10, AT_ONCE_BYTES)
        poll = served.http.get(stream["results_url"])
        assert poll.headers["transfer-encoding"] == "chunked"
        assert (poll.json()["next_after"], poll.json()["state"]) == (10, "active")


def test_http_1_0_knows_no_pieces(served):
    with served.stream() as stream:
        served.http.post(stream["frames_url"], content=FRAME)
        keep_results(served, stream, 10, AT_ONCE_BYTES)
        with served.connect() as connection:
            connection.sendall(head("GET", stream["results_url"]).replace(b"HTTP/1.1", b"HTTP/1.0"))
            data = b""
            while part := connection.recv(1 << 16):
                data += part
    top, _, body = data.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in top
    assert len(json.loads(body)["results"]) == 11
