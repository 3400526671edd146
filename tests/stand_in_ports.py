"""How the stand-in for Triton listens, on the same ports before and after a restart.

A port that was given up may still be held for some milliseconds: a process that this one starts meanwhile has a copy of
every socket, from its fork to its exec. So it is tried again for a while.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_LIMIT_S, _PAUSE_S = 5.0, 0.02


async def listen(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], port: int
) -> tuple[asyncio.Server, int]:
    """Return a server on loopback and its port, which is `port` unless that is 0."""
    server = await patiently(lambda: asyncio.start_server(serve, "127.0.0.1", port))
    return server, server.sockets[0].getsockname()[1]


async def patiently(bind: Callable[[], Awaitable[T]]) -> T:
    """Return what `bind` does, called again while its port is held. gRPC says that by a `RuntimeError`."""
    end_s = time.monotonic() + _LIMIT_S
    while True:
        try:
            return await bind()
        except (OSError, RuntimeError) as error:
            held = isinstance(error, RuntimeError) or error.errno == errno.EADDRINUSE
            if not held or time.monotonic() > end_s:
                raise
        await asyncio.sleep(_PAUSE_S)
