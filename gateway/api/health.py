"""Is it alive, can it take frames, and what has it counted."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from gateway.api.problems import describe, problem_response
from gateway.api.state import State
from gateway.errors import Stopping, TritonUnavailable

router = APIRouter(tags=["health"])

_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/v2/health/live")
async def live() -> dict[str, bool]:
    """Is the process alive? It says nothing of Triton or of models, so that neither gets the gateway restarted."""
    return {"live": True}


@router.get("/v2/health/ready", responses=describe(TritonUnavailable, Stopping))
async def ready(state: State) -> Response:
    """Can frames be taken? It does not follow Triton's own flag, which goes off while a model loads."""
    state.check_not_stopping()
    if not state.gateway.ready:
        return problem_response(
            TritonUnavailable("Frames cannot be served yet; the gateway keeps trying.", retry_after_s=1)
        )
    return Response(b'{"ready":true}', media_type="application/json")


@router.get("/metrics", responses=_TEXT, response_class=Response)
async def metrics(state: State) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(state.metrics.render(), media_type=CONTENT_TYPE_LATEST)
