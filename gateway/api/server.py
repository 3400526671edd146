"""The HTTP server of one process: uvicorn, with an orderly end.

On SIGTERM or SIGINT it stops accepting, long polls answer with what there is, event streams end, bodies that are not
complete are given up, and calls and WebSockets that wait for frames get `shutdown_grace_s`. Then the gateway is
stopped, which gives every frame its outcome and so every call its answer. Clients that do not take theirs are
disconnected; nothing is left for uvicorn to cut off. A second SIGINT ends the grace.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from gateway.api import ws_connection
from gateway.api.connection import connection_class
from gateway.api.state import ApiState
from gateway.settings import ServerSettings

logger = logging.getLogger(__name__)

#: How long clients have to take their answers after the gateway's own end; then they are disconnected.
WRITE_S = 2.0
HURRIED_WRITE_S = 0.2
_POLL_S = 0.02


class Server(uvicorn.Server):
    """Serves `app` until a signal.

    Args:
        app: From `create_app`.
        settings: Address and limits.
        on_ready: Called once with the base URL, when frames can be taken for the first time.
        companion: Runs beside it, on the same thread, until it is told to stop.
    """

    def __init__(
        self,
        app: FastAPI,
        settings: ServerSettings,
        on_ready: Callable[[str], None] | None = None,
        companion: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._state: ApiState = app.state.api
        super().__init__(_config(app, settings, self._state))
        self._grace_s = settings.shutdown_grace_s
        self._on_ready = on_ready
        self._companion = companion
        self._hurried = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        """The base URL, with the port that was really taken."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the gateway and listen.

        Raises:
            FramegateError: The gateway cannot start. Left to the lifespan, it would come out as a traceback.
        """
        await self._state.start_gateway()
        await super().startup(sockets)
        if not self.should_exit:
            logger.info("listening at %s", self.url)
            self._tasks.append(asyncio.create_task(self._announce()))
            if self._companion is not None:
                self._tasks.append(asyncio.create_task(self._companion()))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; see the module's docstring."""
        self._state.drain()
        for task in self._tasks:
            task.cancel()
        cut_off = asyncio.create_task(self._cut_off())
        await super().shutdown(sockets)
        cut_off.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal. uvicorn's own forced exit leaves calls to be torn down with the loop, with tracebacks."""
        super().handle_exit(sig, frame)
        self._hurried = self._hurried or self.force_exit
        self.force_exit = False

    async def _announce(self) -> None:
        while not self._state.gateway.ready:  # noqa: ASYNC110 - the gateway has no event for it
            await asyncio.sleep(_POLL_S)
        if self._on_ready is not None:
            self._on_ready(self.url)

    async def _cut_off(self) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + self._grace_s
        while clock() < end and not self._hurried:  # noqa: ASYNC110 - a signal handler cannot set an event
            await asyncio.sleep(_POLL_S)
        await self._state.stop_gateway()
        await asyncio.sleep(HURRIED_WRITE_S if self._hurried else WRITE_S)
        left = list(self.server_state.connections)
        if left:
            logger.warning("disconnecting %d clients that did not finish", len(left))
        for connection in left:
            connection.transport.abort()


def _config(app: FastAPI, settings: ServerSettings, state: ApiState) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=connection_class(state.settings.limits, state.first_app),
        **ws_connection.config_options(state),
        lifespan="on",
        log_config=None,  # ours, see gateway.telemetry.logs
        access_log=settings.access_log,
        proxy_headers=False,
        server_header=False,
        backlog=settings.backlog,
        timeout_keep_alive=settings.keep_alive_s,
        # Never used up: see `_cut_off`. The gateway takes up to `shutdown_grace_s` itself, for a job that is running.
        timeout_graceful_shutdown=2 * settings.shutdown_grace_s + 5,
    )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def signals_end_the_server_only() -> Iterator[None]:
    """Within this block, SIGTERM and SIGINT do no more than end a running `Server`.

    uvicorn raises the signal again once its server has ended. With the default handler that would end the
    process there and then, before an embedded Triton has been stopped.
    """

    def nothing(_number: int, _frame: FrameType | None) -> None:
        pass

    before = {number: signal.signal(number, nothing) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
