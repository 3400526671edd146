"""`POST /v2/models/{model}/infer`: answered by bare ASGI, as frames are, for the same reason."""

from __future__ import annotations

import asyncio
import re

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.admission import evidence, refusal
from gateway.api.limits import UNREAD, refuse
from gateway.api.problems import problem_response
from gateway.api.state import ApiState
from gateway.api.v2.names import check_model, check_version
from gateway.api.v2.reply import InferReply
from gateway.api.v2.request import InferRequest, json_size
from gateway.errors import (
    BadInference,
    FramegateError,
    MethodNotAllowed,
    UnsupportedMediaType,
)
from gateway.runtime.calls import Answer, Call, CallRefused
from gateway.triton.tensors import BINARY_ONLY


class PostInfer:
    """ASGI middleware that answers infer calls and passes on everything else.

    If the client goes away while it waits, the call's rows leave the queue; what has been sent to Triton runs to its
    end.
    """

    path = "/v2/models/{model}/infer"
    version_path = "/v2/models/{model}/versions/{version}/infer"
    _pattern = re.compile("/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")

    def __init__(self, app: ASGIApp, state: ApiState) -> None:
        self._app = app
        self._state = state
        self._gateway = state.gateway
        self._limits = state.settings.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the call, if it is ours."""
        found = self._pattern.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["endpoint"] = self  # for `CountAnswers`, as a router would
        limit_bytes = self._limits.max_body_bytes
        try:
            if scope["method"] != "POST":
                raise MethodNotAllowed(f"{scope['method']} is not allowed here; POST is.")
            await self._post(found[1], found[2] or "", scope, receive, send)
        except MethodNotAllowed as error:
            await refuse(error, limit_bytes, receive, send, {"Allow": "POST"}, path=scope["path"])
        except UNREAD as error:
            await refuse(error, limit_bytes, receive, send, path=scope["path"])
        except FramegateError as error:
            await problem_response(error, path=scope["path"])(scope, receive, send)

    async def _post(self, model: str, version: str, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._state.metrics.refused
        try:
            request = await self._read(model, version, scope, receive)
            if request is not None:
                await self._check_json_outputs(model, version, request)
        except FramegateError as error:
            refused[error.code] += 1
            raise
        if request is None:
            refused["client_gone"] += 1
            return
        call = Call(
            model=model,
            version=version,
            inputs=request.inputs,
            outputs=tuple(wanted.name for wanted in request.outputs),
            deadline_ns=request.deadline_ns,
            timeout_ns=request.timeout_ns,
            parameters=request.parameters,
        )
        request.inputs = ()  # the call lets go of them when their bytes are elsewhere
        answer = await self._while_wanted(call, receive)
        if answer is not None:
            await _send(InferReply(model, request, answer), scope, send)

    async def _read(self, model: str, version: str, scope: Scope, receive: Receive) -> InferRequest | None:
        """Return what is asked for, None if the client went away; what can be refused without the body is."""
        self._state.check_not_stopping()
        check_model(model)
        if version:
            check_version(model, version)
        values = [value for name, value in scope["headers"] if name == b"inference-header-content-length"]
        size = json_size(values)
        _check_encoding(scope)
        most = self._limits.max_body_bytes
        limit_bytes = min(most, self._limits.max_tensor_json_bytes) if size is None else most
        body = await self._state.uploads.read(scope, receive, limit_bytes)
        return None if body is None else await self._state.parser.parse(body, size)

    async def _check_json_outputs(self, model: str, version: str, request: InferRequest) -> None:
        """Refuse before it is run what could not be said."""
        metadata = await self._gateway.model_metadata(model, version)
        names = {wanted.name for wanted in request.outputs}
        for output in metadata.outputs:
            asked = not names or output.name in names
            if asked and output.datatype in BINARY_ONLY and not request.is_binary(output.name):
                raise BadInference(
                    f"sending {output.datatype} data via JSON is not supported. Please use the binary data format for "
                    f"output '{output.name}': 'binary_data', or 'binary_data_output' for all"
                )

    async def _while_wanted(self, call: Call, receive: Receive) -> Answer | None:
        """Run the call; None if the client went away first."""
        work = asyncio.ensure_future(self._gateway.infer(call))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        except CallRefused as error:
            raise refusal(evidence(error.answer, lambda _: ""), (), error.answer.spec) from None
        finally:
            work.cancel()
            gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _check_encoding(scope: Scope) -> None:
    for name, value in scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise UnsupportedMediaType(
                "Compressed bodies are not taken: frames hardly shrink, and inflating one takes longer than sending "
                "it. Send it without Content-Encoding."
            )


async def _send(reply: InferReply, scope: Scope, send: Send) -> None:
    if reply.large and not reply.mixed and scope["http_version"] != "1.0":  # which knows no answer of unknown length
        headers, pieces = reply.in_pieces()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    headers, body = await reply.written() if reply.large else reply.at_once()
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
