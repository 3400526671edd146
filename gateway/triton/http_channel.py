"""The lean way for calls whose frames lie in shared memory: they go to Triton's HTTP endpoint, as prebuilt requests.

A call of `grpc.aio` costs two and a half times the CPU time of one here (docs/decisions/0025-lean-transport.md), most
of which goes into its own threads and messages. Nothing here retries either: a connection is opened again only if it
was found closed before anything was sent. Triton may have run what was.

Two connections are kept open, as there may be two jobs in Triton's hands: one that had to connect first could be
overtaken on its way. Where one has to all the same, whatever comes after it waits until it has been sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from gateway.triton.http_connection import Answer, Heads, HttpConnection
from gateway.triton.http_messages import Replies, Requests, knows_region
from gateway.triton.types import BackendError, InferenceCall, InSharedMemory, Outputs

_CONNECT_S = 1.0
#: A connection that was idle for longer is not used again: what stands in between may be about to close it, and a
#: request that is under way then is lost. Proxies wait for a minute.
_IDLE_S = 30.0
#: Of a job that runs and one that is sent ahead of its end.
_KEPT = 2
#: Triton listens for gRPC some milliseconds before it does for HTTP.
_TRIES, _PAUSE_S = 10, 0.05


class UnderWay(Protocol):
    """One call that `HttpChannel.begin` has begun."""

    def cancel(self) -> None:
        """Wait no more: whoever waits is told `CancelledError`, now. Not to be called after the end of the call."""


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
        #: The one that was used last comes last, and is used last: none grows old while calls come.
        self._idle: deque[HttpConnection] = deque()
        #: Had by whoever looks for a connection, one after the other, and how many do.
        self._connecting = asyncio.Lock()
        self._asking = 0
        self._kept = 0
        self._filling: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Close all connections; calls in flight end as broken."""
        self._kept = 0
        if self._filling is not None:
            self._filling.cancel()
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
        if self._asking:  # it may not overtake whoever came before
            return None
        connection = self._idle_connection()
        self._fill_soon()
        if connection is None:
            return None
        connection.begin(prepared % offset, partial(self._answered, connection, done))
        return connection

    def _answered(
        self,
        connection: HttpConnection,
        done: Callable[[Outputs | BaseException], None],
        answer: Answer | BaseException,
    ) -> None:
        """A call that was begun so is over."""
        self._keep(connection)
        if isinstance(answer, BaseException):
            done(answer)
            return
        outputs: Outputs | BaseException
        try:
            outputs = self._replies.outputs(answer)
        except BackendError as error:
            outputs = error
        except Exception as error:  # noqa: BLE001 - nobody would ever hear of the end of the call
            outputs = BackendError(f"Triton's answer cannot be read: {error!r}")
        done(outputs)

    async def why_not(self, region: str, timeout_s: float) -> str:
        """Return why calls that read `region` cannot be made here; empty if they can: it is a Triton that has it open.

        Args:
            region: Its name, which no two Tritons know.
            timeout_s: Limit of all.
        """
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._ask(region)
                if knows_region(answer, region):
                    self._kept = _KEPT
                    await self._fill()
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
        self._asking += 1
        try:
            async with self._connecting:
                connection = self._idle_connection() or await self._connect()
        finally:
            self._asking -= 1
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
            connection = self._idle.popleft()
            if _fit(connection):
                return connection
            self._drop(connection)
        return None

    def _drop(self, connection: HttpConnection) -> None:
        connection.close()
        self._connections.discard(connection)

    async def _connect(self) -> HttpConnection:
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: HttpConnection(self._most_bytes, self._heads), *self._address
                )
        except (OSError, TimeoutError) as error:
            words = f"no connection to Triton's HTTP endpoint at {self.url}: {str(error) or 'no answer'}"
            raise BackendError(words, "UNAVAILABLE") from None
        self._connections.add(connection)
        return connection

    # ------------------------------------------------------------ connections that wait for calls

    def _fill_soon(self) -> None:
        """Have as many connections as are kept, soon: of a call that begins, before the next is sent ahead."""
        while self._idle and not _fit(self._idle[0]):
            self._drop(self._idle.popleft())
        if len(self._connections) < self._kept and self._filling is None:
            self._filling = asyncio.get_running_loop().create_task(self._fill())
            self._filling.add_done_callback(self._filled)

    def _filled(self, _task: asyncio.Task[None]) -> None:
        self._filling = None

    async def _fill(self) -> None:
        with suppress(BackendError):  # whoever needs one hears of it
            for _ in range(self._kept - len(self._connections)):
                self._keep(await self._connect())


def _fit(connection: HttpConnection) -> bool:
    """Whether an idle connection can be used."""
    return connection.usable and asyncio.get_running_loop().time() - connection.idle_since_s < _IDLE_S
