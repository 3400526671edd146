"""A gateway in this process, in front of a real Triton; and what its engine did with the models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from benchmarks.swapping.models import TestModel
from gateway.core.actions import Action, LoadModel, ModelChanged, UnloadModel
from gateway.core.config import EngineConfig
from gateway.core.events import Event, ModelUnloaded
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_MS, NS_PER_S, ModelState, ServiceClass, StreamSpec
from gateway.runtime.driver import Observer
from gateway.runtime.gateway import Gateway
from gateway.runtime.results import FrameResult
from gateway.runtime.tickets import FrameTicket
from gateway.settings import Settings

#: No frame of these experiments is given up.
PATIENCE_NS = 600 * NS_PER_S
#: Best-effort frames that come within it may share a batch, up to the limit of the batch; an idle device does not wait
#: for more of them.
WINDOW_MS = 2_000.0
_READY_LIMIT_S = 120.0
_QUIET_LIMIT_S = 60.0
_POLL_S = 0.02


class SynchronousSettings(Settings):
    """Nothing runs while a model loads or unloads: no product offers that, so no setting says it."""

    def engine_config(self) -> EngineConfig:
        """As configured, and synchronous."""
        config = super().engine_config()
        return replace(config, residency=replace(config.residency, synchronous=True))


def make_settings(
    url: str,
    models: Sequence[TestModel],
    *,
    synchronous: bool = False,
    blocking_ms: float = 0.0,
    **residency: float | str,
) -> Settings:
    """Settings of a gateway of `models` with this residency."""
    return (SynchronousSettings if synchronous else Settings)(
        models=[model.name for model in models],
        triton={"url": url, "backoff_max_ms": 200.0},
        best_effort={"window_ms": WINDOW_MS, "blocking_ms": blocking_ms, "max_waiting": 100_000},
        residency=residency,
    )


@asynccontextmanager
async def serving(settings: Settings, profile: Profile, *observers: Observer) -> AsyncIterator[Gateway]:
    """A gateway that is ready; stopped at the end."""
    gateway = Gateway(settings, profile, observers=observers)
    await gateway.start()
    try:
        async with asyncio.timeout(_READY_LIMIT_S):
            while not gateway.ready:  # noqa: ASYNC110 - readiness is polled, as any client of the gateway does
                await asyncio.sleep(_POLL_S)
        yield gateway
    finally:
        await gateway.stop()


async def quiet(gateway: Gateway) -> None:
    """Wait until no model comes or goes."""
    moving = {ModelState.LOADING, ModelState.UNLOADING}
    async with asyncio.timeout(_QUIET_LIMIT_S):
        while any(view.state in moving for view in gateway.model_views()):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)


class Feed:
    """A best-effort stream of one model: frames are sent when the experiment says so."""

    def __init__(self, gateway: Gateway, stream_id: str, frame: bytes) -> None:
        self._gateway = gateway
        self.stream_id = stream_id
        self._frame = frame

    @classmethod
    async def open(cls, gateway: Gateway, model: TestModel, period_ns: int = NS_PER_S) -> Feed:
        """Register it; frames are said to come every `period_ns`."""
        spec = StreamSpec(
            *(model.name, "1", model.shape, period_ns, PATIENCE_NS), service_class=ServiceClass.BEST_EFFORT
        )
        registration = await gateway.register(spec)
        assert registration.stream is not None, "best effort is not tested"
        return cls(gateway, registration.stream.stream_id, model.frame())

    def send(self) -> FrameTicket:
        """Send a frame."""
        [ticket] = self._gateway.submit(self.stream_id, self._frame)
        return ticket

    async def call(self) -> FrameResult:
        """Send a frame and wait for its result."""
        return await self.send().result

    async def close(self) -> None:
        """Close the stream."""
        await self._gateway.close_stream(self.stream_id)


@dataclass(frozen=True)
class Swap:
    """One model for another one, on the gateway's clock: from the first command to the last end."""

    old: str
    new: str
    begin_ns: int
    gone_ns: int
    ready_ns: int

    @property
    def ms(self) -> float:
        """Until the old one is gone and the new one loaded and warmed."""
        return (max(self.gone_ns, self.ready_ns) - self.begin_ns) / NS_PER_MS


class SwapLog:
    """Implements `gateway.runtime.driver.Observer`.

    Attributes:
        loads: How many loads were commanded.
        said: Commands and ends ``(instant, word, model)`` since `clear`: load, unload, gone, resident.
    """

    def __init__(self) -> None:
        self.loads = 0
        self.said: list[tuple[int, str, str]] = []

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        """Note what is said of models."""
        if isinstance(event, ModelUnloaded):
            self.said.append((now_ns, "gone", event.model))
        for action in actions:
            match action:
                case LoadModel():
                    self.loads += 1
                    self.said.append((now_ns, "load", action.model))
                case UnloadModel():
                    self.said.append((now_ns, "unload", action.model))
                case ModelChanged(state=ModelState.RESIDENT):
                    self.said.append((now_ns, "resident", action.model))

    def clear(self) -> None:
        """Forget what was said."""
        self.said.clear()

    def swap(self) -> Swap:
        """Return the only swap since `clear`."""
        [old] = [model for _, word, model in self.said if word == "unload"]
        [new] = [model for _, word, model in self.said if word == "load"]
        [gone_ns] = [at_ns for at_ns, word, _ in self.said if word == "gone"]
        [ready_ns] = [at_ns for at_ns, word, _ in self.said if word == "resident"]
        return Swap(old, new, min(at_ns for at_ns, _, _ in self.said), gone_ns, ready_ns)
