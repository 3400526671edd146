"""Puts the application together.

::

    uvicorn ─> CountAnswers ─> LastHandler ─┬─> TakeFrames (WebSocket) ──┬─> Gateway
                                            ├─> PostFrames, PostInfer ───┤
                                            └─> BodyLimit ─> FastAPI ────┘
                                                    errors ─> problem documents
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from gateway.api import docs_page, events, faults, frames, health, models, openapi, problems, streams, ws
from gateway.api.access import CountAnswers
from gateway.api.limits import BodyLimit
from gateway.api.problems import LastHandler
from gateway.api.state import ApiState
from gateway.api.v2 import infer, routes
from gateway.runtime.gateway import Gateway
from gateway.settings import Settings
from gateway.telemetry.collector import GatewayCollector
from gateway.telemetry.metrics import Metrics

DESCRIPTION = "A soft real-time gateway in front of NVIDIA Triton: deadlines, admission, batching and EDF."


def create_app(gateway: Gateway, settings: Settings, metrics: Metrics | None = None) -> FastAPI:
    """Return the application; its lifespan starts and stops `gateway`.

    Args:
        gateway: Not started yet.
        settings: Limits are read from it.
        metrics: What observes the gateway; its own empty one if None.
    """
    state = ApiState(gateway, settings, metrics or Metrics(version("framegate")))
    state.metrics.registry.register(GatewayCollector(gateway, state.metrics))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await state.start_gateway()
        try:
            yield
        finally:
            await state.stop_gateway()

    app = FastAPI(
        title="Framegate",
        version=version("framegate"),
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # FastAPI's own, which would look for OpenTelemetry's settings at every call.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.api = state
    for router in (frames.router, events.router, streams.router, models.router, health.router, routes.router):
        app.include_router(router)
    app.include_router(faults.router if settings.fault_injection else faults.without)
    docs_page.add(app, docs_page.assets_folder())
    openapi.install(app)
    problems.register(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, uploads=state.uploads, limit_bytes=settings.limits.max_json_bytes)
    app.add_middleware(ws.TakeFrames, state=state)
    app.add_middleware(infer.PostInfer, state=state)
    app.add_middleware(frames.PostFrames, state=state)
    app.add_middleware(LastHandler)
    app.add_middleware(CountAnswers, state=state, frames=frames.PostFrames.pattern)
    return app
