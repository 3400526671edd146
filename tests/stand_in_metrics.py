"""The metrics page of the stand-in for Triton: what the device's memory holds, as Triton's own says it."""

from __future__ import annotations

import asyncio

from tests.stand_in_ports import listen
from tests.stand_in_repository import Repository

_DEVICE = '{gpu_uuid="GPU-stand-in"}'
_TOTAL_BYTES = 16 << 30


class MetricsPage:
    """Answers every request with the page. `port` stays the same over restarts; `broken` has it answer 500."""

    def __init__(self, repository: Repository) -> None:
        self.port = 0
        self.broken = False
        self.asked = 0
        self._repository = repository
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server, self.port = await listen(self._answer, self.port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            used = self._repository.used_bytes
            text = (
                "# TYPE nv_gpu_memory_total_bytes gauge\n"
                f"nv_gpu_memory_total_bytes{_DEVICE} {_TOTAL_BYTES}.000000\n"
                "# TYPE nv_gpu_memory_used_bytes gauge\n"
                f"nv_gpu_memory_used_bytes{_DEVICE} {used}.000000\n"
            ).encode()
            status = b"500 Internal Server Error" if self.broken else b"200 OK"
            writer.write(
                b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                % (status, len(text), text)
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the one who asked has gone
        finally:
            writer.close()
