"""The infer calls in the OpenAPI document: FastAPI does not see them."""

from __future__ import annotations

from typing import Any

from gateway.api.problems import PROBLEM_JSON, describe
from gateway.errors import (
    ArenaFull,
    BadInference,
    BestEffortFull,
    BodyTooLarge,
    DeadlineInfeasible,
    FrameCancelled,
    FrameExpired,
    FrameFailed,
    ModelLoadFailed,
    ModelNotLoaded,
    NoRoomForModel,
    NotProfiled,
    NotSchedulable,
    NotSupported,
    Stopping,
    TritonUnavailable,
    UnknownModel,
    UnsupportedMediaType,
    UploadsFull,
    UploadTimeout,
)

_ERRORS = (
    BadInference,
    NotSupported,
    UnknownModel,
    UploadTimeout,
    ModelNotLoaded,
    NoRoomForModel,
    ModelLoadFailed,
    NotProfiled,
    NotSchedulable,
    BodyTooLarge,
    UnsupportedMediaType,
    DeadlineInfeasible,
    FrameFailed,
    FrameCancelled,
    TritonUnavailable,
    ArenaFull,
    BestEffortFull,
    UploadsFull,
    Stopping,
    FrameExpired,
)
_DESCRIPTION = (
    "The Open Inference Protocol, with Triton's binary tensor data: after the JSON come the bytes of inputs that say "
    "`binary_data_size`, and the header `Inference-Header-Content-Length` says how long the JSON is. A client that "
    "goes away while it waits cancels its call."
)


def post_infer(path: str) -> dict[str, Any]:
    """Return the operation of an infer call at `path`."""
    names = [name for name in ("model", "version") if f"{{{name}}}" in path]
    length = {"name": "Inference-Header-Content-Length", "in": "header", "schema": {"type": "integer", "minimum": 1}}
    return {
        "tags": ["open inference protocol"],
        "summary": "Infer",
        "description": _DESCRIPTION,
        "operationId": "_".join(["infer", *names[1:]]),
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
            {**length, "required": False},
        ],
        "requestBody": {"required": True, "content": _content("InferCall")},
        "responses": {
            "200": {
                "description": "All outputs, or those that were asked for.",
                "headers": {length["name"]: {"schema": length["schema"]}},
                "content": _content("InferAnswer"),
            },
            **{str(status): text for status, text in describe(*_ERRORS).items()},
        },
    }


def _content(model: str) -> dict[str, Any]:
    return {
        "application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    }


def use_triton_errors(responses: dict[str, Any]) -> None:
    """Let the errors of an operation have the form that they have under ``/v2``."""
    for response in responses.values():
        if response.get("content", {}).pop(PROBLEM_JSON, None) is not None:
            response["content"]["application/json"] = {"schema": {"$ref": "#/components/schemas/V2Error"}}
