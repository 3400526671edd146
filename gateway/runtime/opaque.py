"""Calls that the gateway runs without looking into them: one call, one job, its bytes as they came.

What cannot be cut into frames and put together with others (several inputs, BYTES, a shape that is not profiled) still
takes its turn on the device by the engine's rules. To the engine such a call is one best-effort frame of a category of
its model; in the arena that frame is a *handle*, 8 bytes, by which the executor finds the call here.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.types import Category, ServiceClass
from gateway.errors import BestEffortFull
from gateway.triton.types import BackendError, RawCall, Tensor

#: The datatype of their categories, which no tensor has.
OPAQUE = "OPAQUE"
HANDLE_BYTES = 8
_RETRY_AFTER_S = 1.0


@dataclass(slots=True, eq=False)
class OpaqueCall:
    """One call, from its arrival until somebody has its answer.

    Attributes:
        raw: What is sent.
        size: Bytes of its inputs.
        outputs: Triton's answer; None before it.
        error: Why there is none.
    """

    raw: RawCall
    size: int
    outputs: tuple[Tensor, ...] | None = None
    error: BackendError | None = None


class OpaqueCalls:
    """Those that have not ended.

    Args:
        limit_bytes: What their inputs may take together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.held_bytes = 0
        self._limit_bytes = limit_bytes
        self._calls: dict[bytes, OpaqueCall] = {}
        self._next = 0

    def __len__(self) -> int:
        """Number of calls."""
        return len(self._calls)

    def put(self, raw: RawCall) -> tuple[bytes, OpaqueCall]:
        """Keep a call; return its handle. Raises `BestEffortFull` when its bytes do not fit beside the others'."""
        size = sum(len(tensor.data) for tensor in raw.inputs)
        if self.held_bytes + size > self._limit_bytes:
            raise BestEffortFull(
                f"Calls that wait hold {self.held_bytes} bytes, and {self._limit_bytes} are allowed "
                "(FRAMEGATE_LIMITS__INFLIGHT_BODY_BYTES).",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._next += 1
        handle = self._next.to_bytes(HANDLE_BYTES, "little")
        call = self._calls[handle] = OpaqueCall(raw, size)
        self.held_bytes += size
        return handle, call

    def find(self, handle: bytes) -> OpaqueCall | None:
        """Return a kept call; None when nobody waits for it any more."""
        return self._calls.get(handle)

    def discard(self, handle: bytes) -> None:
        """Forget a call."""
        self.held_bytes -= self._calls.pop(handle).size


def opaque_category(model: str, version: str) -> Category:
    """Return the category of a model's opaque calls."""
    return Category(model, version, (HANDLE_BYTES,), OPAQUE, ServiceClass.BEST_EFFORT)
