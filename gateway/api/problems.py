"""Problem documents (RFC 9457): the only place where an error becomes an answer.

``docs/api.md`` lists the codes. `register` installs the handlers, so that also a path that does not
exist, a method that is not allowed and a body that does not parse are answered in this form; `LastHandler`
does it for everything that nobody foresaw.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api.caller import caller_of
from gateway.errors import FramegateError, MethodNotAllowed, NotFound, UnsupportedMediaType, ValidationFailed
from gateway.wording import in_words

logger = logging.getLogger(__name__)

Parsed = TypeVar("Parsed", bound=BaseModel)

PROBLEM_JSON = "application/problem+json"
#: Where the Open Inference Protocol is.
V2 = "/v2"
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
#: With one of these an answer begins: after it there is no other.
_STARTS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
#: More faults than this in one body help nobody.
MAX_LISTED_ERRORS = 20
#: Names of unknown fields are the caller's text: cut, so that an answer stays small.
MAX_ECHOED_CHARS = 80


def document(error: FramegateError) -> dict[str, Any]:
    """Return the problem document of `error`."""
    return {
        "type": f"urn:framegate:problem:{error.code}",
        "title": error.title,
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        **error.members,
    }


def problem_response(error: FramegateError, headers: Mapping[str, str] | None = None, *, path: str = "") -> Response:
    """Return the answer for `error` at `path`; `Retry-After` is set if the error knows when to come back.

    Under ``/v2`` it has Triton's form, whose `error` is what Triton's clients show, with `code` and evidence beside it.
    """
    merged = dict(headers or {})
    if error.retry_after_s is not None:
        merged["Retry-After"] = str(math.ceil(error.retry_after_s))
    of_triton = path == V2 or path.startswith(f"{V2}/")
    content = (
        {"error": error.detail, "code": error.code, "status": error.status, **error.members}
        if of_triton
        else document(error)
    )
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY, default=str)
    return Response(body, error.status, merged, media_type="application/json" if of_triton else PROBLEM_JSON)


def validation_failed(faults: Iterable[Mapping[str, Any]], model: type[BaseModel] | None = None) -> ValidationFailed:
    """Return the error for pydantic's `faults` with what was to be a `model`.

    The values themselves are not echoed: they may be huge, or have no form in JSON (NaN).
    """
    listed = []
    for fault in faults:
        path = ".".join(str(step)[:MAX_ECHOED_CHARS] for step in fault["loc"]) or "body"
        listed.append({"field": path, "message": in_words(fault, model)[:500], "type": str(fault["type"])})
        if len(listed) == MAX_LISTED_ERRORS:
            break
    first = listed[0]
    more = f" (and {len(listed) - 1} more)" if len(listed) > 1 else ""
    return ValidationFailed(f"{first['field']}: {first['message']}{more}", errors=listed)


def from_pydantic(error: ValidationError, model: type[BaseModel] | None = None) -> ValidationFailed:
    """Return the error for a body that one of our schemas, `model`, refused."""
    return validation_failed(error.errors(include_url=False, include_context=False, include_input=False), model)


async def read_json(request: Request, model: type[Parsed]) -> Parsed:
    """Parse the body of a call.

    Raises:
        UnsupportedMediaType: It is not sent as JSON. A page of another site can make a browser send
            anything else without asking, so nothing else is taken.
        ValidationFailed: It is not a valid `model`.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType("Send the body with `Content-Type: application/json`.")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        raise from_pydantic(error, model) from None


def _from_http(error: HTTPException, request: Request) -> FramegateError:
    """Return ours for what the router raises."""
    if error.status_code == HTTPStatus.NOT_FOUND:
        return NotFound("See /docs for the calls that this gateway answers.")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return MethodNotAllowed(f"{request.method} is not allowed here; {_allowed(request) or 'another method'} is.")
    if error.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return ValidationFailed(str(error.detail)[:500], errors=[])
    return FramegateError()


def _allowed(request: Request) -> str:
    """Return the methods of the path. The router names those of the first route that it found, of perhaps several."""

    def leads_somewhere(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return ", ".join(method for method in _METHODS if leads_somewhere(method))


def register(app: FastAPI) -> None:
    """Install the handlers on `app`."""

    @app.exception_handler(FramegateError)
    async def on_error(request: Request, error: FramegateError) -> Response:
        return problem_response(error, path=request.url.path)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if "Allow" in headers:
            headers["Allow"] = _allowed(request)
        return problem_response(_from_http(error, request), headers, path=request.url.path)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        return problem_response(validation_failed(error.errors()), path=request.url.path)


class LastHandler:
    """ASGI middleware: an exception that nobody foresaw is logged once and answered without detail.

    A WebSocket that is open already is closed with 1011.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, and answer 500 in its stead if it raises."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] in _STARTS
            await send(message)

        caller = caller_of(scope) if scope["type"] == "http" else None
        try:
            await self._app(scope, receive, watched if caller is None else send)
        except Exception:
            logger.exception("unexpected error while answering %s", scope.get("method", "a WebSocket"))
            if not started and (caller is None or caller.status is None):
                answer = problem_response(FramegateError("See the gateway's log."), path=scope["path"])
                await answer(scope, receive, send)
            elif scope["type"] == "websocket":
                with suppress(OSError):  # gone already
                    await send({"type": "websocket.close", "code": 1011, "reason": FramegateError.code})


def describe(*errors: type[FramegateError]) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's `responses` for these errors: one entry per status, the codes in its description."""
    by_status: dict[int | str, list[type[FramegateError]]] = {}
    for error in errors:
        by_status.setdefault(error.status, []).append(error)
    reference = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {
            "description": "; ".join(f"`{error.code}`: {error.title}" for error in group),
            "content": {PROBLEM_JSON: reference},
        }
        for status, group in by_status.items()
    }


#: The schema that `describe` refers to.
PROBLEM_SCHEMA: dict[str, Any] = {
    "title": "Problem",
    "description": "RFC 9457 problem document. Further members carry the evidence of the given code.",
    "type": "object",
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "Stable; what programs should test."},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "code", "detail"],
    "additionalProperties": True,
}
