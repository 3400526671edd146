"""The server of a scheduler with ingest processes: its own application answers on a Unix socket, they on the address.

On a signal the ingest processes are told first: they take nothing new and give their clients the time that a server
without them gives (see `gateway.api.server`). Then the gateway is stopped, and they deliver what came of the last
frames. Who is still there after that is ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from gateway.api.address import listening_addresses
from gateway.api.server import HURRIED_WRITE_S, WRITE_S, Server
from gateway.errors import IngestFailed
from gateway.ingest import wire
from gateway.ingest.figures import IngestCollector
from gateway.ingest.hub import Hub
from gateway.ingest.worker import Setup, Worker
from gateway.settings import Settings

logger = logging.getLogger(__name__)

_POLL_S = 0.02
#: Of a Unix socket (Linux, unix(7): 108 with the zero at the end).
_PATH_BYTES = 107
#: After the last answer a process closes its listeners and ends: beside what `WRITE_S` allows for clients.
_END_S = 1.0


class IngestServer(Server):
    """Serves `app` through ingest processes until a signal.

    Args:
        app, on_ready, companion: As `Server`.
        settings: All of them: `server.ingest_workers` is at least 1.
    """

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        on_ready: Callable[[str], None] | None = None,
        companion: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        super().__init__(app, settings.server, on_ready, companion)
        self._settings = settings
        self.config.access_log = False  # ingest processes write it
        self.workers: list[Worker] = []
        self._collector = IngestCollector(self.workers)
        self._state.metrics.registry.register(self._collector)
        self._reserved: list[socket.socket] = []
        self._all_listen = asyncio.Event()

    @property
    def url(self) -> str:
        """The base URL, with the port that was really taken."""
        host, port = self._reserved[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the gateway, and then ingest processes that listen.

        Raises:
            FramegateError: The gateway cannot start.
            IngestFailed: An ingest process cannot, or there is no place for the scheduler's socket.
        """
        self._reserved = listening_addresses(self._settings.server)
        self._folder = Path(tempfile.mkdtemp(prefix="framegate-"))  # of mode 0700
        self.config.uds = str(self._folder / "scheduler")
        self._hub = Hub(self._state, self._collector)
        try:
            _check_path(self.config.uds)
            await super().startup(sockets)
        except BaseException:
            self._clean_up()
            raise
        self.started = False  # not for clients
        self.workers += [Worker(self._hub, setup) for setup in self._setups()]
        listening = await asyncio.gather(*(worker.start() for worker in self.workers))
        if not all(listening):
            await self.shutdown(sockets)
            raise IngestFailed("An ingest process ended before it listened; its last lines say why.")
        self.started = True
        self._all_listen.set()

    def _setups(self) -> list[Setup]:
        group = self._settings.server
        addresses = tuple((reserved.family.value, reserved.getsockname()) for reserved in self._reserved)
        settings = share(self._settings, group.ingest_workers)
        size = max(group.ingest_staging_bytes, self._settings.limits.max_body_bytes)
        backend = str(self.config.uds)
        return [Setup(settings, number, addresses, backend, size) for number in range(group.ingest_workers)]

    async def _announce(self) -> None:
        await self._all_listen.wait()
        await super()._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; see the module's docstring."""
        self._state.drain()
        for worker in self.workers:
            worker.stop()
        ended = asyncio.ensure_future(asyncio.gather(*(worker.ended() for worker in self.workers)))
        await self._grace(ended)
        await self._state.stop_gateway()
        await asyncio.sleep(0)  # links are told of the last frames' ends in the next turn
        self._hub.tell(wire.plain(wire.STOPPED))
        await asyncio.wait((ended,), timeout=_END_S + (HURRIED_WRITE_S if self._hurried else WRITE_S))
        for worker in self.workers:
            worker.kill()
        await ended
        self._hub.close()
        await super().shutdown(sockets)
        self._clean_up()

    def _clean_up(self) -> None:
        for reserved in self._reserved:
            reserved.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _grace(self, ended: asyncio.Future[Any]) -> None:
        """Wait for the clients' last calls."""
        clock = asyncio.get_running_loop().time
        end = clock() + self._grace_s
        while not ended.done() and clock() < end and not self._hurried:
            await asyncio.wait((ended,), timeout=_POLL_S)  # a signal handler cannot set an event


def _check_path(path: str) -> None:
    size = len(os.fsencode(path))
    if size > _PATH_BYTES:
        raise IngestFailed(
            f"{path} has {size} bytes, and a socket's path no more than {_PATH_BYTES}; "
            "set TMPDIR to a folder with a shorter name."
        )


def share(settings: Settings, count: int) -> Settings:
    """Return the settings of one of `count` ingest processes: what bounds all clients together is divided.

    The largest body still fits, so that many processes may together take more than the limit.
    """
    limits = settings.limits
    largest = max(limits.max_body_bytes, limits.max_json_bytes)
    divided = {
        "inflight_body_bytes": max(largest, limits.inflight_body_bytes // count),
        "unread_bytes": max(1024, limits.unread_bytes // count),
    }
    return settings.model_copy(update={"limits": limits.model_copy(update=divided)})
