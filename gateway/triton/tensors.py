"""Tensors between JSON and the bytes that Triton takes: little-endian, row-major, no padding.

A BYTES tensor is its elements one after another, each after its length in 4 bytes. Nothing here trusts what it is
given: what does not fit is `BadTensor`, whose words name the tensor.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from gateway.triton.types import BackendError

BYTES = "BYTES"
#: Triton's name -> numpy's. BF16 is missing: numpy has no such type, and nothing here computes with one.
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
#: These have no form in JSON that keeps their values.
BINARY_ONLY = frozenset({"FP16", "BF16"})
ELEMENT_BYTES = {name: dtype.itemsize for name, dtype in DTYPES.items()} | {"BF16": 2}
_LENGTH = struct.Struct("<I")


class BadTensor(ValueError):
    """What is said of a tensor does not fit its data, or the protocol."""


def check_size(name: str, datatype: str, shape: tuple[int, ...], data: bytes | memoryview) -> None:
    """Raise `BadTensor` when `data` is not exactly a tensor of that type and shape."""
    elements = math.prod(shape)
    if datatype == BYTES:
        check_lengths(name, elements, data)
        return
    expected = elements * ELEMENT_BYTES[datatype]
    if len(data) != expected:
        raise BadTensor(
            f"input '{name}' of type {datatype} and shape {list(shape)} has {expected} bytes, but 'binary_data_size' "
            f"is {len(data)}"
        )


def check_lengths(name: str, elements: int, data: bytes | memoryview) -> None:
    """Raise `BadTensor` when `data` is not so many elements of a BYTES tensor. Looks at each: 0.2 ms per thousand."""
    offset = found = 0
    while elements * _LENGTH.size <= len(data) and offset + _LENGTH.size <= len(data) and found <= elements:
        offset += _LENGTH.size + _LENGTH.unpack_from(data, offset)[0]
        found += 1
    if offset != len(data) or found != elements:
        raise BadTensor(
            f"input '{name}' has {elements} elements, but its {len(data)} bytes are not as many, each after its length "
            f"in 4 bytes"
        )


def from_json(name: str, datatype: str, shape: tuple[int, ...], data: object) -> bytes:
    """Return the bytes of a tensor whose elements are in `data`, nested or flat.

    Raises:
        BadTensor: It has elements of another kind, out of range or not as many; or the type needs the binary form.
    """
    if datatype in BINARY_ONLY:
        raise BadTensor(
            f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input '{name}'"
        )
    flat = _flat(name, data)
    if len(flat) != math.prod(shape):
        raise BadTensor(f"input '{name}' of shape {list(shape)} has {math.prod(shape)} elements, not {len(flat)}")
    kinds = set(map(type, flat))
    if datatype == BYTES:
        if kinds - {str}:
            raise BadTensor(f"elements of input '{name}' must be strings; for others use the binary data format")
        return b"".join(_element(text.encode()) for text in flat)
    return _numbers(name, datatype, flat, kinds)


def _flat(name: str, data: object) -> list[Any]:
    if type(data) is not list:
        raise BadTensor(f"'data' of input '{name}' must be a list")
    while data and type(data[0]) is list:
        if any(type(row) is not list for row in data):
            raise BadTensor(f"'data' of input '{name}' is not nested evenly")
        data = list(chain.from_iterable(data))
    return data


def _numbers(name: str, datatype: str, flat: list[Any], kinds: set[type]) -> bytes:
    dtype = DTYPES[datatype]
    kinds_of: dict[str, set[type]] = {"b": {bool}, "f": {int, float}}
    allowed = kinds_of.get(dtype.kind, {int})
    if kinds - allowed:
        names = " or ".join(sorted(kind.__name__ for kind in allowed))
        raise BadTensor(f"elements of input '{name}', which is {datatype}, must be {names}")
    if dtype.kind in "iu" and flat:
        limits = np.iinfo(dtype)
        if min(flat) < limits.min or max(flat) > limits.max:
            raise BadTensor(f"elements of input '{name}' must lie within {datatype}'s {limits.min} to {limits.max}")
    if dtype.kind == "f" and flat and max(max(flat), -min(flat)) > float(np.finfo(dtype).max):
        raise BadTensor(f"elements of input '{name}' are beyond what {datatype} can hold")
    return np.array(flat, dtype).tobytes()


def _element(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def to_json(name: str, datatype: str, data: bytes | memoryview) -> npt.NDArray[Any] | Iterator[str]:
    """Return what is written as ``data`` of an output, flat; not finite numbers come out as null.

    Elements of BYTES are decoded as they are taken, so that whoever takes them can pause.

    Raises:
        BadTensor: The type needs the binary form, or, when it is taken, an element is not UTF-8.
    """
    if datatype in BINARY_ONLY:
        raise BadTensor(
            f"sending {datatype} data via JSON is not supported. Please use the binary data format for output '{name}'"
        )
    return _texts(name, data) if datatype == BYTES else np.frombuffer(data, DTYPES[datatype])


def _texts(name: str, data: bytes | memoryview) -> Iterator[str]:
    try:
        for element in elements_of(data):
            yield str(element, "utf-8")
    except UnicodeDecodeError:
        raise BadTensor(
            f"output '{name}' has elements that are not UTF-8. Please use the binary data format for it"
        ) from None


def elements_of(data: bytes | memoryview) -> Iterable[memoryview]:
    """Give the elements of a BYTES tensor."""
    view, offset = memoryview(data), 0
    while offset < len(view):
        start = offset + _LENGTH.size
        offset = start + _LENGTH.unpack_from(view, offset)[0]
        yield view[start:offset]


def to_array(datatype: str, shape: tuple[int, ...], data: bytes | memoryview) -> npt.NDArray[Any]:
    """Return a tensor as an array: a view of `data`, of BYTES an array of objects, of BF16 the FP32 of equal value.

    Raises:
        BackendError: The bytes are not a tensor of that type and shape.
    """
    try:
        if datatype == BYTES:
            return np.array([bytes(element) for element in elements_of(data)], np.object_).reshape(shape)
        if datatype == "BF16":
            wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
            return wide.view(np.float32).reshape(shape)
        return np.frombuffer(data, DTYPES[datatype]).reshape(shape)
    except (KeyError, ValueError, struct.error) as error:
        raise BackendError(f"an output of type {datatype} and shape {list(shape)} has other bytes: {error}") from None


def from_array(datatype: str, array: npt.NDArray[Any]) -> bytes:
    """Return the bytes of an array from `to_array`, bit by bit what they were."""
    if datatype == BYTES:
        return b"".join(map(_element, array.ravel().tolist()))
    if datatype == "BF16":
        return (array.view(np.uint32) >> 16).astype("<u2").tobytes()
    return np.ascontiguousarray(array, DTYPES[datatype]).tobytes()
