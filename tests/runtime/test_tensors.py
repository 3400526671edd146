"""Tensors between JSON, arrays and bytes."""

import numpy as np
import pytest

from gateway.triton.tensors import BadTensor, check_size, elements_of, from_array, from_json, to_array, to_json
from gateway.triton.types import BackendError

NUMBERS = ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64"]


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_go_there_and_back(datatype):
    data = from_json("x", datatype, (2, 2), [[0, 1], [2, 100]])
    assert to_json("x", datatype, data).tolist() == [0, 1, 2, 100]
    array = to_array(datatype, (2, 2), data)
    assert array.shape == (2, 2)
    assert from_array(datatype, array) == data


@pytest.mark.parametrize(("datatype", "value"), [("UINT64", 2**64 - 1), ("INT64", -(2**63)), ("INT64", 2**63 - 1)])
def test_large_integers_keep_every_digit(datatype, value):
    assert to_json("x", datatype, from_json("x", datatype, (2,), [value, 1])).tolist() == [value, 1]


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("UINT8", 256), ("UINT8", -1), ("INT8", 128), ("INT16", -32769), ("UINT64", 2**64), ("UINT64", -1),
        ("INT64", 2**63),
        ("UINT8", 1.0), ("UINT8", True), ("FP32", True), ("FP32", 1e39), ("FP64", "1"), ("FP32", None), ("BOOL", 1),
        ("BYTES", 1), ("BYTES", None), ("FP16", 1), ("BF16", 1), ("FP32", {}),
    ],
)  # fmt: skip
def test_elements_of_another_kind_or_out_of_range_are_refused(datatype, value):
    with pytest.raises(BadTensor, match="x"):
        from_json("x", datatype, (1,), [value])


def test_truth_values_and_strings():
    assert from_json("x", "BOOL", (2,), [True, False]) == b"\1\0"
    assert to_json("x", "BOOL", b"\1\0").tolist() == [True, False]
    data = from_json("x", "BYTES", (2,), ["\u00e9", ""])
    assert data == b"\2\0\0\0\xc3\xa9\0\0\0\0"
    assert list(to_json("x", "BYTES", data)) == ["\u00e9", ""]
    assert [bytes(element) for element in elements_of(data)] == [b"\xc3\xa9", b""]
    with pytest.raises(BadTensor, match="binary data format"):
        list(to_json("x", "BYTES", b"\1\0\0\0\xff"))


@pytest.mark.parametrize(
    "data", [5, "abc", {"a": 1}, [[1], 2], [1, [2]], [[1, 2], [3, [4]]], [1, 2, 3], [[1, 2, 3]], []]
)
def test_data_of_another_form_or_length_are_refused(data):
    with pytest.raises(BadTensor):
        from_json("x", "INT32", (2,), data)


def test_uneven_nesting_does_not_reserve_memory():
    """One long string among many numbers would make a rectangle of gigabytes of it."""
    with pytest.raises(BadTensor):
        from_json("x", "FP32", (100_001,), ["y" * 1_000_000, *([1.0] * 100_000)])


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_keeps_every_bit(datatype):
    data = np.arange(65_536, dtype="<u2").tobytes()
    assert from_array(datatype, to_array(datatype, (256, 256), data)) == data


def test_bf16_is_the_fp32_of_equal_value():
    data = (np.array([1.0, -2.5, np.inf], np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
    assert to_array("BF16", (3,), data).tolist() == [1.0, -2.5, np.inf]


@pytest.mark.parametrize(
    ("datatype", "shape", "data"),
    [
        ("FP32", (2,), b"1234567"), ("FP32", (3,), bytes(8)), ("BYTES", (2,), b"\0\0\0\0"), ("XX", (1,), b"1"),
        ("BYTES", (1,), b"\0"),
    ],
)  # fmt: skip
def test_an_output_that_is_not_what_it_says_is_tritons_fault(datatype, shape, data):
    with pytest.raises(BackendError, match=datatype):
        to_array(datatype, shape, data)


@pytest.mark.parametrize(("datatype", "size"), [("UINT8", 7), ("FP64", 47), ("BF16", 11), ("BYTES", 5)])
def test_sizes_are_checked_to_the_byte(datatype, size):
    with pytest.raises(BadTensor, match="bytes"):
        check_size("x", datatype, (2, 3), bytes(size))
