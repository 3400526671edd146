"""`POST /v2/models/{model}/infer`: a call that belongs to no camera."""

from __future__ import annotations

import asyncio
import re
from functools import partial

from starlette.types import Receive, Scope, Send

from gateway.api.post import PostCalls
from gateway.api.v2.names import check_model, check_version
from gateway.api.v2.refusals import call_refusal
from gateway.api.v2.reply import InferReply
from gateway.api.v2.request import InferRequest, json_size
from gateway.errors import BadInference, FramegateError, UnsupportedMediaType
from gateway.runtime.call import Answer, Call, CallRefused
from gateway.runtime.call_tensors import check_inputs
from gateway.triton.tensors import BINARY_ONLY
from gateway.triton.types import ModelMetadata


class PostInfer(PostCalls):
    """Infer calls.

    If the client goes away while it waits, the call's rows leave the queue; what has been sent to Triton runs to its
    end.
    """

    path = "/v2/models/{model}/infer"
    version_path = "/v2/models/{model}/versions/{version}/infer"
    pattern = re.compile("/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")

    async def _post(self, found: re.Match[str], scope: Scope, receive: Receive, send: Send) -> None:
        model, version, refused = found[1], found[2] or "", self._state.metrics.refused
        try:
            request = await self._read(model, version, scope, receive)
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
        if body is None:
            return None
        found = await self._gateway.model_facts.learn(model, version)
        request = await self._state.parser.parse(body, size, partial(check_inputs, found))
        _check_json_outputs(found, request)
        return request

    async def _while_wanted(self, call: Call, receive: Receive) -> Answer | None:
        """Run the call; None if the client went away first."""
        work = asyncio.ensure_future(self._gateway.infer(call))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        except CallRefused as error:
            raise call_refusal(error.answer, self._state.planned_profile) from None
        finally:
            work.cancel()
            gone.cancel()


def _check_json_outputs(model: ModelMetadata, request: InferRequest) -> None:
    """Refuse before it is run what could not be said."""
    names = {wanted.name for wanted in request.outputs}
    for output in model.outputs:
        asked = not names or output.name in names
        if asked and output.datatype in BINARY_ONLY and not request.is_binary(output.name):
            raise BadInference(
                f"sending {output.datatype} data via JSON is not supported. Please use the binary data format for "
                f"output '{output.name}': 'binary_data', or 'binary_data_output' for all"
            )


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
    await reply.prepare()
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
