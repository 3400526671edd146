"""What tests of the runtime share: a gateway on a stand-in, and profiles for it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.core.profile import Profile
from gateway.core.profile_entry import ProfileEntry
from gateway.core.types import NS_PER_MS, StreamSpec
from gateway.runtime.driver import Observer
from gateway.runtime.gateway import Gateway
from gateway.runtime.results import StreamRecord
from gateway.settings import Settings
from tests.stand_in import StandIn

SHAPE = (8, 8, 3)
SHM = Path("/dev/shm")


def make_profile(
    batches: Sequence[int] = (1, 2, 4, 8),
    shapes: Iterable[tuple[int, ...]] = (SHAPE,),
    models: Iterable[str] = ("echo",),
    execution_ms: float = 1.0,
) -> Profile:
    return Profile(
        entries=tuple(
            ProfileEntry(model, "1", shape, "UINT8", batch, 100, execution_ms, execution_ms, execution_ms)
            for model in models
            for shape in shapes
            for batch in batches
        )
    )


def make_settings(url: str, **groups: dict[str, object]) -> Settings:
    """Frames may come as a test likes, unless it asks for policing."""
    groups["scheduling"] = {"policing": False} | groups.get("scheduling", {})
    triton = {"url": url, "backoff_max_ms": 200} | groups.pop("triton", {})
    arena = {"bytes": 1 << 20} | groups.pop("arena", {})
    server = {"shutdown_grace_s": 1} | groups.pop("server", {})
    return Settings(triton=triton, arena=arena, server=server, **groups)


def make_spec(period_ms: float = 100, deadline_ms: float = 200, **fields: object) -> StreamSpec:
    defaults = {"model": "echo", "version": "", "shape": SHAPE}
    return StreamSpec(
        period_ns=round(period_ms * NS_PER_MS), deadline_ns=round(deadline_ms * NS_PER_MS), **(defaults | fields)
    )


@asynccontextmanager
async def running_gateway(
    url: str,
    profile: Profile | None = None,
    *,
    wait_ready: bool = True,
    observers: Sequence[Observer] = (),
    **groups: dict[str, object],
) -> AsyncIterator[Gateway]:
    gateway = Gateway(make_settings(url, **groups), profile or make_profile(), observers=observers)
    await gateway.start()
    try:
        if wait_ready:
            await until(lambda: gateway.ready)
        yield gateway
    finally:
        await gateway.stop()


@asynccontextmanager
async def gateway_on_stand_in(
    profile: Profile | None = None, *models: object, **options: object
) -> AsyncIterator[tuple[Gateway, StandIn]]:
    """A gateway as beside the embedded Triton: calls go over HTTP, if they can."""
    async with StandIn(*models) as triton:
        options["triton"] = triton.addresses | options.get("triton", {})
        async with running_gateway(triton.url, profile, **options) as gateway:
            triton.calls.clear()
            yield gateway, triton


async def until(condition: Callable[[], object], limit_s: float = 10.0) -> float:
    """Poll until `condition` holds; return how long that took in seconds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, "the condition was never met"
        await asyncio.sleep(0.002)
    return time.monotonic() - began


async def admitted(gateway: Gateway, **fields: object) -> StreamRecord:
    registration = await gateway.register(make_spec(**fields))
    assert registration.stream is not None, registration.verdict
    return registration.stream


def frame(value: int, shape: tuple[int, ...] = SHAPE) -> bytes:
    height, width, channels = shape
    return bytes([value]) * (height * width * channels)


def shm_files() -> set[str]:
    """The regions of this process; other test runs may go on beside it."""
    return {path.name for path in SHM.glob(f"framegate-{os.getpid()}-*")}
