"""A frame's result as JSON.

Outputs are written by orjson straight from the numpy array: flat, row-major. What is not finite becomes
``null``, so that the answer is strict JSON; every number of up to 64 bits is written in full.

Writing takes 3 to 5 ms per MB of JSON, and 2 us a result, and the loop does nothing else meanwhile. So an answer with
large outputs or very many results is written piece by piece while it is sent (`PagedAnswer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from fastapi.responses import StreamingResponse

from gateway.core.types import Outcome
from gateway.errors import FrameCancelled, FrameExpired, FrameFailed, FramegateError
from gateway.runtime.model_errors import of_frame
from gateway.runtime.results import FrameResult
from gateway.triton.tensors import BYTES, DTYPES

#: Outputs of an answer that is written at once, as bytes of their arrays: at most 1 MB of JSON.
AT_ONCE_BYTES = 64 << 10
#: Results of such an answer: half a millisecond.
AT_ONCE_RESULTS = 256

#: By numpy's type: looking one up by its name would make that name, which takes longer than writing a small result.
_DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}


def dump(content: object) -> bytes:
    """Return `content` as strict JSON."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def datatype_of(row: npt.NDArray[Any]) -> str:
    """Return Triton's name of an output's type."""
    return _DATATYPES.get(row.dtype, BYTES)


def tensor(row: npt.NDArray[Any]) -> dict[str, Any]:
    """Return one output of one frame; `BYTES` elements are decoded as UTF-8, what is not gets U+FFFD."""
    datatype = datatype_of(row)
    if datatype == BYTES:
        strings = [x.decode(errors="replace") if isinstance(x, bytes) else str(x) for x in row.ravel().tolist()]
        return {"datatype": datatype, "shape": row.shape, "data": strings}
    flat = row if row.ndim == 1 and row.flags.c_contiguous else np.ascontiguousarray(row).ravel()
    return {"datatype": datatype, "shape": row.shape, "data": flat}


def frame_result(result: FrameResult) -> dict[str, Any]:
    """Return the members of `answers.FrameOutcome`."""
    outputs = None if result.outputs is None else {name: tensor(row) for name, row in result.outputs.items()}
    return frame_fields(result, outputs)


def frame_fields(result: FrameResult, outputs: dict[str, Any] | None) -> dict[str, Any]:
    """Return the members of `answers.FrameOutcome`, with `outputs` as they are to be written."""
    return {
        "seq": result.seq,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "latency_ms": result.latency_ms,
        "deadline_ms": result.deadline_ms,
        "batch": result.batch,
        "queue_ms": result.queue_ms,
        "execute_ms": result.execute_ms,
        "degraded": result.degraded,
        "shape": result.shape,
        "demoted": result.demoted,
        "timestamp_ms": result.timestamp_ms,
        "version": result.version or None,
        "outputs": outputs,
    }


def is_large(results: Sequence[FrameResult]) -> bool:
    """Tell whether an answer with these results should be written piece by piece."""
    if len(results) > AT_ONCE_RESULTS:
        return True
    size = 0
    for result in results:
        for row in (result.outputs or {}).values():
            size += row.nbytes
            strings = len(results) > 1 and row.dtype.hasobject  # they are elsewhere, of any length
            if size > AT_ONCE_BYTES or strings:
                return True
    return False


class PagedAnswer(StreamingResponse):
    """``{"results": [...], **rest}``, a piece at a time: some results, or a part of a large output.

    Others get their turn between two pieces; no more than one is kept for a client that is slow. It ends when the
    client goes away.
    """

    def __init__(self, results: Sequence[FrameResult], rest: dict[str, Any]) -> None:
        super().__init__(_pieces(results, rest), media_type="application/json")


async def _pieces(results: Sequence[FrameResult], rest: dict[str, Any]) -> AsyncIterator[bytes]:
    some, size = [b'{"results":['], 0
    for index, result in enumerate(results):
        if index:
            some.append(b",")
        for piece in frame_pieces(frame_result(result)):
            some.append(piece)
            size += len(piece)
            if size >= AT_ONCE_BYTES:
                yield b"".join(some)
                some, size = [], 0
                await asyncio.sleep(0)
    # `rest` without its opening brace, or the closing one alone.
    some.append(b"]," + dump(rest)[1:] if rest else b"]}")
    yield b"".join(some)


def frame_pieces(fields: dict[str, Any]) -> Iterator[bytes]:
    """Give the JSON of one `frame_result`: in one piece, or, where it is large, cut within its outputs."""
    outputs = fields["outputs"] or {}
    if sum(_size(output["data"]) for output in outputs.values()) <= AT_ONCE_BYTES:
        yield dump(fields)
        return
    # Each output's data is left out, and what is around them written at once.
    frame = dump({**fields, "outputs": {name: {**output, "data": []} for name, output in outputs.items()}})
    around = frame.split(b'"data":[]')
    for head, output in zip(around, outputs.values(), strict=False):
        yield head + b'"data":['
        data = output["data"]
        step = max(1, len(data) * AT_ONCE_BYTES // max(1, _size(data)))
        for start in range(0, len(data), step):
            yield dump(data[start : start + step])[1:-1] + (b"," if start + step < len(data) else b"")
        yield b"]"
    yield around[-1]


def _size(data: npt.NDArray[Any] | list[str]) -> int:
    return sum(map(len, data)) if isinstance(data, list) else data.nbytes


#: A frame that was alone in its call and has no outputs is an error of that call.
_ALONE: dict[Outcome, type[FramegateError]] = {
    Outcome.EXPIRED: FrameExpired,
    Outcome.FAILED: FrameFailed,
    Outcome.CANCELLED: FrameCancelled,
}


#: What reasons say that are only words of ours.
_SAID = {
    "superseded": "A newer frame of the stream came while this one waited, and took its place: the stream was "
    "registered with `on_late: newest`. (superseded)",
}


def error_of(results: Sequence[FrameResult]) -> FramegateError | None:
    """Return the error that the only frame of a call ended in, None if there are several or it has outputs."""
    if len(results) != 1 or (error := _ALONE.get(results[0].outcome)) is None:
        return None
    reason = results[0].reason
    result = frame_result(results[0])
    if results[0].outcome is Outcome.FAILED and (missing := of_frame(reason, result=result)) is not None:
        return missing
    return error(_SAID.get(reason, reason), result=result)
