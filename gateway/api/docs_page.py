"""``/docs``: Swagger UI, from this machine if the package `fastapi-offline` is there, else from a CDN."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.staticfiles import StaticFiles

ASSETS_URL = "/docs/assets"


def assets_folder() -> Path | None:
    """Return the folder with ``swagger-ui-bundle.js`` and ``swagger-ui.css``, None if there is none."""
    spec = find_spec("fastapi_offline")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "static"
    return folder if (folder / "swagger-ui-bundle.js").is_file() else None


def add(app: FastAPI, assets: Path | None) -> None:
    """Add ``/docs`` to `app`. FastAPI's own must be off."""
    sources: dict[str, Any] = {}
    if assets is not None:
        app.mount(ASSETS_URL, StaticFiles(directory=assets), name="docs-assets")
        sources = {
            "swagger_js_url": f"{ASSETS_URL}/swagger-ui-bundle.js",
            "swagger_css_url": f"{ASSETS_URL}/swagger-ui.css",
            "swagger_favicon_url": f"{ASSETS_URL}/favicon.png",
        }

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return get_swagger_ui_html(openapi_url="/openapi.json", title="Framegate", **sources)
