"""Results whose outputs are bytes, for those who ask for them with ``Accept: application/octet-stream``.

The layout is Triton's: a JSON document, in which an output has ``parameters.binary_data_size`` in place of its data,
and then the bytes of all outputs in the order of the document: little-endian, row-major, of BYTES each element after
its length in 4 bytes. The header ``Inference-Header-Content-Length`` says how long the JSON is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from fastapi import Response
from starlette.types import Receive, Scope, Send

from gateway.api.caller import caller_of
from gateway.api.results import AT_ONCE_BYTES, datatype_of, dump, frame_fields
from gateway.runtime.bodies import Piece
from gateway.runtime.results import FrameResult
from gateway.triton.tensors import BYTES, from_array

OCTETS = "application/octet-stream"
#: For the OpenAPI document: the form beside JSON.
BINARY_CONTENT = {
    OCTETS: {
        "schema": {
            "type": "string",
            "format": "binary",
            "description": "With `Accept: application/octet-stream`: the JSON, whose outputs have "
            "`parameters.binary_data_size` in place of `data`, and after it the bytes of all outputs in that order, as "
            "Triton writes them: little-endian, row-major, of BYTES each element after its length in 4 bytes.",
        }
    }
}
BINARY_HEADERS = {
    "Inference-Header-Content-Length": {
        "description": "Of a binary answer: how many bytes of it are JSON.",
        "schema": {"type": "integer"},
    }
}
#: Written at once: at 4 us a frame some 0.3 ms. Then others get their turn.
_AT_ONCE_FRAMES = 64
#: Likewise, at 0.2 us each.
_AT_ONCE_STRINGS = 2_048


def wants_binary(accept: bytes) -> bool:
    """Tell whether an ``Accept`` header asks for bytes by their name, and not for JSON rather than that."""
    accept = accept.lower()
    if b"octet-stream" not in accept:
        return False
    quality = dict(map(_quality, accept.split(b",")))
    binary = quality.get(b"application/octet-stream", 0.0)
    return binary > 0 and binary >= quality.get(b"application/json", 0.0)


def _quality(part: bytes) -> tuple[bytes, float]:
    name, *parameters = (item.strip() for item in part.split(b";"))
    for parameter in parameters:
        if parameter.startswith(b"q="):
            try:
                return name, float(parameter[2:])
            except ValueError:
                return name, 0.0
    return name, 1.0


class BinaryAnswer(Response):
    """``{"results": [...], **rest}`` and the outputs' bytes."""

    def __init__(self, results: Sequence[FrameResult], rest: dict[str, Any]) -> None:
        super().__init__(media_type=OCTETS)
        self._results = results
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the call."""
        head, pieces = await write(self._results, self._rest)
        size = len(head) + sum(map(len, pieces))
        headers = [
            (b"content-type", OCTETS.encode()),
            (b"inference-header-content-length", str(len(head)).encode()),
            (b"content-length", str(size).encode()),
        ]
        caller = caller_of(scope)
        if caller is not None and size <= AT_ONCE_BYTES:
            await caller.answer(200, headers, b"".join((head, *pieces)))
            return
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for block in _blocks([head, *pieces]):
            await send({"type": "http.response.body", "body": block, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def write(results: Sequence[FrameResult], rest: dict[str, Any]) -> tuple[bytes, list[Piece]]:
    """Return the JSON, and the bytes of the outputs in pieces that are not copied where they lie in one already."""
    pieces: list[Piece] = []
    frames = []
    for index, result in enumerate(results):
        outputs: dict[str, Any] = {}
        for name, row in (result.outputs or {}).items():
            first = len(pieces)
            datatype = datatype_of(row)
            if datatype == BYTES:
                await _add_strings(row, pieces)
            else:
                pieces.append(np.ascontiguousarray(row).reshape(-1).view(np.uint8).data)
            size = sum(map(len, pieces[first:]))
            outputs[name] = {"datatype": datatype, "shape": row.shape, "parameters": {"binary_data_size": size}}
        frames.append(frame_fields(result, None if result.outputs is None else outputs))
        if index % _AT_ONCE_FRAMES == _AT_ONCE_FRAMES - 1:
            await asyncio.sleep(0)
    return dump({"results": frames, **rest}), pieces


async def _add_strings(row: npt.NDArray[Any], pieces: list[Piece]) -> None:
    flat = row.ravel()
    for start in range(0, len(flat), _AT_ONCE_STRINGS):
        if start:
            await asyncio.sleep(0)
        pieces.append(from_array(BYTES, flat[start : start + _AT_ONCE_STRINGS]))


def _blocks(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Give the same bytes in fewer pieces, as each costs a call of the kernel, and in none that is very large."""
    some: list[Piece] = []
    size = 0
    for piece in pieces:
        if size and size + len(piece) > AT_ONCE_BYTES:
            yield b"".join(some)
            some, size = [], 0
        if len(piece) < AT_ONCE_BYTES:
            some.append(piece)
            size += len(piece)
        else:
            view = memoryview(piece)
            yield from (view[start : start + AT_ONCE_BYTES] for start in range(0, len(view), AT_ONCE_BYTES))
    if some:
        yield b"".join(some)
