"""The models of the stand-in for Triton: how they come and go, what they hold, and what its index says meanwhile.

As Triton does it: a load answers when it is over, goes on though its caller has gone, and leaves a version that is
there in use until it has succeeded; an unload answers at once, and is over when the index says so, not before the
calls in flight have ended. What is asked of one model happens one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

#: How often whatever waits looks again; hangs can thus be ended from another thread.
_LOOK_S = 0.002
_MB = 1 << 20


@dataclass
class Model:
    """One model. What is marked with (*) may be changed at any time.

    Attributes:
        loaded: A version of it can be used.
        load_error: (*) Words with which its loads fail, or "".
        load_delay_s, unload_delay_s: (*) How long each takes.
        load_hangs, unload_hangs: (*) It does not end while this is set.
        unload_error: (*) Words with which unloads are refused, or "".
        next_versions: (*) What the next load that succeeds finds; empty: what there is.
        bytes: What it holds while it is loaded.
        gives_back: (*) The share of it that an unload gives back; the rest is lost.
        state: As the index says it; "" for one that was never loaded.
        serial: Its executions, and those of others that are, come one after the other, as with a rate limiter.
    """

    name: str
    versions: tuple[str, ...] = ("1",)
    max_batch_size: int = 64
    datatype: str = "UINT8"
    loaded: bool = True
    load_error: str = ""
    load_delay_s: float = 0.0
    outputs: tuple[str, ...] = ("echo", "stamp")
    dims: tuple[int, ...] = (-1, -1, 3)
    blob_bytes: int = 0
    input_name: str = "frames"
    unload_delay_s: float = 0.0
    load_hangs: bool = False
    unload_hangs: bool = False
    unload_error: str = ""
    next_versions: tuple[str, ...] = ()
    bytes: int = _MB
    gives_back: float = 1.0
    state: str = ""
    reason: str = ""
    loads: int = 0
    using: int = 0
    serial: bool = False


@dataclass
class Call:
    """One call that came. `peer` is its connection's other end, `error` what it was answered with if it failed.

    `ran`: when its execution began.
    """

    method: str
    name: str = ""
    rows: int = 0
    shape: tuple[int, ...] = ()
    way: str = ""
    peer: str = ""
    version: str = ""
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    ran: float = 0.0
    error: str = ""
    parameters: dict[str, int] = field(default_factory=dict)


class LoadError(Exception):
    """A load or an unload that the stand-in refuses."""


class Repository:
    """The models of one stand-in.

    Attributes:
        models: By name.
        load_delay_s, unload_delay_s: Called with the `Call`, say how much longer it takes than its model's own.
        load_error: Called with a load's `Call`, returns words to fail it with, or "".
        base_bytes, lost_bytes: Held beside the models, and not given back by those that went.
        most_bytes: The most that was ever held in all.
        states: Every change of a model's state, as (monotonic seconds, model, state).
        strays: Calls that came for a model that was not there.
    """

    def __init__(self, models: dict[str, Model]) -> None:
        self.models = models
        self.load_delay_s: Callable[[Call], float] = lambda call: 0.0
        self.unload_delay_s: Callable[[Call], float] = lambda call: 0.0
        self.load_error: Callable[[Call], str] = lambda call: ""
        self.base_bytes = 100 * _MB
        self.lost_bytes = 0
        self.most_bytes = 0
        self.states: list[tuple[float, str, str]] = []
        self.strays: list[Call] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: dict[str, asyncio.Lock] = {}
        for model in models.values():
            model.state = "READY" if model.loaded else ""

    @property
    def used_bytes(self) -> int:
        """What the device's memory would show."""
        held = sum(model.bytes for model in self.models.values() if self._holds(model))
        return self.base_bytes + held + self.lost_bytes

    def index(self) -> list[tuple[str, str, str, str]]:
        """Return (name, version, state, reason) of every row. `Model.loaded`, set by hand, goes before the state."""
        rows = []
        for model in self.models.values():
            state = model.state if self._busy(model) else "READY" if model.loaded else model.state.replace("READY", "")
            rows += [(model.name, version, state, model.reason) for version in (model.versions if state else ("",))]
        return rows

    async def load(self, call: Call) -> None:
        """Return once the model is loaded; its caller may go, the load goes on. Raises `LoadError`."""
        model = self.models.get(call.name)
        if model is None:
            raise LoadError(f"failed to load '{call.name}', failed to poll from model repository")
        await self._go_on(self._load_in_turn(model, call))

    async def unload(self, call: Call) -> None:
        """Begin to unload the model, which may be over at once. Raises `LoadError`."""
        model = self.models.get(call.name)
        if model is None:
            raise LoadError(f"failed to unload '{call.name}', no such model")
        if model.unload_error:
            raise LoadError(model.unload_error)
        delay_s = model.unload_delay_s + self.unload_delay_s(call)
        turn = self._turn(model)
        await turn.acquire()
        was_there, model.loaded = model.loaded, False
        if delay_s or model.unload_hangs or model.using:
            self._enter(model, "UNLOADING", "")
            self._spawn(self._unload(model, delay_s, call)).add_done_callback(lambda _: turn.release())
        else:
            self._gone(model, call, lost=was_there)
            turn.release()

    def stop(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()

    def forget(self) -> None:
        """Be a process that was killed: nothing is loaded, and what was under way is not any more."""
        self.stop()
        self._turns.clear()
        self.lost_bytes = 0
        for model in self.models.values():
            model.loaded, model.using = False, 0
            self._enter(model, "", "")

    def _turn(self, model: Model) -> asyncio.Lock:
        return self._turns.setdefault(model.name, asyncio.Lock())

    async def _load_in_turn(self, model: Model, call: Call) -> None:
        async with self._turn(model):
            await self._load(model, call)

    async def _load(self, model: Model, call: Call) -> None:
        if not model.loaded:
            self._enter(model, "LOADING", "")
        await asyncio.sleep(model.load_delay_s + self.load_delay_s(call))
        while model.load_hangs:
            await asyncio.sleep(_LOOK_S)
        call.ended = time.monotonic()
        call.error = model.load_error or self.load_error(call)
        if call.error:
            if not model.loaded:
                self._enter(model, "UNAVAILABLE", call.error)
            raise LoadError(call.error)
        model.versions = model.next_versions or model.versions
        model.loaded = True
        model.loads += 1
        self._enter(model, "READY", "")

    async def _unload(self, model: Model, delay_s: float, call: Call) -> None:
        await asyncio.sleep(delay_s)
        while model.unload_hangs or model.using:
            await asyncio.sleep(_LOOK_S)
        self._gone(model, call, lost=True)

    def _gone(self, model: Model, call: Call, *, lost: bool) -> None:
        call.ended = time.monotonic()
        if lost:
            self.lost_bytes += round(model.bytes * (1 - model.gives_back))
        self._enter(model, "UNAVAILABLE", "unloaded")

    def _enter(self, model: Model, state: str, reason: str) -> None:
        model.state, model.reason = state, reason
        self.states.append((time.monotonic(), model.name, state))
        self.most_bytes = max(self.most_bytes, self.used_bytes)

    def _busy(self, model: Model) -> bool:
        return model.state in ("LOADING", "UNLOADING")

    def _holds(self, model: Model) -> bool:
        return model.loaded or self._busy(model)

    def _spawn(self, work) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _go_on(self, work) -> None:
        """Await `work`, which goes on by itself when the caller is gone."""
        task = self._spawn(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # somebody has looked at it
        await asyncio.shield(task)
