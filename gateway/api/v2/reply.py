"""From the gateway's answer to the body of an infer call's answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import orjson

from gateway.api.results import AT_ONCE_BYTES
from gateway.api.v2.request import InferRequest
from gateway.errors import BadInference
from gateway.runtime.calls import Answer
from gateway.triton.tensors import BadTensor, to_json
from gateway.triton.types import Tensor

Headers = list[tuple[bytes, bytes]]

_EMPTY_DATA = b'"data":[]'


class InferReply:
    """The answer of one call.

    Outputs as JSON are written piece by piece where they are large: writing takes 3 to 5 ms per MB, and the loop does
    nothing else meanwhile.

    Raises:
        BadInference: An output has no form in JSON.
    """

    def __init__(self, model: str, request: InferRequest, answer: Answer) -> None:
        document: dict[str, Any] = {} if request.id is None else {"id": request.id}
        document |= {"model_name": model, "model_version": answer.version}
        if request.deadline_ns is not None:
            document["parameters"] = _said_of(answer)
        self._plain: list[Any] = []
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
            self._plain.append(to_json(tensor.name, tensor.datatype, tensor.data))
        except BadTensor as error:
            raise BadInference(str(error)) from None
        return said | {"data": []}

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
        for piece in self._json():
            yield piece
            await asyncio.sleep(0)

    def _json(self) -> Iterator[bytes]:
        # The data are left out of the document, and put into it piece by piece. A name could hold the mark, but only
        # with its quotes escaped.
        around = self._head.split(_EMPTY_DATA)
        for before, data in zip(around, self._plain, strict=False):
            yield before + b'"data":['
            step = _step(data)
            for start in range(0, len(data), step):
                written = orjson.dumps(data[start : start + step], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
                yield written + b"," if start + step < len(data) else written
            yield b"]"
        yield around[-1]


def _step(data: Any) -> int:  # noqa: ANN401 - an array or a list
    size = data.nbytes if isinstance(data, np.ndarray) else sum(map(len, data))
    return max(1, len(data) * AT_ONCE_BYTES // max(1, size))


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
