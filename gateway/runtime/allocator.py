"""First fit with coalescing over one range of addresses: plain arithmetic, no memory.

Blocks are few (one per open, waiting or running batch), so a sorted list of free ranges is as quick as
anything cleverer: about 1 us per call at a dozen ranges.
"""

from __future__ import annotations

from bisect import bisect_left

#: One cache line: no two blocks share one, and every block start suits any tensor element.
ALIGNMENT = 64


def aligned(size: int) -> int:
    """Return `size` rounded up to `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Allocator:
    """Hands out non-overlapping blocks of ``[0, size)``.

    Invariant: free ranges are sorted, disjoint and never adjacent (adjacent ones are one).
    """

    def __init__(self, size: int) -> None:
        self.size = size // ALIGNMENT * ALIGNMENT
        self._starts = [0] if self.size else []
        self._ends = [self.size] if self.size else []
        self._blocks: dict[int, int] = {}

    @property
    def free_bytes(self) -> int:
        """Bytes in no block; perhaps in several ranges."""
        return sum(self._ends) - sum(self._starts)

    @property
    def blocks(self) -> int:
        """Number of blocks handed out and not yet freed."""
        return len(self._blocks)

    def allocate(self, size: int) -> int | None:
        """Return the start of a block of at least `size` bytes, or None when no free range holds it."""
        if size < 1:
            raise ValueError(f"a block holds at least 1 byte, not {size}")
        size = aligned(size)
        for index, start in enumerate(self._starts):
            if self._ends[index] - start >= size:
                self._blocks[start] = size
                if self._ends[index] - start == size:
                    del self._starts[index], self._ends[index]
                else:
                    self._starts[index] = start + size
                return start
        return None

    def free(self, start: int) -> None:
        """Give a block back. Raises KeyError when no block starts there: a second free is a fault."""
        end = start + self._blocks.pop(start)
        index = bisect_left(self._starts, start)
        joins_next = index < len(self._starts) and self._starts[index] == end
        joins_previous = index > 0 and self._ends[index - 1] == start
        if joins_previous and joins_next:
            self._ends[index - 1] = self._ends[index]
            del self._starts[index], self._ends[index]
        elif joins_previous:
            self._ends[index - 1] = end
        elif joins_next:
            self._starts[index] = start
        else:
            self._starts.insert(index, start)
            self._ends.insert(index, end)
