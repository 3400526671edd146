"""Outputs of ended frames, kept for callers that ask later: one budget of bytes over all streams.

What is known of a frame is small and stays in its stream's ring; its outputs can be a hundred times as large, and
how many streams there will be is not known. So they lie here, in the order in which frames ended, and when the
budget is used up the oldest go, whose stream ever they are of.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from gateway.runtime.results import FrameResult

#: `FrameResult.reason` of a frame whose outputs went to make room. Its outcome stays.
OUTPUTS_DROPPED = "outputs_dropped"
#: What Python and numpy add to one array of outputs: without it, the budget would not bound many tiny ones.
_ARRAY_BYTES = 256


class KeptOutputs:
    """Outputs by stream and `seq`.

    Attributes:
        bytes: What they take, Python's own share included; never above `limit_bytes`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.bytes = 0
        self.limit_bytes = limit_bytes
        self._held: OrderedDict[tuple[str, int], tuple[dict[str, NDArray[Any]], int]] = OrderedDict()

    def put_away(self, result: FrameResult) -> FrameResult:
        """Take the outputs of a result and return it without them."""
        if result.outputs is None:
            return result
        size = size_of(result)
        self._held[result.stream_id, result.seq] = (result.outputs, size)
        self.bytes += size
        while self.bytes > self.limit_bytes:
            self.bytes -= self._held.popitem(last=False)[1][1]
        return replace(result, outputs=None, reason=OUTPUTS_DROPPED)

    def complete(self, result: FrameResult) -> FrameResult:
        """Return what `put_away` returned with its outputs, or as it is if they are gone."""
        held = self._held.get((result.stream_id, result.seq))
        return result if held is None else replace(result, outputs=held[0], reason="")

    def discard(self, result: FrameResult) -> None:
        """Nobody can ask for this result any more."""
        held = self._held.pop((result.stream_id, result.seq), None)
        if held is not None:
            self.bytes -= held[1]


def size_of(result: FrameResult) -> int:
    """Return what the outputs of a result take in memory, in bytes."""
    return sum(_size(array) for array in (result.outputs or {}).values())


def _size(array: NDArray[Any]) -> int:
    size = array.nbytes + _ARRAY_BYTES
    return size + sum(sys.getsizeof(element) for element in array.flat) if array.dtype.hasobject else size
