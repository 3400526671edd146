"""From the gateway's answer to the body of an infer call's answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from gateway.api.results import AT_ONCE_BYTES
from gateway.api.v2.request import InferRequest
from gateway.errors import BadInference
from gateway.runtime.call import Answer
from gateway.triton.tensors import BadTensor, to_json
from gateway.triton.types import Tensor

Headers = list[tuple[bytes, bytes]]

_EMPTY_DATA = b'"data":[]'
#: What writing a string costs beside its characters, in characters.
_STRING_CHARS = 16


class InferReply:
    """The answer of one call.

    Outputs as JSON are written piece by piece where they are large: writing takes 3 to 5 ms per MB, and the loop does
    nothing else meanwhile. Strings are written by `prepare`, for one of them may turn out to be no text.

    Raises:
        BadInference: An output has no form in JSON.
    """

    def __init__(self, model: str, request: InferRequest, answer: Answer) -> None:
        document: dict[str, Any] = {} if request.id is None else {"id": request.id}
        document |= {"model_name": model, "model_version": answer.version}
        if request.deadline_ns is not None:
            document["parameters"] = _said_of(answer)
        self._plain: list[Iterable[bytes]] = []
        self._strings: list[int] = []
        self._binary: list[bytes | memoryview] = []
        document["outputs"] = [self._output(tensor, binary=request.is_binary(tensor.name)) for tensor in answer.outputs]
        self._json_bytes = sum(tensor.data.nbytes if isinstance(tensor.data, memoryview) else len(tensor.data)
                               for tensor in answer.outputs if not request.is_binary(tensor.name))  # fmt: skip
        self._head = orjson.dumps(document)

    def _output(self, tensor: Tensor, *, binary: bool) -> dict[str, Any]:
        said = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        if binary:
            self._binary.append(tensor.data)
            return said | {"parameters": {"binary_data_size": len(tensor.data)}}
        try:
            data = to_json(tensor.name, tensor.datatype, tensor.data)
        except BadTensor as error:
            raise BadInference(str(error)) from None
        if isinstance(data, np.ndarray):
            self._plain.append(_numbers(data))
        else:
            self._strings.append(len(self._plain))
            self._plain.append(_strings(data))
        return said | {"data": []}

    async def prepare(self) -> None:
        """Write the strings; others get their turn meanwhile.

        Raises:
            BadInference: One of them is not UTF-8.
        """
        try:
            for index in self._strings:
                self._plain[index] = [piece async for piece in _with_pauses(self._plain[index])]
        except BadTensor as error:
            raise BadInference(str(error)) from None

    @property
    def large(self) -> bool:
        """Whether it should be written piece by piece."""
        return self._json_bytes > AT_ONCE_BYTES

    def at_once(self) -> tuple[Headers, bytes]:
        """Return headers and body."""
        head = b"".join(self._json())
        body = b"".join((head, *self._binary))
        return [*self._headers(len(head)), (b"content-length", str(len(body)).encode())], body

    def in_pieces(self) -> tuple[Headers, AsyncIterator[bytes]]:
        """Return headers and the body's pieces. Where binary data follow, the JSON has to be written out first."""
        return [(b"content-type", b"application/json")], self._slowly()

    async def written(self) -> tuple[Headers, bytes]:
        """As `at_once`; others get their turn meanwhile."""
        head = b"".join([piece async for piece in self._slowly()])
        body = b"".join((head, *self._binary))
        return [*self._headers(len(head)), (b"content-length", str(len(body)).encode())], body

    @property
    def mixed(self) -> bool:
        """Whether binary data follow the JSON."""
        return bool(self._binary)

    def _headers(self, json_size: int) -> Headers:
        if not self._binary:
            return [(b"content-type", b"application/json")]
        return [
            (b"content-type", b"application/octet-stream"),
            (b"inference-header-content-length", str(json_size).encode()),
        ]

    async def _slowly(self) -> AsyncIterator[bytes]:
        async for piece in _with_pauses(self._json()):
            yield piece

    def _json(self) -> Iterator[bytes]:
        # The data are left out of the document, and put into it piece by piece. A name could hold the mark, but only
        # with its quotes escaped.
        around = self._head.split(_EMPTY_DATA)
        for before, data in zip(around, self._plain, strict=False):
            yield before + b'"data":['
            yield from data
            yield b"]"
        yield around[-1]


async def _with_pauses(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def _numbers(array: npt.NDArray[Any]) -> Iterator[bytes]:
    """Give an array's elements as JSON, a piece at a time."""
    step = max(1, AT_ONCE_BYTES // array.itemsize)
    for start in range(0, len(array), step):
        written = orjson.dumps(array[start : start + step], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        yield written + b"," if start + step < len(array) else written


def _strings(texts: Iterator[str]) -> Iterator[bytes]:
    """Give strings as JSON, a piece at a time."""
    before, some, size = b"", list[str](), 0
    for text in texts:
        some.append(text)
        size += len(text) + _STRING_CHARS
        if size >= AT_ONCE_BYTES:
            yield before + orjson.dumps(some)[1:-1]
            before, some, size = b",", [], 0
    if some:
        yield before + orjson.dumps(some)[1:-1]


def _said_of(answer: Answer) -> dict[str, Any]:
    """What became of a call with a deadline; its rows end one by one, so it is the last that counts."""
    last = max(answer.results, key=lambda result: result.latency_ms)
    return {
        "outcome": last.outcome.value,
        "latency_ms": last.latency_ms,
        "queue_ms": last.queue_ms,
        "execute_ms": last.execute_ms,
        "batch": last.batch,
        "degraded": any(result.degraded for result in answer.results),
    }
