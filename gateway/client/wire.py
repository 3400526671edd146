"""How the SDK writes requests and reads answers: pure functions, no connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import orjson

from gateway.client.problems import FRAME_OUTCOMES, ProblemError, problem
from gateway.client.types import FrameResult, StreamHandle, StreamInfo

Frame = npt.NDArray[Any] | bytes | bytearray | memoryview


def raise_for_problem(answer: httpx.Response) -> None:
    """Raise the `ProblemError` that `answer` stands for, if it is an error."""
    if not answer.is_success:
        raise problem_of(answer.status_code, answer.content, answer.headers.get("retry-after"))


def problem_of(status: int, body: bytes, retry_after: str | None) -> ProblemError:
    """Return the exception for an answer that is an error; `retry_after` is its header."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        document = {"detail": body[:500].decode(errors="replace")}
    if (after_ms := document.get("retry_after_ms")) is not None:  # finer than the header
        return problem(status, document, after_ms / 1e3)
    return problem(status, document, float(retry_after) if retry_after and retry_after.isdigit() else None)


def stream_body(
    model: str,
    shape: Sequence[int],
    deadline_ms: float,
    *,
    fps: float | None,
    period_ms: float | None,
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the body of a registration.

    Raises:
        ValueError: Not exactly one of `fps` and `period_ms` is given.
    """
    if (fps is None) == (period_ms is None):
        raise ValueError("give either fps or period_ms")
    rate = {"fps": fps} if fps is not None else {"period_ms": period_ms}
    return {"model": model, "shape": list(shape), "deadline_ms": deadline_ms, **rate, **fields}


def join_frames(stream: StreamHandle, frames: Sequence[Frame]) -> bytes:
    """Return the frames back to back; arrays must have the stream's shape.

    Raises:
        ValueError: No frame, or an array of another shape.
    """
    if not frames:
        raise ValueError("there is no frame to send")
    for frame in frames:
        if isinstance(frame, np.ndarray) and frame.shape != stream.shape:
            raise ValueError(f"a frame has shape {frame.shape}, the stream has {stream.shape}")
    return b"".join(frame.tobytes() if isinstance(frame, np.ndarray) else bytes(frame) for frame in frames)


def results_of(answer: httpx.Response) -> list[FrameResult]:
    """Read the results of an answer, in JSON or with the bytes of outputs behind it.

    Raises:
        ProblemError: It is an error.
        ValueError: The bytes are not those that the JSON tells of.
    """
    raise_for_problem(answer)
    body, json_bytes = answer.content, answer.headers.get("inference-header-content-length")
    if json_bytes is None:
        return [FrameResult.from_json(entry) for entry in orjson.loads(body)["results"]]
    rest = memoryview(body)
    head, rest = rest[: int(json_bytes)], rest[int(json_bytes) :]
    results = orjson.loads(head)["results"]
    for result in results:
        for output in (result["outputs"] or {}).values():
            size = output["parameters"]["binary_data_size"]
            output["data"], rest = rest[:size], rest[size:]
    return [FrameResult.from_json(entry) for entry in results]


def result_of_problem(error: ProblemError) -> FrameResult:
    """Return the one frame's result, which the problem document may carry in full."""
    document = error.document
    carried = document.get("result") or next(iter(document.get("results") or ()), None) or document
    return FrameResult.from_json({"reason": error.detail, **carried, "outcome": FRAME_OUTCOMES[error.code]})


def stream_info(document: Mapping[str, Any]) -> StreamInfo:
    """Read a stream's state and counts."""
    return StreamInfo(
        stream_id=str(document["stream_id"]),
        name=str(document["name"]),
        state=str(document["state"]),
        accepted=int(document["accepted"]),
        outcomes={str(outcome): int(count) for outcome, count in document["outcomes"].items()},
        demoted=int(document.get("demoted", 0)),
        refused={str(reason): int(count) for reason, count in document.get("refused", {}).items()},
        worst_latency_ms=document.get("worst_latency_ms"),
        observed_worst_latency_ms=document.get("observed_worst_latency_ms"),
        raw=document,
    )


def stream_id(stream: StreamHandle | str) -> str:
    """Return the id of a stream that was named in either way."""
    return stream if isinstance(stream, str) else stream.stream_id
