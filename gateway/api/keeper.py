"""Keeps the embedded Triton running: one that ended by itself is started again, on the same ports.

The rest is done by the gateway's supervisor: it finds Triton again, registers the memory and loads the models.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from gateway.errors import EmbeddedTritonError

logger = logging.getLogger(__name__)

POLL_S = 0.1
#: Pauses before a start: none for the first, then doubled up to the limit, until one ran for `STEADY_S`.
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
STEADY_S = 60.0


class Restartable(Protocol):
    """Part of `gateway.triton.embedded.EmbeddedTriton`."""

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""

    def restart(self) -> None:
        """Start it again without waiting until it is ready. Raises `EmbeddedTritonError`."""


async def keep_running(triton: Restartable) -> None:
    """Watch `triton` until cancelled. Must run on the main thread's loop; a start holds it up for about 0.05 s."""
    clock = asyncio.get_running_loop().time
    began, pause_s = clock(), 0.0
    while True:
        await asyncio.sleep(POLL_S)
        if triton.running:
            continue
        if clock() - began > STEADY_S:
            pause_s = 0.0
        logger.error("tritonserver ended by itself; it is started again in %g s; the end of its log says why", pause_s)
        while not triton.running:
            await asyncio.sleep(pause_s)
            pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), MAX_PAUSE_S)
            began = clock()
            _start(triton)


def _start(triton: Restartable) -> None:
    try:
        triton.restart()
    except (EmbeddedTritonError, OSError) as error:
        logger.warning("tritonserver cannot be started again yet: %s", error)
