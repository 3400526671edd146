"""The engine's refusal of frames as the error that answers their sender."""

from __future__ import annotations

from gateway.core.actions import RefuseFrames
from gateway.core.types import NS_PER_MS, NS_PER_S
from gateway.errors import BestEffortFull, EngineFailed, FramegateError, FrameSurplus
from gateway.runtime.results import StreamRecord

#: A queue of best effort moves on with every job; nobody knows how fast.
_FULL_RETRY_S = 1.0


def refusal(action: RefuseFrames, record: StreamRecord, now_ns: int, max_waiting: int) -> FramegateError:
    """Return what to raise for `action` of the stream of `record`; `max_waiting`: of best effort."""
    if action.reason == "surplus":
        return _surplus(action, record, now_ns)
    if action.reason == "best_effort_full":
        return BestEffortFull(
            f"{max_waiting} frames without a promise may wait at a time (FRAMEGATE_BEST_EFFORT__MAX_WAITING); with the "
            f"{action.count} of this call there would be more.",
            retry_after_s=_FULL_RETRY_S,
            stream_id=record.stream_id,
        )
    return EngineFailed(f"The frames of stream {record.stream_id} were refused: {action.reason}.")


def _surplus(action: RefuseFrames, record: StreamRecord, now_ns: int) -> FrameSurplus:
    spec = record.spec
    frames = "One frame" if spec.burst == 1 else f"{spec.burst} frames"
    contract = f"{frames} may come in {spec.period_ns / NS_PER_MS:g} ms, up to {spec.jitter_ns / NS_PER_MS:g} ms late"
    if action.retry_ns is None:
        said = f"{contract}; {action.count} never come together. Declare `burst`, or send them one by one."
        return FrameSurplus(said, stream_id=record.stream_id, retry_after_ms=None)
    early_ns = max(1, action.retry_ns - now_ns)
    return FrameSurplus(
        f"{contract}; this came {early_ns / NS_PER_MS:.1f} ms too early. Declare `burst` or more `jitter_ms` if the "
        f"camera sends like that.",
        retry_after_s=early_ns / NS_PER_S,
        stream_id=record.stream_id,
        retry_after_ms=early_ns / NS_PER_MS,
    )
