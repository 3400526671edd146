"""What a `/v2` call may cost the event loop, on which every frame waits for it."""

import asyncio
import json
import struct
from contextlib import contextmanager

import pytest

from gateway.api.v2 import parsing
from gateway.api.v2.request import TooLong, parse
from gateway.errors import BadInference, BodyTooLarge
from tests.api.served import FRAME, SMALL, Served, v2_error
from tests.api.v2_support import binary, infer, outputs_of, tensor
from tests.stand_in import Model

#: A stall of the loop that is no accident of a busy machine. One step over a large body took seconds.
STALL_S = 0.25


@pytest.fixture(scope="module")
def served():
    text = Model("text", max_batch_size=0, datatype="BYTES", dims=(-1,), outputs=("echo",))
    with Served(Model("echo"), text, limits={"max_bytes_elements": 50_000}) as gateway:
        yield gateway


@contextmanager
def longest_pause(served):
    """Give a list that holds, at the end, the longest time in s between two turns of the loop."""
    found, loop = [0.0], served._loop

    async def watch():
        before = loop.time()
        while True:
            await asyncio.sleep(0.001)
            found[0], before = max(found[0], loop.time() - before), loop.time()

    task = asyncio.run_coroutine_threadsafe(watch(), loop)
    try:
        yield found
    finally:
        task.cancel()


def strings(*elements):
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def texts(count, content, *, as_json=False):
    wanted = [{"name": "echo", "parameters": {"binary_data": not as_json}}]
    return binary([tensor([count], datatype="BYTES", size=len(content))], content, outputs=wanted)


# ---------------------------------------------------------------- bodies


def test_a_body_of_another_type_than_the_models_is_not_looked_through(served):
    count = 1 << 22
    call = binary([tensor([1, count], datatype="BYTES", size=4 * count)], bytes(4 * count))
    with longest_pause(served) as pause:
        assert "expects 'UINT8'" in v2_error(infer(served, call), 400, "invalid_inference")["error"]
    assert pause[0] < STALL_S


def test_more_strings_than_may_be_are_too_many(served):
    count = 1 << 22
    with longest_pause(served) as pause:
        document = v2_error(infer(served, texts(count, bytes(4 * count)), model="text"), 413, "body_too_large")
    assert document["limit_elements"] == 50_000
    assert "MAX_BYTES_ELEMENTS" in document["error"]
    assert pause[0] < STALL_S


def test_many_strings_are_counted_in_the_other_process(served):
    served.app.state.api.parser.child._kill()
    count = parsing.AT_ONCE_ELEMENTS + 1
    content = strings(*[b"a"] * count)
    _, outputs = outputs_of(infer(served, texts(count, content), model="text"))
    assert outputs["echo"] == content
    assert served.app.state.api.parser.child.process.poll() is None
    v2_error(infer(served, texts(count, content[:-5] + bytes(5)), model="text"), 400, "invalid_inference")


def test_the_limit_holds_for_strings_in_large_json_too(served):
    call = {"json": {"inputs": [tensor([50_001], [""] * 50_001, datatype="BYTES")]}}
    assert v2_error(infer(served, call, model="text"), 413, "body_too_large")["limit_elements"] == 50_000


def test_what_is_said_of_inputs_is_checked_before_their_bytes():
    seen = []

    def check(inputs):
        seen.extend((tensor.name, tensor.datatype, tensor.shape, bytes(tensor.data)) for tensor in inputs)
        raise BadInference("not mine")

    document = {"inputs": [tensor([1, 2], datatype="BYTES", size=4), tensor([3], [1, 2, 3], name="b")]}
    head = json.dumps(document).encode()
    with pytest.raises(BadInference, match="not mine"):
        parse(head + b"\xff\xff\xff\xff", len(head), check=check)
    assert seen == [("frames", "BYTES", (1, 2), b""), ("b", "UINT8", (3,), b"")]


def test_more_work_than_may_be_done_at_once_is_not_begun():
    document = {"inputs": [tensor([5], datatype="BYTES", size=20), tensor([4], ["x"] * 4, name="b", datatype="BYTES")]}
    head = json.dumps(document).encode()
    body = head + b"\xff" * 20  # no lengths of five elements
    with pytest.raises(TooLong):
        parse(body, len(head), at_once=8)
    with pytest.raises(BodyTooLarge):
        parse(body, len(head), at_once=8, most_elements=8)
    with pytest.raises(BadInference):
        parse(body, len(head), at_once=9)


def test_fewer_bytes_than_lengths_need_no_look():
    document = {"inputs": [tensor([1 << 30], datatype="BYTES", size=20)]}
    head = json.dumps(document).encode()
    with pytest.raises(BadInference, match="each after its length"):
        parse(head + bytes(20), len(head), most_elements=1 << 31)


# ---------------------------------------------------------------- answers


def test_many_strings_as_json_are_written_in_steps(served):
    elements = [b'say "hi"', "grün".encode(), b"", b"x" * 70_000] * 3 + [b""] * 39_988
    with longest_pause(served) as pause:
        _, outputs = outputs_of(infer(served, texts(len(elements), strings(*elements), as_json=True), model="text"))
    assert outputs["echo"] == [element.decode() for element in elements]
    assert pause[0] < STALL_S


@pytest.mark.parametrize("count", [2, 20_000])
def test_a_last_string_that_is_no_utf8_is_an_error_whole(served, count):
    call = texts(count, strings(*[b"a"] * (count - 1), b"\xff"), as_json=True)
    assert "UTF-8" in v2_error(infer(served, call, model="text"), 400, "invalid_inference")["error"]


def test_frames_are_as_ever(served):
    outputs_of(infer(served, binary([tensor([1, *SMALL], size=192)], FRAME)))
