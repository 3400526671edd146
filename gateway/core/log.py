"""The decision log: one JSON-able line for every action, in action order.

Keys, where they apply: ``t_ns`` (when the engine decided), ``action``, ``stream`` or ``job``, ``category``, ``batch``
(frames), ``deadline_ns`` (absolute), ``reason``. Some actions add their own. Two runs that decide alike log alike, so
a log is also how the simulator and the live gateway are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from gateway.core.actions import (
    AcceptFrames,
    Action,
    Admitted,
    BatchLimited,
    DeliverFrames,
    DropFrames,
    LoadModel,
    ModelChanged,
    ModelRefused,
    PenaltyChanged,
    PlanStale,
    RefuseFrames,
    Rejected,
    RetryFrames,
    StartJob,
    StreamEnded,
    UnloadModel,
    WindowWidened,
)
from gateway.core.types import Category, Frame, Job
from gateway.core.verdict import Verdict

#: A category's name is made of its shape each time, which takes as long as the rest of a job's line.
_category: Callable[[Category], str] = lru_cache(maxsize=1_024)(str)


def entry(t_ns: int, action: Action) -> dict[str, Any]:
    """Return the log line of one action decided at `t_ns`."""
    return {"t_ns": t_ns, **_DESCRIBE[type(action)](action)}


def _of_promises(
    action: Admitted | Rejected | PlanStale | WindowWidened | StreamEnded | PenaltyChanged | BatchLimited,
) -> dict[str, Any]:
    line: dict[str, Any]
    match action:
        case Admitted():
            line = {"action": "admitted", "stream": action.stream_id, "category": str(action.category)}
            line |= {"name": action.name} if action.name else {}
            line |= _verdict(action.verdict)
        case Rejected():
            line = {"action": "rejected", "stream": action.stream_id} | _verdict(action.verdict)
        case PlanStale():
            line = {"action": "plan_stale", "stream": action.stream_id}
        case WindowWidened():
            line = {"action": "window_widened", "category": str(action.category), "window_ns": action.window_ns}
        case StreamEnded():
            line = {"action": "stream_ended", "stream": action.stream_id, "reason": action.reason}
        case PenaltyChanged():
            line = {
                "action": "penalty_changed",
                "category": str(action.category),
                "penalty_ns": action.penalty_ns,
                "shape": None if action.shape is None else list(action.shape),
                "reason": action.reason,
            }
        case BatchLimited():
            line = {
                "action": "batch_limited",
                "category": str(action.category),
                "batch": action.most,
                "limited_by": action.reason,
            } | _verdict(action.verdict)
    return line


def _accept(action: AcceptFrames) -> dict[str, Any]:
    return {"action": "accept_frames", "frames": _placed(action.frames)}


def _refuse(action: RefuseFrames) -> dict[str, Any]:
    return {"action": "refuse_frames", "stream": action.stream_id, "batch": action.count, "reason": action.reason}


def _retry(action: RetryFrames) -> dict[str, Any]:
    return {"action": "retry_frames", "job": action.job.id, "frames": _placed(action.frames)}


def _drop(action: DropFrames) -> dict[str, Any]:
    return {
        "action": "drop_frames",
        "frames": [[frame.stream_id, frame.seq] for frame in action.frames],
        "outcome": action.outcome.value,
        "reason": action.reason,
        "moved": [list(move) for move in action.moved],
    }


def _start(action: StartJob) -> dict[str, Any]:
    job = action.job
    return {"action": "start_job", **_job(job), "frames": [[frame.stream_id, frame.seq] for frame in job.frames]}


def _deliver(action: DeliverFrames) -> dict[str, Any]:
    job = action.job
    line = {
        "action": "deliver_frames",
        **_job(job),
        "started_ns": action.started_ns,
        "finished_ns": action.finished_ns,
        "expected_ns": job.execution_ns,
        "actual_ns": action.finished_ns - action.started_ns,
        "planned_end_ns": job.planned_end_ns,
        "outcomes": [outcome.value for outcome in action.outcomes],
    }
    if action.cause:
        line["cause"] = action.cause
    return line


def _of_model(action: LoadModel | UnloadModel | ModelChanged | ModelRefused) -> dict[str, Any]:
    line: dict[str, Any] = {"model": action.model, "reason": action.reason}
    match action:
        case LoadModel():
            return {"action": "load_model"} | line
        case UnloadModel():
            return {"action": "unload_model"} | line
        case ModelChanged():
            return {"action": "model_changed"} | line | {"state": action.state.value}
        case ModelRefused():
            memory = {} if action.memory is None else {"memory": action.memory.to_dict()}
            return {"action": "model_refused"} | line | memory


def _placed(frames: tuple[Frame, ...]) -> list[list[str | int]]:
    return [[frame.stream_id, frame.seq, frame.job, frame.deadline_ns] for frame in frames]


def _job(job: Job) -> dict[str, Any]:
    line = {
        "job": job.id,
        "category": _category(job.category),
        "batch": len(job.frames),
        "release_ns": job.release_ns,
        "deadline_ns": job.deadline_ns,
        "early": job.early,
    }
    if job.small:
        line["shape"] = list(job.small.shape)
    if job.warm_up:
        line["warm_up"] = job.warm_up
    if job.ahead:
        line["ahead"] = True
    return line


def _verdict(verdict: Verdict) -> dict[str, Any]:
    line: dict[str, Any] = {
        "test": verdict.test,
        "phase": verdict.phase,
        "utilization": round(verdict.utilization, 6),
        "horizon_ns": verdict.horizon_ns,
        "frames_checked": verdict.frames_checked,
        "worst_latency_ns": verdict.worst_latency_ns,
    }
    if verdict.reason is not None:
        line["reason"] = verdict.reason.value
    if verdict.memory is not None:
        line["memory"] = verdict.memory.to_dict()
    if verdict.swap is not None:
        line["swap"] = asdict(verdict.swap) | {"models": list(verdict.swap.models)}
    miss = verdict.first_miss
    if miss is not None:
        line["first_miss"] = {
            "category": str(miss.category),
            "streams": list(miss.streams),
            "batch": miss.frames,
            "late_ns": miss.late_ns,
        }
    return line


#: By type of action.
_DESCRIBE: dict[type[Any], Callable[[Any], dict[str, Any]]] = {
    AcceptFrames: _accept,
    RefuseFrames: _refuse,
    DropFrames: _drop,
    RetryFrames: _retry,
    StartJob: _start,
    DeliverFrames: _deliver,
    **dict.fromkeys((LoadModel, UnloadModel, ModelChanged, ModelRefused), _of_model),
    **dict.fromkeys(
        (Admitted, Rejected, PlanStale, WindowWidened, StreamEnded, PenaltyChanged, BatchLimited), _of_promises
    ),
}
