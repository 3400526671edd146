"""The lean way for calls whose frames lie in shared memory: they go to Triton's HTTP endpoint, as prebuilt requests.

A call of `grpc.aio` costs two and a half times the CPU time of one here (docs/decisions/0025-lean-transport.md), most
of which goes into its own threads and messages. Nothing here retries either: a connection is opened again only if it
was found closed before anything was sent. Triton may have run what was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.triton.http_connection import Answer, Heads, HttpConnection
from gateway.triton.http_messages import Replies, Requests, knows_region
from gateway.triton.types import BackendError, InferenceCall, InSharedMemory, Outputs

_CONNECT_S = 1.0
#: A connection that was idle for longer is not used again: what stands in between may be about to close it, and a
#: request that is under way then is lost. Proxies wait for a minute.
_IDLE_S = 30.0
#: Triton listens for gRPC some milliseconds before it does for HTTP.
_TRIES, _PAUSE_S = 10, 0.05


class HttpChannel:
    """Connections to one HTTP endpoint, each with one call at a time. Make it on the event loop that uses it.

    Args:
        url: ``host:port``.
        max_message_bytes: The largest answer.
    """

    def __init__(self, url: str, max_message_bytes: int) -> None:
        self.url = url
        host, _, port = url.rpartition(":")
        self._address = host.strip("[]"), int(port)
        self._most_bytes = max_message_bytes
        self._requests = Requests(url)
        self._replies = Replies()
        self._heads = Heads()
        self._connections: set[HttpConnection] = set()
        self._idle: list[HttpConnection] = []

    def close(self) -> None:
        """Close all connections; calls in flight end as broken."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._idle.clear()

    async def infer(self, call: InferenceCall, data: InSharedMemory) -> Outputs:
        """Run one batch, which lies in `data`, and return its outputs; those with room are copied out of it.

        Nothing limits the time but a broken connection. Whoever gives up must not touch the room before it is known
        that Triton does not write any more.

        Raises:
            BackendError: Triton's refusal or failure, or its absence.
        """
        return self._replies.outputs(await self._exchange(self._requests.infer(call, data)), call.room)

    def prepare(self, call: InferenceCall, data: InSharedMemory) -> bytes:
        """Return what `begin` takes for calls as this one, wherever in the region their frames lie."""
        return self._requests.template(call, data)

    def begin(self, prepared: bytes, offset: int, done: Callable[[Outputs | BaseException], None]) -> UnderWay | None:
        """Run a batch that lies at `offset` as `infer` does, without a task; None where that takes a new connection.

        Args:
            prepared: By `prepare`, for a call without a room.
            offset: Of its first byte in the region.
            done: Called once, later, with the outputs or with what `infer` raises. By then the next call can begin.
        """
        connection = self._idle_connection()
        return None if connection is None else UnderWay(self, connection, prepared % offset, done)

    async def why_not(self, region: str, timeout_s: float) -> str:
        """Return why calls that read `region` cannot be made here; empty if they can: it is a Triton that has it open.

        Args:
            region: Its name, which no two Tritons know.
            timeout_s: Limit of all.
        """
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._ask(region)
        except BackendError as error:
            return error.message
        except TimeoutError:
            return f"no answer within {timeout_s:g} s"
        return "" if knows_region(answer, region) else "whoever answers there does not have the frame arena open"

    async def _ask(self, region: str) -> Answer:
        for _ in range(_TRIES - 1):
            try:
                return await self._exchange(self._requests.region(region))
            except BackendError:
                await asyncio.sleep(_PAUSE_S)
        return await self._exchange(self._requests.region(region))

    async def _exchange(self, request: bytes) -> Answer:
        connection = await self._free_connection()
        try:
            return await connection.exchange(request)
        finally:
            self._keep(connection)

    def _keep(self, connection: HttpConnection) -> None:
        if connection.usable:
            self._idle.append(connection)
        else:
            self._connections.discard(connection)

    def _idle_connection(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and asyncio.get_running_loop().time() - connection.idle_since_s < _IDLE_S:
                return connection
            connection.close()
            self._connections.discard(connection)
        return None

    async def _free_connection(self) -> HttpConnection:
        idle = self._idle_connection()
        if idle is not None:
            return idle
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: HttpConnection(self._most_bytes, self._heads), *self._address
                )
        except (OSError, TimeoutError) as error:
            words = f"no connection to Triton's HTTP endpoint at {self.url}: {str(error) or 'no answer'}"
            raise BackendError(words, "UNAVAILABLE") from None
        self._connections.add(connection)
        return connection


class UnderWay:
    """One call that `HttpChannel.begin` has begun."""

    __slots__ = ("_channel", "_connection", "_done")

    def __init__(
        self,
        channel: HttpChannel,
        connection: HttpConnection,
        request: bytes,
        done: Callable[[Outputs | BaseException], None],
    ) -> None:
        self._channel = channel
        self._connection = connection
        self._done = done
        connection.begin(request, self._answered)

    def cancel(self) -> None:
        """Wait no more: `done` is called now, with `CancelledError`."""
        self._connection.cancel()

    def _answered(self, answer: Answer | BaseException) -> None:
        self._channel._keep(self._connection)
        if isinstance(answer, BaseException):
            self._done(answer)
            return
        outputs: Outputs | BaseException
        try:
            outputs = self._channel._replies.outputs(answer)
        except BackendError as error:
            outputs = error
        self._done(outputs)
