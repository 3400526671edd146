"""What the scheduler and an ingest process say to each other: messages over a pair of sockets.

A message is its length in 4 bytes, one byte that says its kind, and the rest. What comes for every frame is packed by
`struct`, little-endian; what is rare is JSON or pickled. Only the scheduler pickles: it takes nothing from a process
that strangers talk to but numbers and text.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from gateway.core.types import Outcome
from gateway.runtime.bodies import Piece
from gateway.runtime.results import FrameResult

#: From an ingest process: it listens; what is this stream; take these frames; nobody waits for this one any more;
#: figures of its own.
READY, ASK, SUBMIT, CANCEL, FIGURES = range(1, 6)
#: From the scheduler: how it is to be set up; the stream that was asked for; a stream is over; frames were taken;
#: frames were refused; a frame has ended; a frame has no end; take nothing new; the gateway has been stopped.
HELLO, STREAM, OVER, TAKEN, REFUSED, RESULT, FAILED, DRAIN, STOPPED = range(16, 25)

#: ASK: question; then the stream's id. STREAM begins likewise.
QUESTION = struct.Struct("<BQ")
#: SUBMIT: call, whether its results are wanted, when its last byte had come (monotonic ns), where its bytes begin in
#: the staging area and how many there are, whether it is labelled, and so; then the stream's id.
DESCRIPTOR = struct.Struct("<BQ?qQQ?d")
#: TAKEN: call, the first frame's `seq`, how many frames.
ACCEPTED = struct.Struct("<BQQI")
#: CANCEL, FAILED: call, which of its frames. REFUSED has the call alone, as `QUESTION`.
FRAME = struct.Struct("<BQI")
#: RESULT: call, which of its frames, seq, outcome, flags, latency, deadline, batch, queue, execution, label, length of
#: the JSON that follows; then the bytes of the outputs, one after the other.
_RESULT = struct.Struct("<BQIQBBddIdddI")
_LENGTH = struct.Struct("<I")
_DEGRADED, _DEMOTED, _LABELLED = 1, 2, 4
_OUTCOMES = tuple(Outcome)
_CODES = {outcome: code for code, outcome in enumerate(_OUTCOMES)}
_OBJECTS = "O"


class TooLongError(Exception):
    """A message is longer than its sender may make them."""


class Messages:
    """Cuts what comes over a socket into messages.

    Args:
        limit_bytes: Of a message; None: any.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size = self._needed = 0

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Take what came; give the messages that are complete, from their kind on. Raises `TooLongError`."""
        if self._parts:
            self._parts.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return
            data, self._parts = b"".join(self._parts), []
        view, size, at, needed = memoryview(data), len(data), 0, _LENGTH.size
        while size - at >= _LENGTH.size:
            needed = _LENGTH.size + _LENGTH.unpack_from(view, at)[0]
            if size - at < needed:
                if self._limit_bytes is not None and needed > self._limit_bytes:
                    raise TooLongError(f"a message of {needed} bytes; the limit is {self._limit_bytes}")
                break
            yield view[at + _LENGTH.size : at + needed]
            at, needed = at + needed, _LENGTH.size
        if at < size:
            self._parts, self._size, self._needed = [data[at:]], size - at, needed


def message(*parts: Piece) -> bytes:
    """Return a message: `parts` begin with its kind."""
    return _LENGTH.pack(sum(map(len, parts))) + b"".join(parts)


def plain(kind: int) -> bytes:
    """Return a message that says no more than its kind."""
    return message(bytes((kind,)))


def result_parts(call: int, index: int, result: FrameResult) -> list[Piece]:
    """Return the RESULT of a frame, in pieces. Outputs are not copied, but for those of BYTES."""
    outputs, pieces = None, []
    if result.outputs is not None:
        outputs = []
        for name, row in result.outputs.items():
            kind, piece = _packed(row)
            outputs.append((name, kind, row.shape, len(piece)))
            pieces.append(piece)
    text = orjson.dumps((result.reason, result.version, result.shape, outputs))
    timestamp_ms = result.timestamp_ms
    head = _RESULT.pack(
        RESULT,
        call,
        index,
        result.seq,
        _CODES[result.outcome],
        _DEGRADED * result.degraded + _DEMOTED * result.demoted + _LABELLED * (timestamp_ms is not None),
        result.latency_ms,
        result.deadline_ms,
        result.batch,
        result.queue_ms,
        result.execute_ms,
        timestamp_ms or 0.0,
        len(text),
    )
    size = len(head) + len(text) + sum(map(len, pieces))
    return [_LENGTH.pack(size) + head + text, *pieces]


def _packed(row: npt.NDArray[Any]) -> tuple[str, Piece]:
    if row.dtype.hasobject:
        return _OBJECTS, pickle.dumps(row, pickle.HIGHEST_PROTOCOL)
    return row.dtype.str, np.ascontiguousarray(row).reshape(-1).view(np.uint8).data


def read_result(received: memoryview) -> tuple[int, int, FrameResult]:
    """Return call, index and result of a RESULT; its `stream_id` is left empty."""
    (
        _,
        call,
        index,
        seq,
        code,
        flags,
        latency_ms,
        deadline_ms,
        batch,
        queue_ms,
        execute_ms,
        timestamp_ms,
        size,
    ) = _RESULT.unpack_from(received)
    at = _RESULT.size + size
    reason, version, shape, outputs = orjson.loads(received[_RESULT.size : at])
    result = FrameResult(
        stream_id="",
        seq=seq,
        outcome=_OUTCOMES[code],
        reason=reason,
        latency_ms=latency_ms,
        deadline_ms=deadline_ms,
        batch=batch,
        queue_ms=queue_ms,
        execute_ms=execute_ms,
        degraded=bool(flags & _DEGRADED),
        shape=tuple(shape),
        outputs=None if outputs is None else _rows(outputs, received[at:]),
        demoted=bool(flags & _DEMOTED),
        timestamp_ms=timestamp_ms if flags & _LABELLED else None,
        version=version,
    )
    return call, index, result


def _rows(outputs: Sequence[tuple[str, str, Sequence[int], int]], data: memoryview) -> dict[str, npt.NDArray[Any]]:
    found: dict[str, npt.NDArray[Any]] = {}
    at = 0
    for name, kind, shape, size in outputs:
        piece = data[at : at + size]
        at += size
        if kind == _OBJECTS:
            found[name] = pickle.loads(piece)
            continue
        # Copied: what is written as JSON must lie where its type may, and must not keep the whole packet.
        found[name] = row = np.empty(shape, kind)
        if size:
            row.reshape(-1).view(np.uint8)[:] = piece
    return found
