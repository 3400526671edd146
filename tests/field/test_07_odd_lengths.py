"""Report 7: whatever is said of lengths, it fits exactly or is a plain 400, and nothing reaches Triton."""

import json

import pytest

from tests.api.served import FRAME, Served, v2_error
from tests.api.test_bad_clients import read_answer
from tests.api.v2_support import HEADER, binary, infer, outputs_of, tensor
from tests.field.support import head
from tests.stand_in import Model

SHAPE = [1, 8, 8, 3]
ODD = [
    b"", b"abc", b"-1", b"0", b"1e3", b"1.0", b"+5", b"0x10", b" ", b"1 2", b"%d", b"2147483648", b"4294967296",
    b"9223372036854775808", b"9" * 400,
]  # fmt: skip


@pytest.fixture(scope="module")
def served():
    with Served(Model("echo")) as gateway:
        gateway.stand_in.calls.clear()
        yield gateway
        assert gateway.stand_in.log("infer") == [], "something reached Triton"
        outputs_of(infer(gateway, binary([tensor(SHAPE, size=192)], FRAME)))
        gateway.stand_in.calls.clear()


def post(served, content, *headers):
    with served.connect() as connection:
        length = f"Content-Length: {len(content)}".encode()
        request = head("POST", "/v2/models/echo/infer").rstrip(b"\r\n")
        connection.sendall(b"\r\n".join([request, length, *headers, b"", b""]) + content)
        return read_answer(connection)


@pytest.mark.parametrize("value", ODD)
def test_odd_header_lengths(served, value):
    content = json.dumps({"inputs": [tensor(SHAPE, size=192)]}).encode() + FRAME
    if b"%d" in value:
        value = str(len(content) + 1).encode()
    status, _, document = post(served, content, HEADER.encode() + b": " + value)
    assert (status, document["code"]) == (400, "invalid_inference")
    assert document["error"]


def test_a_header_that_is_missing_or_there_twice(served):
    document = json.dumps({"inputs": [tensor(SHAPE, size=192)]}).encode()
    assert post(served, document + FRAME)[0] == 400
    line = f"{HEADER}: {len(document)}".encode()
    status, _, answer = post(served, document + FRAME, line, line)
    assert (status, answer["code"]) == (400, "invalid_inference")


@pytest.mark.parametrize(
    "size", [191, 193, 0, -1, -192, 192.0, 1e3, "192", None, True, [], 2**31, 2**63, 2**64, 10**30]
)
def test_odd_sizes_of_a_tensor(served, size):
    item = {**tensor(SHAPE), "parameters": {"binary_data_size": size}}
    v2_error(infer(served, binary([item], FRAME)), 400, "invalid_inference")


@pytest.mark.parametrize("content", [FRAME[:-1], FRAME + b"x", b"", FRAME * 2])
def test_too_much_and_too_little_after_the_json(served, content):
    v2_error(infer(served, binary([tensor(SHAPE, size=192)], content)), 400, "invalid_inference")


def test_sizes_that_are_right_only_together(served):
    items = [tensor(SHAPE, size=96), tensor([1, 4, 8, 3], name="other", size=192)]
    v2_error(infer(served, binary(items, bytes(288))), 400, "invalid_inference")


@pytest.mark.parametrize("shape", [[2**31, 2**31, 3, 1], [2**63, 1, 1, 3], [2**64, 1, 1, 3], [1, 8, 8], [1] * 40])
def test_shapes_that_overflow(served, shape):
    v2_error(infer(served, binary([tensor(shape, size=192)], FRAME)), 400, "invalid_inference")


@pytest.mark.parametrize(
    ("elements", "content"),
    [
        (1, b"\x02\x00\x00\x00a"),
        (1, b"\x01\x00\x00\x00ab"),
        (2, b"\x01\x00\x00\x00a"),
        (1, b"\x01\x00\x00\x00a\x01\x00\x00\x00b"),
        (1, b"\xff\xff\xff\xffa"),
        (1, b"\x01\x00\x00"),
        (0, b"\x00\x00\x00\x00"),
        (2**40, b""),
    ],
)
def test_lengths_of_strings(served, elements, content):
    item = tensor([elements], datatype="BYTES", size=len(content))
    v2_error(infer(served, binary([item], content)), 400, "invalid_inference")
