"""Is it alive, can it take frames, and what has it counted."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from gateway.api.problems import describe, problem_response
from gateway.api.state import State
from gateway.errors import EngineFailed, NothingServed, Stopping, TritonUnavailable

router = APIRouter(tags=["health"])

#: How long metrics are written before others get their turn; the record of all books behind it takes twice as long.
_TURN_S = 0.0005
_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.head("/v2/health/live", include_in_schema=False)
@router.get("/v2/health/live", responses=describe(EngineFailed))
async def live(state: State) -> dict[str, bool]:
    """Is the process of use? It says nothing of Triton or of models, so that neither gets the gateway restarted."""
    if state.gateway.broken:
        raise EngineFailed("A fault of the gateway, which its log shows. Only a restart helps.")
    return {"live": True}


@router.head("/v2/health/ready", include_in_schema=False)
@router.get("/v2/health/ready", responses=describe(TritonUnavailable, NothingServed, EngineFailed, Stopping))
async def ready(request: Request, state: State) -> Response:
    """Can frames be taken? It does not follow Triton's own flag, which goes off while a model loads."""
    state.check_not_stopping()
    if (error := state.gateway.unready()) is not None:
        return problem_response(error, path=request.url.path)
    return Response(b'{"ready":true}', media_type="application/json")


@router.get("/metrics", responses=_TEXT, response_class=Response)
async def metrics(state: State) -> Response:
    """Return the metrics in Prometheus' text format."""
    written, began = [], time.monotonic()
    for piece in state.metrics.pieces():
        written.append(piece)
        if time.monotonic() - began > _TURN_S:
            await asyncio.sleep(0)
            began = time.monotonic()
    return Response(b"".join(written), media_type=CONTENT_TYPE_LATEST)
