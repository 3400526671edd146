"""Bodies of frames as they came: in pieces, and masked over a WebSocket. They are copied once, into the frames' slots.

A frame may lie in several pieces, and a piece hold several frames. Nothing is joined, so a body of any size costs no
memory of its own besides the pieces in which the network gave it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: A piece of a body, of bytes.
Piece = bytes | bytearray | memoryview

#: XOR runs over rows of this many bytes: long enough that numpy's own share does not show, short enough to stay in the
#: fastest cache beside what it is applied to.
_ROW_BYTES = 4_096


class Body:
    """The bytes of one or more frames, back to back, as they came.

    Attributes:
        size: All bytes, taken or not.
    """

    __slots__ = ("_index", "_pieces", "_start", "size")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.size = sum(map(len, pieces))
        self._pieces = pieces
        self._index = self._start = 0

    def fill(self, target: memoryview) -> None:
        """Take the next ``len(target)`` bytes, and write them to `target`. Raises `IndexError` if there are not enough.

        Args:
            target: Of bytes; one frame's slot.
        """
        done, size = 0, len(target)
        while done < size:
            piece = self._pieces[self._index]
            count = min(len(piece) - self._start, size - done)
            if count == len(piece) == size:
                target[:] = piece  # one piece, one frame
            else:
                target[done : done + count] = memoryview(piece)[self._start : self._start + count]
            done += count
            self._advance(count)

    def _advance(self, count: int) -> None:
        self._start += count
        if self._start == len(self._pieces[self._index]):
            self._index += 1
            self._start = 0


class MaskedBody(Body):
    """A WebSocket message: it is unmasked as it is copied.

    Args:
        pieces: Of the payload, as it came.
        mask: 4 bytes. Byte i of the payload is to be XORed with byte ``i % 4`` (RFC 6455, section 5.3).
    """

    __slots__ = ("_done", "_mask")

    def __init__(self, pieces: Sequence[Piece], mask: bytes) -> None:
        super().__init__(pieces)
        self._done = 0
        self._mask = mask

    def fill(self, target: memoryview) -> None:
        """See `Body`."""
        done, size = 0, len(target)
        while done < size:
            piece = self._pieces[self._index]
            count = min(len(piece) - self._start, size - done)
            if count:
                self._unmask(memoryview(piece)[self._start : self._start + count], target[done : done + count])
            done += count
            self._done += count
            self._advance(count)

    def _unmask(self, source: memoryview, target: memoryview) -> None:
        phase, size = self._done % 4, len(source)
        if size >= _ROW_BYTES and not size % 8:
            words, into = np.frombuffer(source, np.uint64), np.frombuffer(target, np.uint64)
            if words.flags.aligned and into.flags.aligned:  # as those of cameras: two thirds of the time
                key = int.from_bytes((self._mask * 3)[phase : phase + 8], sys.byteorder)
                np.bitwise_xor(words, np.uint64(key), out=into)
                return
        _xor(np.frombuffer(source, np.uint8), self._mask[phase:] + self._mask[:phase], np.frombuffer(target, np.uint8))


def _xor(source: npt.NDArray[np.uint8], mask: bytes, target: npt.NDArray[np.uint8]) -> None:
    row = np.frombuffer(mask * (_ROW_BYTES // 4), np.uint8)
    rows = len(source) // _ROW_BYTES
    whole = rows * _ROW_BYTES
    if rows:
        shape = (rows, _ROW_BYTES)
        np.bitwise_xor(source[:whole].reshape(shape), row, out=target[:whole].reshape(shape))
    if whole < len(source):
        np.bitwise_xor(source[whole:], row[: len(source) - whole], out=target[whole:])


#: What `body_of` takes.
Data = Piece | list[Piece] | tuple[Piece, ...] | Body


def body_of(data: Data) -> Body:
    """Return what is given as a body: its pieces in order, one buffer of whatever kind, or a body already."""
    if isinstance(data, list | tuple):
        return Body(data)
    if isinstance(data, bytes):
        return Body((data,))
    return data if isinstance(data, Body) else Body((memoryview(data).cast("B"),))


def joined(pieces: Sequence[Piece]) -> bytes:
    """Return the pieces in one; a single one of bytes is not copied."""
    if len(pieces) == 1 and isinstance(pieces[0], bytes):
        return pieces[0]
    return b"".join(pieces)
