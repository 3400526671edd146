"""The OpenAPI document: FastAPI's, plus what it cannot see because it is not FastAPI's."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from gateway.api.answers import FrameOutcomes, FramesAccepted
from gateway.api.binary_results import BINARY_CONTENT, BINARY_HEADERS
from gateway.api.frames import ERRORS, PostFrames
from gateway.api.model_schemas import LoadRequest, PinRequest, UnloadRequest
from gateway.api.problems import PROBLEM_SCHEMA, V2, describe
from gateway.api.requests import StreamRequest
from gateway.api.v2.infer import PostInfer
from gateway.api.v2.openapi import post_infer, use_triton_errors
from gateway.api.v2.schemas import InferAnswer, InferCall, V2Error
from gateway.errors import (
    ArenaFull,
    FrameCancelled,
    FrameExpired,
    FrameFailed,
    ModelLoadFailed,
    ModelNotLoaded,
    NoRoomForModel,
    Stopping,
)

_REF = "#/components/schemas/{model}"


def install(app: FastAPI) -> None:
    """Make `app` serve the completed document."""
    original = app.openapi

    def completed() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(original())
        return app.openapi_schema

    app.openapi = completed  # type: ignore[method-assign]  # FastAPI's documented way


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = PROBLEM_SCHEMA
    requests = (StreamRequest, LoadRequest, UnloadRequest, PinRequest, InferCall)
    for model in (*requests, FrameOutcomes, FramesAccepted, InferAnswer, V2Error):
        _add_schema(schemas, model)
    document["paths"][PostFrames.path] = {"post": _post_frames()}
    document["paths"] |= {path: {"post": post_infer(path)} for path in (PostInfer.path, PostInfer.version_path)}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _replace_validation_answer(operation["responses"])
            if path.startswith(V2):
                use_triton_errors(operation["responses"])
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    return document


def _add_schema(schemas: dict[str, Any], model: type[BaseModel]) -> None:
    schema = model.model_json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    schemas[model.__name__] = schema


def _replace_validation_answer(responses: dict[str, Any]) -> None:
    """FastAPI documents its own form of a 422, which we never send."""
    answer = responses.get("422", {}).get("content", {})
    if answer.pop("application/json", None) is not None and not answer:
        responses["422"]["content"] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


def _with_binary(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the documentation of an answer with results, with their other form."""
    return {**answer, "headers": BINARY_HEADERS, "content": {**answer["content"], **BINARY_CONTENT}}


def _post_frames() -> dict[str, Any]:
    def answer(model: type[BaseModel], text: str) -> dict[str, Any]:
        schema = {"$ref": f"#/components/schemas/{model.__name__}"}
        return {"description": text, "content": {"application/json": {"schema": schema}}}

    absent = (ModelNotLoaded, NoRoomForModel, ModelLoadFailed)
    problems = describe(*ERRORS, FrameExpired, FrameFailed, FrameCancelled, *absent, ArenaFull, Stopping)
    return {
        "tags": ["frames"],
        "summary": "Post Frames",
        "description": (
            "One or more raw frames back to back, each `frame_bytes` long; any content type is taken. Waits until "
            "all of them have ended; a client that goes away while it waits cancels its frames. A frame that was "
            "alone and did not get a result is a problem (502, 503, 504); of several, each says its own outcome."
        ),
        "operationId": "post_frames",
        "parameters": [
            {"name": "stream_id", "in": "path", "required": True, "schema": {"type": "string"}},
            {
                "name": "wait",
                "in": "query",
                "required": False,
                "description": "`false`: answer at once; ask for results later.",
                "schema": {"type": "boolean", "default": True},
            },
            {
                "name": "Framegate-Timestamp-Ms",
                "in": "header",
                "required": False,
                "description": "The sender's own time of the frames. It comes back with their results; nothing else "
                "depends on it.",
                "schema": {"type": "number"},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        "responses": {
            "200": _with_binary(answer(FrameOutcomes, "All frames have ended.")),
            "202": answer(FramesAccepted, "The frames are in."),
            **{str(status): text for status, text in problems.items()},
        },
    }
