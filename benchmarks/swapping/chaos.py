"""Loads, unloads and calls at random, with loads that fail; then Triton is killed, again and again."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tritonclient.grpc.aio as triton_client
import uvloop
from tritonclient.utils import InferenceServerException

from benchmarks.swapping.models import CLASSES, FACES, TestModel
from benchmarks.swapping.serving import Feed, make_settings, quiet, serving
from gateway.api.keeper import keep_running
from gateway.core.actions import Action, ModelChanged, StartJob
from gateway.core.events import Event, JobFailed
from gateway.core.profile import ModelEntry, Profile, ProfileEntry
from gateway.core.types import ModelState, Outcome
from gateway.errors import FramegateError
from gateway.runtime.gateway import Gateway
from gateway.triton.embedded import EmbeddedTriton

TASKS = 8
ROOM = 3
KILLS = 3
#: Of the steps of a task: the rest are calls.
LOADS, UNLOADS = 0.15, 0.15
#: How long a model's file is damaged, and how long it is whole, in s on average.
DAMAGED_S, WHOLE_S = 3.0, 5.0
SEED = 38
_END_LIMIT_S = 120.0
_RETURN_LIMIT_S = 60.0
_POLL_S = 0.02
#: Words of Triton's refusals of a model that is not there.
_NOT_THERE = ("not ready", "not found", "unknown model", "unavailable")
Say = Callable[[str], object]


@dataclass
class Witness:
    """Implements `gateway.runtime.driver.Observer`: sees whether jobs run on models that are resident.

    Attributes:
        early: Jobs that started while their model was not.
        refused: Jobs that Triton refused because it had no such model.
        kinds: How often which state was reached.
    """

    resident: set[str] = field(default_factory=set)
    early: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def on_actions(self, now_ns: int, event: Event, actions: list[Action]) -> None:
        """Look at what happened, in its order."""
        if isinstance(event, JobFailed) and any(words in event.reason.lower() for words in _NOT_THERE):
            self.refused.append(event.reason)
        for action in actions:
            if isinstance(action, ModelChanged):
                self.kinds[action.state.value] += 1
                (self.resident.add if action.state is ModelState.RESIDENT else self.resident.discard)(action.model)
            elif isinstance(action, StartJob) and not action.job.warm_up:
                model = action.job.category.model
                if model not in self.resident:
                    self.early.append(model)


def make_models(folder: Path, repository: Path) -> list[TestModel]:
    """Copy the two real models into `folder`, three times each."""
    found = []
    for original in (FACES, CLASSES):
        for n in range(1, 4):
            model = TestModel(f"{original.name}_{n}", original.shape)
            shutil.copytree(repository / original.name, folder / model.name)
            config = folder / model.name / "config.pbtxt"
            config.write_text(config.read_text().replace(f'name: "{original.name}"', f'name: "{model.name}"'))
            found.append(model)
    return found


def assumed(models: list[TestModel]) -> Profile:
    """What a gateway of `models` needs to know; nothing is promised here, so it need not be measured."""
    return Profile(
        entries=tuple(
            ProfileEntry(m.name, "1", m.shape, "UINT8", n, 100, 10.0 * n, 10.0 * n, 10.0 * n)
            for m in models
            for n in (1, 2)
        ),
        models=tuple(ModelEntry(m.name, "1", 300.0, 1_200.0, 1 << 26) for m in models),
    )


class Chaos:
    """The tasks, and what they saw."""

    def __init__(self, gateway: Gateway, models: list[TestModel], feeds: dict[str, Feed], folder: Path) -> None:
        self.seen: Counter[str] = Counter()
        self._gateway = gateway
        self._models = [model.name for model in models]
        self._feeds = feeds
        self._folder = folder

    async def run(self, seconds: float) -> None:
        """All tasks at once, for `seconds`; whatever they wait for then has to end too."""
        async with asyncio.timeout(seconds + _END_LIMIT_S):
            damage = asyncio.create_task(self._damage())
            await asyncio.gather(*(self._task(random.Random(SEED + n), seconds) for n in range(TASKS)))
            damage.cancel()
            with suppress(asyncio.CancelledError):
                await damage

    async def _task(self, draw: random.Random, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            await self._step(draw, draw.choice(self._models))
            await asyncio.sleep(draw.uniform(0, 0.05))

    async def _step(self, draw: random.Random, model: str) -> None:
        chance = draw.random()
        try:
            if chance < LOADS:
                await self._gateway.load_model(model)
                self.seen["load"] += 1
            elif chance < LOADS + UNLOADS:
                await self._gateway.unload_model(model)
                self.seen["unload"] += 1
            else:
                result = await self._feeds[model].call()
                reason = "" if result.outcome is Outcome.MET else f": {result.reason.partition(':')[0]}"
                self.seen[f"call {result.outcome.value}{reason}"] += 1
        except FramegateError as error:
            self.seen[f"refused: {error.code}"] += 1

    async def _damage(self) -> None:
        """Damage the file of one model and put it back, over and over."""
        draw = random.Random(SEED)
        while True:
            file = self._folder / draw.choice(self._models) / "1" / "model.onnx"
            await asyncio.sleep(draw.expovariate(1 / WHOLE_S))
            whole = file.rename(file.with_suffix(".whole"))
            file.write_bytes(whole.read_bytes()[:1000])
            try:
                await asyncio.sleep(draw.expovariate(1 / DAMAGED_S))
            finally:
                whole.rename(file)


async def emptied(gateway: Gateway, models: list[TestModel]) -> int:
    """Have all models unloaded, and return what is still held of the budget."""
    await quiet(gateway)
    for model in models:
        await gateway.unload_model(model.name, force=True)
    await quiet(gateway)
    return gateway.view().memory.held


async def back(triton: EmbeddedTriton, gateway: Gateway, feed: Feed) -> dict[str, float]:
    """Kill Triton, and return after how long it was ready, and how long after that a frame was served."""
    before = {view.model for view in gateway.model_views() if view.state is ModelState.RESIDENT}
    assert triton.pid is not None
    os.kill(triton.pid, signal.SIGKILL)
    killed_s = time.monotonic()
    ready = asyncio.create_task(_ready_s(triton.grpc_url))
    served_s = await _served_s(feed)
    ready_s = await ready
    async with asyncio.timeout(_RETURN_LIMIT_S):
        while before - {v.model for v in gateway.model_views() if v.state is ModelState.RESIDENT}:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
    all_s = time.monotonic()
    return {
        "ready_s": round(ready_s - killed_s, 2),
        "serving_after_s": round(served_s - ready_s, 2),
        "all_models_after_s": round(all_s - ready_s, 2),
    }


async def _ready_s(url: str) -> float:
    """Return when Triton answered that it is ready."""
    await asyncio.sleep(2 * _POLL_S)  # the one that was killed does not any more
    # By itself gRPC waits for 1 s and more between attempts to connect, and Triton would be seen too late.
    at_once = [(f"grpc.{name}_reconnect_backoff_ms", 50) for name in ("initial", "min", "max")]
    async with (
        triton_client.InferenceServerClient(url, channel_args=at_once) as client,
        asyncio.timeout(_RETURN_LIMIT_S),
    ):
        while True:
            with suppress(InferenceServerException):
                if await client.is_server_ready():
                    return time.monotonic()
            await asyncio.sleep(_POLL_S)


async def _served_s(feed: Feed) -> float:
    """Return when a frame that came after the kill was answered."""
    async with asyncio.timeout(_RETURN_LIMIT_S):
        while True:
            with suppress(FramegateError):
                if (await feed.call()).outcome is Outcome.MET:
                    return time.monotonic()
            await asyncio.sleep(_POLL_S)


async def _measure(triton: EmbeddedTriton, models: list[TestModel], say: Say, seconds: float) -> dict[str, Any]:
    witness = Witness()
    settings = make_settings(triton.grpc_url, models, max_models=ROOM, backoff_s=0.2, backoff_max_s=1.0)
    keeper = asyncio.create_task(keep_running(triton))
    try:
        async with serving(settings, assumed(models), witness) as gateway:
            witness.resident |= {v.model for v in gateway.model_views() if v.state is ModelState.RESIDENT}
            feeds = {model.name: await Feed.open(gateway, model) for model in models}
            start_held = await emptied(gateway, models)
            chaos = Chaos(gateway, models, feeds, triton.model_repository)
            await chaos.run(seconds)
            say(f"chaos: {dict(chaos.seen)}")
            end_held = await emptied(gateway, models)
            for model in models[:ROOM]:
                await gateway.load_model(model.name)
            kills = [await back(triton, gateway, feeds[models[0].name]) for _ in range(KILLS)]
            say(f"killed: {kills}")
    finally:
        keeper.cancel()
    return {
        "seen": dict(sorted(chaos.seen.items())),
        "states": dict(witness.kinds),
        "held": {"start": start_held, "end": end_held},
        "not_resident": len(witness.early),
        "refused_by_triton": witness.refused[:5],
        "kills": kills,
    }


def measure_chaos(folder: Path, repository: Path, say: Say, *, seconds: float) -> dict[str, Any]:
    """Run it in a Triton of its own, in the main thread."""
    own = folder / "chaos"
    models = make_models(own, repository)
    with EmbeddedTriton(own, folder / "chaos.log", intra_op_threads=1) as triton:
        found: dict[str, Any] = uvloop.run(_measure(triton, models, say, seconds))
    return found
