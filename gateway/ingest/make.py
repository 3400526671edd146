"""Which server serves an application."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI

from gateway.api.server import Server
from gateway.settings import Settings


def make_server(
    app: FastAPI,
    settings: Settings,
    on_ready: Callable[[str], None] | None = None,
    companion: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> Server:
    """Return the server that `settings.server.ingest_workers` asks for; the arguments are those of `Server`."""
    if settings.server.ingest_workers == 0:
        return Server(app, settings.server, on_ready, companion)
    from gateway.ingest.server import IngestServer

    return IngestServer(app, settings, on_ready, companion)
