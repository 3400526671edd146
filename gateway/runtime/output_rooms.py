"""Room in the arena for what Triton writes: large outputs whose size is known before come through shared memory.

The block of a call is free again when Triton has answered, whatever it said. Without an answer (the connection broke,
or nobody waits any more) it may still be written to, and whoever had it next would find outputs among his frames. So it
is kept until our memory is opened by a Triton anew: then the one that could write is gone. Until then outputs come
inside answers. At most two blocks are ever kept: of the running job, and of one that was sent ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gateway.errors import ArenaFull
from gateway.runtime.allocator import aligned
from gateway.runtime.arena import Arena
from gateway.triton.tensors import ELEMENT_BYTES
from gateway.triton.types import BackendError, ModelMetadata, OutputLayout, OutputRoom

#: What is not more comes in the answer, which then costs less: 77 against 94 us of CPU time a call at 4 kB, the same at
#: 64 kB, up to four times as much at 1.6 MB (docs/decisions/0025-lean-transport.md).
WORTH_BYTES = 64 << 10
#: So much of the arena stays for frames, whatever outputs need.
_LEFT_FOR_FRAMES = 0.5


def layout_of(model: ModelMetadata, frames: int) -> OutputLayout | None:
    """Return where the outputs of `frames` frames go; None when all are to come in the answer."""
    rows = frames if model.max_batch_size > 0 else 1
    places: dict[str, tuple[int, int]] = {}
    others: list[str] = []
    end = 0
    for tensor in model.outputs:
        size = rows * math.prod(tensor.shape) * ELEMENT_BYTES.get(tensor.datatype, 0)
        if size > 0 and min(tensor.shape, default=1) > 0:
            places[tensor.name] = (end, size)
            end = aligned(end + size)
        else:
            others.append(tensor.name)
    return OutputLayout(places, tuple(others), end) if end > WORTH_BYTES else None


class OutputRooms:
    """See the module's docstring.

    Attributes:
        keeps: A block may still be written to, so there are no rooms.
    """

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._layouts: dict[tuple[str, str, int], tuple[ModelMetadata, OutputLayout | None]] = {}
        self._refused: dict[tuple[str, str], ModelMetadata] = {}
        self._kept = ExitStack()
        self.keeps = False

    def wanted(self, model: ModelMetadata, frames: int) -> bool:
        """Whether outputs of so many frames should go to a room."""
        return self._layout(model, frames) is not None

    @contextmanager
    def lend(self, model: ModelMetadata, frames: int) -> Iterator[OutputRoom | None]:
        """Give the room for one call, which is made within; None when its outputs are to come in the answer."""
        layout = self._layout(model, frames)
        stack = ExitStack()
        room = None if layout is None or self.keeps else self._find(layout, stack)
        answered = False
        try:
            yield room
            answered = True
        except BackendError as error:
            answered = not error.unreachable
            raise
        finally:
            if answered or room is None:
                stack.close()
            else:
                self._kept.callback(stack.close)
                self.keeps = True

    def refuse(self, model: ModelMetadata) -> None:
        """The model's outputs are not what it says: from now on they come in answers, until it is loaded anew."""
        self._refused[model.name, model.version] = model

    def nobody_writes(self) -> None:
        """No Triton has a call of ours any more: what was kept is free."""
        self._kept.close()
        self.keeps = False

    def _find(self, layout: OutputLayout, stack: ExitStack) -> OutputRoom | None:
        arena = self._arena
        if arena.free_bytes - layout.size < _LEFT_FOR_FRAMES * arena.region.size:
            return None
        try:
            span = stack.enter_context(arena.lend(layout.size, clear=False))
        except ArenaFull:  # what is free lies in pieces
            return None
        return OutputRoom(arena.region.name, span.block, span.offset, layout)

    def _layout(self, model: ModelMetadata, frames: int) -> OutputLayout | None:
        if self._refused.get((model.name, model.version)) is model:
            return None
        key = (model.name, model.version, frames)
        known = self._layouts.get(key)
        if known is None or known[0] is not model:  # it was loaded anew, perhaps with other outputs
            known = self._layouts[key] = model, layout_of(model, frames)
        return known[1]
