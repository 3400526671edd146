"""What the routes share: the gateway, its settings and metrics, and whether the server is going down."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request
from starlette.types import Receive, Scope, Send

from gateway.api.unread import Unread
from gateway.api.uploads import Uploads
from gateway.api.v2.parsing import JsonParser
from gateway.core.memory import planned
from gateway.core.profile import Profile
from gateway.errors import Stopping
from gateway.runtime.gateway import Gateway
from gateway.settings import Settings
from gateway.telemetry.metrics import Metrics

T = TypeVar("T")
MS_PER_S = 1_000


class Outermost(Protocol):
    """`gateway.api.access.CountAnswers`."""

    def answers(self, scope: Scope) -> bool: ...  # noqa: D102 - see there

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...  # noqa: D102 - see there


@dataclass
class ApiState:
    """One per application; routes get it as `State`.

    Attributes:
        uploads: The bodies that are being read.
        unread: The outputs that wait for clients of WebSockets.
        parser: For bodies of `/v2`.
        draining: Set once the server is going down, by `drain`.
        outermost: The outermost of our own middleware, once FastAPI has made it.
    """

    gateway: Gateway
    settings: Settings
    metrics: Metrics
    uploads: Uploads = field(init=False)
    unread: Unread = field(init=False)
    parser: JsonParser = field(init=False)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    outermost: Outermost | None = None
    _started: bool = False
    _stop: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        limits = self.settings.limits
        self.parser = JsonParser(limits)
        self.uploads = Uploads(limits.inflight_body_bytes, limits.upload_timeout_ms / MS_PER_S, self._kept_body_bytes)
        self.unread = Unread(limits.unread_bytes)
        self.metrics.watch_uploads(lambda: self.uploads.held_bytes)
        self.metrics.watch_unread(lambda: self.unread.bytes)

    @cached_property
    def planned_profile(self) -> Profile:
        """The execution times that admission plans with."""
        return planned(self.gateway.profile, self.settings.engine_config())

    def first_app(self) -> Outermost | None:
        """Return `outermost`, for our own server: frames go there at once, past FastAPI's own layers."""
        return self.outermost

    def _kept_body_bytes(self) -> int:
        """What bodies of cameras have a place in whatever others send; the largest body always fits beside it."""
        limits = self.settings.limits
        return min(self.gateway.promised_body_bytes, limits.inflight_body_bytes - limits.max_body_bytes)

    def drain(self) -> None:
        """Take nothing new, answer long polls with what there is, and give up bodies that are not complete."""
        self.draining.set()
        self.uploads.give_up()

    async def start_gateway(self) -> None:
        """Start the gateway, if nobody has. Raises what `Gateway.start` raises."""
        if not self._started:
            self._started = True
            await self.gateway.start()
            self.metrics.stalls.start()

    async def stop_gateway(self) -> None:
        """Stop the gateway once, whoever asks first, and return when that is done."""
        self.drain()
        if self._stop is None:
            self._stop = asyncio.create_task(self._end())
        await asyncio.shield(self._stop)

    async def _end(self) -> None:
        await self.gateway.stop()
        await self.parser.close()
        self.metrics.stalls.stop()

    def check_not_stopping(self) -> None:
        """Refuse what would only be cut off.

        Raises:
            Stopping: The server is going down.
        """
        if self.draining.is_set():
            raise Stopping(retry_after_s=5)


async def _state(request: Request) -> ApiState:
    state: ApiState = request.app.state.api
    return state


State = Annotated[ApiState, Depends(_state)]


async def while_wanted(work: Coroutine[Any, Any, T], receive: Receive, draining: asyncio.Event) -> T | None:
    """Run `work` until it is done, nobody waits for it any more or the server is going down: then None."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    drain = asyncio.ensure_future(draining.wait())
    try:
        await asyncio.wait({task, gone, drain}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, gone, drain):
            each.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
