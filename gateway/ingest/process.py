"""An ingest process: ``python -m gateway.ingest.process CHANNEL STAGING``, two descriptors that it inherits."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import signal
import socket
import sys
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from gateway.ingest import wire
    from gateway.ingest.worker import Setup


def main(channel_fd: int, staging_fd: int) -> None:
    """Serve until the scheduler says so, or is gone."""
    # The scheduler alone says when to end: a terminal and a service manager send signals to all processes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    from gateway.ingest import wire
    from gateway.ingest.ingest_link import IngestLink
    from gateway.ingest.proxy import Proxy
    from gateway.ingest.remote import RemoteGateway
    from gateway.ingest.staging import Staging
    from gateway.telemetry import logs
    from gateway.telemetry.metrics import Metrics

    channel = socket.socket(fileno=channel_fd)
    messages = wire.Messages()
    setup, early = _first(channel, messages)
    settings = setup.settings
    logs.configure(settings.telemetry.log_level, settings.telemetry.log_format)

    from fastapi import FastAPI

    from gateway.api.address import reusable_socket
    from gateway.api.server import Server
    from gateway.api.state import ApiState
    from gateway.ingest.app import IngestApp
    from gateway.ingest.figures import INTERVAL_S, own_figures
    from gateway.runtime.gateway import Gateway
    from gateway.runtime.heap import keep_freed_memory

    class ProcessServer(Server):
        """Ends when the scheduler says so."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            loop = asyncio.get_running_loop()
            channel.setblocking(False)
            await loop.create_unix_connection(lambda: link, sock=channel)
            await super().startup(sockets)
            for message in early:
                link.take(message)
            self._tasks.append(asyncio.create_task(report()))
            remote.say(wire.plain(wire.READY))

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            remote.say_now(figures())

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            """Take no notice."""

    def drain() -> None:
        server.should_exit = True

    def figures() -> bytes:
        return wire.message(bytes((wire.FIGURES,)), own_figures(state, staging.used_bytes))

    async def report() -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            remote.say(figures())

    staging = Staging(staging_fd, setup.staging_bytes)
    metrics = Metrics(version("framegate"))
    remote = RemoteGateway(staging, metrics.refused)
    state = ApiState(cast("Gateway", remote), settings, metrics)
    app = IngestApp(state, remote, Proxy(setup.backend, settings.limits))
    server = ProcessServer(cast("FastAPI", app), settings.server)
    link = IngestLink(remote, drain, messages, Path(setup.backend).parent)
    sockets = [reusable_socket(family, address) for family, address in setup.addresses]
    keep_freed_memory()
    gc.freeze()  # as `gateway.api.command` does, and why
    gc.set_threshold(5_000, 400, 100)
    with logs.LogQueue(settings.telemetry.log_queue):
        server.run(sockets)
        logging.getLogger(__name__).info("ingest process %d ends", setup.number)


def _first(channel: socket.socket, messages: wire.Messages) -> tuple[Setup, list[memoryview]]:
    """Wait for the HELLO; return what it says, and the messages that came with it."""
    while True:
        data = channel.recv(1 << 16)
        if not data:
            sys.exit(1)
        found = list(messages.feed(data))
        if found:
            return pickle.loads(found[0][1:]), found[1:]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
