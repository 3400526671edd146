"""What came of a call: one answer out of the results of its rows, or one error."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.jobs import WORKER_LOST
from gateway.core.types import Outcome
from gateway.errors import (
    BadInference,
    FrameCancelled,
    FrameExpired,
    FrameFailed,
    FramegateError,
    TritonUnavailable,
)
from gateway.runtime.model_errors import of_frame
from gateway.runtime.results import FrameResult
from gateway.triton.tensors import from_array
from gateway.triton.types import BackendError, Tensor

_UNANSWERED: dict[Outcome, type[FramegateError]] = {
    Outcome.EXPIRED: FrameExpired,
    Outcome.FAILED: FrameFailed,
    Outcome.CANCELLED: FrameCancelled,
}
#: Triton's answer to a call that it would not run, whoever sends it.
_CALLERS_FAULT = frozenset({"INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "UNIMPLEMENTED"})
_RETRY_AFTER_S = 1.0


def check_answered(results: Sequence[FrameResult]) -> None:
    """Raise for the first row that has no outputs."""
    for row, result in enumerate(results):
        if (missing := of_frame(result.reason)) is not None and result.outcome is Outcome.FAILED:
            raise missing
        error = _UNANSWERED.get(result.outcome)
        if result.reason == WORKER_LOST:
            raise TritonUnavailable(
                "Triton was lost while it worked on this call.", retry_after_s=_RETRY_AFTER_S, reason=result.reason
            )
        if error is not None:
            which = f"row {row} of {len(results)}: " if len(results) > 1 else ""
            said = f"{error.title}. After {result.queue_ms:.0f} ms, {which}{result.reason}"
            raise error(said, outcome=result.outcome.value, reason=result.reason, queue_ms=result.queue_ms)


def failure(error: BackendError) -> FramegateError:
    """Return what Triton's refusal of an opaque call is to its caller."""
    if error.code in _CALLERS_FAULT or error.not_served:
        return BadInference(error.message)
    if error.unreachable:
        return TritonUnavailable(f"Triton was lost: {error.message}", retry_after_s=_RETRY_AFTER_S)
    return FrameFailed(error.message)


def join(name: str, datatype: str, results: Sequence[FrameResult], *, batched: bool) -> Tensor:
    """Return the rows of one output as one tensor, with a batch axis if its model has one.

    Raises:
        FrameFailed: They have different shapes.
    """
    rows = [(result.outputs or {})[name] for result in results]
    shape = rows[0].shape
    if any(row.shape != shape for row in rows):
        raise FrameFailed(f"Output {name!r} has rows of different shapes: ask for one row in a call.")
    data = from_array(datatype, rows[0]) if len(rows) == 1 else b"".join(from_array(datatype, row) for row in rows)
    return Tensor(name, datatype, (len(rows), *shape) if batched else shape, data)
