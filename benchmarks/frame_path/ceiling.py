"""The ceiling: a raw ASGI route that reads the body and answers ``{}``.

``python -m benchmarks.frame_path.ceiling PORT``. It runs in uvicorn with uvloop and httptools, and with the options
and the garbage collector's thresholds of `gateway.api`. It does not even join the pieces of a body.
"""

from __future__ import annotations

import gc
import sys

import uvicorn
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"2")]


async def app(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Read, and answer."""
    if scope["type"] != "http":
        return
    more = True
    while more:
        message = await receive()
        more = message["type"] == "http.request" and message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS, "trailers": False})
    await send({"type": "http.response.body", "body": b"{}", "more_body": False})


def main(port: int) -> None:
    """Serve until SIGTERM."""
    gc.freeze()
    gc.set_threshold(5_000, 400, 100)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=2048,
        timeout_keep_alive=75,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
