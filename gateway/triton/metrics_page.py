"""Triton's metrics endpoint, of which one figure is read: what is in use of the memory of its GPUs.

Triton asks the driver for it every ``--metrics-interval-ms``, 2,000 unless told otherwise, so that it may be that old.
Without a GPU there is no such figure. What a CPU's Triton says, ``nv_cpu_memory_used_bytes``, is the whole machine's.
"""

from __future__ import annotations

import asyncio
import math
from urllib.parse import urlsplit

from gateway.triton.types import BackendError

_USED = b"nv_gpu_memory_used_bytes{"
_TIMEOUT_S = 1.0
#: With a thousand models it is about 1 MB.
_MOST_BYTES = 16 << 20
_DEFAULT_PORT = 8002


class MetricsPage:
    """One endpoint.

    Args:
        url: ``host:port`` or ``http://host:port/metrics``.

    Raises:
        ValueError: It is neither.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url!r} is not of the form host:port or http://host:port/metrics")
        self.url = url
        self._host, self._port = parts.hostname, parts.port or _DEFAULT_PORT
        self._path = parts.path or "/metrics"

    async def gpu_bytes(self) -> int | None:
        """Return what is in use on all GPUs of this Triton together, by whomever; None if it has none.

        Raises:
            BackendError: There is no such page, or it does not come within a second.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                page = await self._fetch()
        except (OSError, TimeoutError, EOFError) as error:
            raise BackendError(f"no metrics at {self.url}: {error or type(error).__name__}") from None
        try:
            used = [float(line.rpartition(b" ")[2]) for line in page.splitlines() if line.startswith(_USED)]
        except ValueError:
            used = [math.nan]
        if not all(map(math.isfinite, used)):
            raise BackendError(f"the metrics at {self.url} are not Triton's")
        return round(sum(used)) if used else None

    async def _fetch(self) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            host = f"[{self._host}]" if ":" in self._host else self._host
            writer.write(f"GET {self._path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            status = head.split(None, 2)[1:2]
            if status != [b"200"]:
                raise BackendError(f"the metrics at {self.url} answer {b''.join(status).decode(errors='replace')}")
            page = bytearray()
            while (piece := await reader.read(1 << 16)) and len(page) < _MOST_BYTES:
                page += piece
            return bytes(page)
        finally:
            writer.close()
