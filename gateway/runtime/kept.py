"""Outputs of ended frames, kept for callers that ask later: one budget of bytes over all streams.

What is known of a frame is small and stays in its stream's ring; its outputs can be a hundred times as large, and
how many streams there will be is not known. So they lie here, in the order in which frames ended, and when the
budget is used up the oldest go, whose stream ever they are of.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from gateway.runtime.results import FrameResult

#: `FrameResult.reason` of a frame whose outputs went to make room. Its outcome stays.
OUTPUTS_DROPPED = "outputs_dropped"
#: What Python and numpy add to one array of outputs: without it, the budget would not bound many tiny ones.
_ARRAY_BYTES = 256


@dataclass(slots=True, eq=False)
class Kept:
    """A result that is kept. `size` is what counts of its outputs; 0 if it has none, or none any more."""

    result: FrameResult
    size: int = 0


class KeptOutputs:
    """The outputs of all that is kept.

    Attributes:
        bytes: What they take, Python's own share included; never above `limit_bytes`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.bytes = 0
        self.limit_bytes = limit_bytes
        self._held: OrderedDict[Kept, None] = OrderedDict()

    def put_away(self, result: FrameResult) -> Kept:
        """Keep a result. Where there is no room, the oldest lose their outputs; who has them already keeps them."""
        kept = Kept(result)
        if result.outputs is not None:
            kept.size = size_of(result)
            self.bytes += kept.size
            self._held[kept] = None
            while self.bytes > self.limit_bytes:
                oldest, _ = self._held.popitem(last=False)
                self.bytes -= oldest.size
                oldest.size = 0
                oldest.result = replace(oldest.result, outputs=None, reason=OUTPUTS_DROPPED)
        return kept

    def discard(self, kept: Kept) -> None:
        """Nobody can ask for this result any more."""
        if kept.size:
            del self._held[kept]
            self.bytes -= kept.size
            kept.size = 0


def size_of(result: FrameResult) -> int:
    """Return what the outputs of a result take in memory, in bytes."""
    size = 0
    for array in (result.outputs or {}).values():
        size += _size(array)
    return size


def _size(array: NDArray[Any]) -> int:
    size = array.nbytes + _ARRAY_BYTES
    return size + sum(sys.getsizeof(element) for element in array.flat) if array.dtype.hasobject else size
