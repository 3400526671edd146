"""Takes the binary messages out of what a WebSocket client sends, and passes on everything else.

What a camera sends is binary messages of one frame each. The library, as it works in general, copies each four times;
here its pieces stay as they came, still masked. Text, fragments, pings, closes and all that is wrong are passed on to
the library as they came, and in order, so its rules hold for them: it never sees the others.

::

    FIN 1, opcode 2, masked, within the limit, between two messages ──> MaskedBody
    any other frame ──────────────────────────────────────────────────> its bytes
    a header that no frame can have ──────────────────────────────────> its bytes, and all that follow
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from gateway.runtime.bodies import MaskedBody, Piece

_CONTINUATION, _TEXT, _BINARY = 0, 1, 2
_OPCODES = frozenset({_CONTINUATION, _TEXT, _BINARY, 8, 9, 10})
_FIN, _RESERVED, _MASKED = 0x80, 0x70, 0x80
_MASK_BYTES = 4
#: Smaller pieces are put together.
_SMALL = 4_096
#: Before the payload of a message of 64 KiB or more.
LARGE_HEAD = 14
#: Lengths that say how many bytes the length has.
_LENGTH_BYTES = {126: 2, 127: 8}


class Splitter:
    """What one client sends, from the end of its handshake on.

    Args:
        limit_bytes: Of a message. What is longer is passed on, and the library refuses it.

    Attributes:
        held: Bytes that are kept here: what has come of a message, or of a header.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.held = 0
        self._limit_bytes = limit_bytes
        self._head = b""
        #: Of the frame that is under way: what is to come, and, if it is a message to take out, what has come.
        self._left = 0
        self._pieces: list[Piece] | None = None
        self._come = 0
        self._mask = b""
        self._fragmented = False

    def feed(self, data: bytes) -> Iterator[MaskedBody | Piece]:
        """Take what came. Give messages, and between them what is to be passed on, in order."""
        if self._head:
            data, self._head = self._head + data, b""
        view, size = memoryview(data), len(data)
        at = passed = begin = 0
        while at < size:
            begin = at
            if self._pieces is None and not self._left:
                at = self._begin(data, at)
                if at < 0:
                    break
            count = min(self._left, size - at)
            self._left -= count
            if self._pieces is None:
                at += count
                continue
            if passed < begin:
                yield view[passed:begin]
            self._keep(self._pieces, view[at : at + count])
            passed = at = at + count
            if not self._left:
                pieces, self._pieces = self._pieces, None
                yield MaskedBody(pieces, self._mask)
        if at < 0:
            at, self._head = begin, data[begin:]
        if passed < at:
            yield view[passed:at]
        self._count_held(size)

    def whole(self, data: memoryview) -> MaskedBody | None:
        """Return the message that `data` is, from its first byte to its last; else None, and nothing is changed.

        Only as long as `data` stays what it is.
        """
        size = len(data)
        if self._head or self._left or self._fragmented or size < LARGE_HEAD or data[0] != _FIN | _BINARY:
            return None
        if data[1] != _MASKED | 127 or size != LARGE_HEAD + int.from_bytes(data[2:10], "big"):
            return None
        if size - LARGE_HEAD > self._limit_bytes:
            return None
        return MaskedBody((data[LARGE_HEAD:],), bytes(data[10:LARGE_HEAD]))

    def _keep(self, pieces: list[Piece], piece: memoryview) -> None:
        """Add a piece. Small ones are put together: each would take more memory beside what it holds than that is."""
        self._come += len(piece)
        last = pieces[-1] if pieces else b""
        if isinstance(last, bytearray) and len(last) < _SMALL:
            last += piece
        else:
            pieces.append(bytearray(piece) if self._left and len(piece) < _SMALL else piece)

    def _count_held(self, size: int) -> None:
        """Count what is unfinished. The last piece of `size` bytes must not keep much more in memory than counts."""
        self.held = len(self._head)
        if self._pieces is not None:
            if self._pieces and 2 * len(self._pieces[-1]) < size and isinstance(self._pieces[-1], memoryview):
                self._pieces[-1] = bytes(self._pieces[-1])
            self.held += _MASK_BYTES + self._come

    def _begin(self, data: bytes, at: int) -> int:
        """Look at the header of a frame; return where what follows it begins, negative if the header is incomplete.

        To what is passed on, the mask counts as payload.
        """
        if len(data) < at + 2:
            return -1
        first, second = data[at], data[at + 1]
        opcode, length, end = first & 0x0F, second & 0x7F, at + 2
        if first & _RESERVED or opcode not in _OPCODES or not second & _MASKED:
            self._left = sys.maxsize  # there are no frames any more
            return at
        if length > 125:
            start, end = end, end + _LENGTH_BYTES[length]
            if len(data) < end:
                return -1
            length = int.from_bytes(data[start:end], "big")
        if opcode == _BINARY and first & _FIN and not self._fragmented and length <= self._limit_bytes:
            if len(data) < end + _MASK_BYTES:
                return -1
            self._mask = data[end : end + _MASK_BYTES]
            self._left, self._pieces, self._come = length, [], 0
            return end + _MASK_BYTES
        if opcode in {_TEXT, _BINARY} or (opcode == _CONTINUATION and first & _FIN):
            self._fragmented = not first & _FIN
        self._left = _MASK_BYTES + length
        return end
