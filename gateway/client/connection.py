"""How the SDK reaches a gateway: one pool of connections, problems as exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx
import orjson

from gateway.client import wire
from gateway.client.address import DEFAULT_URL
from gateway.client.problems import GatewayUnreachable

OCTET_STREAM = "application/octet-stream"
OCTETS = {"content-type": OCTET_STREAM}
#: Kept-alive connections are given up before the gateway (75 s) or a proxy (60 s) does, so that a slow
#: camera does not send into a connection that is just being closed.
KEEP_ALIVE_S = 30.0


class Connection:
    """One gateway. Safe for many tasks of one event loop at a time.

    Args:
        url: Of the gateway.
        timeout_s: Longest wait for an answer; calls that wait for something by themselves wait longer.
        binary: Have outputs come as bytes instead of JSON numbers.
        transport: For tests: an httpx transport instead of the network.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        timeout_s: float = 30.0,
        binary: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._accept = {"accept": OCTET_STREAM} if binary else {}
        self.timeout_s = timeout_s
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=KEEP_ALIVE_S)
        self._http = httpx.AsyncClient(base_url=self.url, timeout=timeout_s, limits=limits, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; streams stay registered."""
        await self._http.aclose()

    async def _request(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        try:
            return await self._http.request(
                method, path, content=content, headers=headers, params=params, timeout=timeout_s or self.timeout_s
            )
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise GatewayUnreachable(f"{method} {self.url}{path}: {reason}") from error

    async def _json(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        headers = {**OCTETS, **(headers or {})}
        if body is not None:
            content, headers = orjson.dumps(body), {"content-type": "application/json"}
        answer = await self._request(
            method,
            path,
            content=content,
            headers=headers if content is not None else None,
            params=params,
            timeout_s=timeout_s,
        )
        wire.raise_for_problem(answer)
        document: dict[str, Any] = orjson.loads(answer.content)
        return document
