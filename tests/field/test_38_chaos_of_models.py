"""Report 38, more of it: eight tasks load, unload, pin, register and send at random, on six models; loads fail."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from random import Random

import pytest

from gateway.core.profile import ModelEntry, Profile
from gateway.core.types import ModelState, ServiceClass
from gateway.errors import FramegateError
from gateway.runtime.gateway import Gateway
from tests.runtime_support import admitted, frame, gateway_on_stand_in, make_profile, make_spec, until
from tests.stand_in import Model, StandIn

MIB = 1 << 20
SIZES = {"a": 1, "b": 2, "c": 3, "d": 1, "e": 2, "f": 3}
#: About half of them fit.
BUDGET = 6 * MIB
#: What a command, a registration or a frame may be answered meanwhile. Everything else is a fault.
HONEST = {
    *("model_load_failed", "model_not_loaded", "model_pinned", "no_room_for_model", "command_overtaken"),
    *("model_takes_turns", "not_schedulable", "admission_busy", "best_effort_full", "arena_full", "stream_closed"),
}
ENDS = {"met", "missed", "expired", "failed", "cancelled"}
#: Seconds. Of any one call: far beyond all loads that it may have to wait for.
PATIENCE = 20


def profile() -> Profile:
    entries = make_profile(models=SIZES).entries
    return Profile(entries, tuple(ModelEntry(name, "1", 20, 10, size * MIB) for name, size in SIZES.items()))


def unreliable(triton: StandIn, rng: Random, *, late: bool) -> None:
    """Some loads fail; with `late`, some take longer than they are given."""
    repository = triton.repository
    repository.load_error = lambda call: "it is broken" if rng.random() < 0.15 else ""
    repository.load_delay_s = lambda call: rng.choice([0, 0, 0.01, 0.03, 0.03, 0.6 if late else 0.1])
    repository.unload_delay_s = lambda call: rng.choice([0, 0, 0.01, 0.03])
    triton.delay_s = lambda call: rng.choice([0, 0, 0.003])


class Tasks:
    """What they do, and what comes of it."""

    def __init__(self, gateway: Gateway, seed: int) -> None:
        self.gateway = gateway
        self.seed = seed
        self.answers: Counter[str] = Counter()
        self.streams: dict[str, str] = {}

    async def open(self) -> None:
        for name in SIZES:
            stream = await admitted(self.gateway, model=name, deadline_ms=5_000, service_class=ServiceClass.BEST_EFFORT)
            self.streams[name] = stream.stream_id

    async def run(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        await asyncio.gather(*(self._task(Random(f"{self.seed} {n}"), until_s) for n in range(8)))

    async def _task(self, rng: Random, until_s: float) -> None:
        kinds = [self._load, self._unload, self._pin, self._camera, *[self._infer] * 6]
        while time.monotonic() < until_s:
            kind, model = rng.choice(kinds), rng.choice([*SIZES])
            try:
                async with asyncio.timeout(PATIENCE):
                    await kind(model, rng)
            except FramegateError as error:
                if error.code not in HONEST:
                    raise
                self.answers[f"{kind.__name__} {error.code}"] += 1
            await asyncio.sleep(rng.choice([0, 0, 0.005]))

    async def _load(self, model: str, _rng: Random) -> None:
        assert (await self.gateway.load_model(model)).model == model
        self.answers["loaded"] += 1

    async def _unload(self, model: str, rng: Random) -> None:
        assert (await self.gateway.unload_model(model, force=rng.random() < 0.5)).model == model
        self.answers["unloaded"] += 1

    async def _pin(self, model: str, rng: Random) -> None:
        await self.gateway.pin_model(model, pinned=rng.random() < 0.3)

    async def _infer(self, model: str, rng: Random) -> None:
        tickets = self.gateway.submit(self.streams[model], frame(7) * rng.randint(1, 3))
        for ticket in tickets:
            result = await ticket.result
            assert result.outcome in ENDS
            self.answers[f"frame {result.outcome}"] += 1

    async def _camera(self, model: str, rng: Random) -> None:
        """A stream with deadlines comes, sends, and goes."""
        registration = await self.gateway.register(make_spec(model=model, period_ms=20, deadline_ms=400))
        if registration.stream is None:
            self.answers["refused"] += 1
            return
        stream_id = registration.stream.stream_id
        self.answers["camera"] += 1
        for _ in range(rng.randint(0, 5)):
            (ticket,) = self.gateway.submit(stream_id, frame(9))
            self.answers[f"promised frame {(await ticket.result).outcome}"] += 1
        await self.gateway.close_stream(stream_id)


async def let_go(gateway: Gateway, triton: StandIn) -> None:
    """Have everything unloaded, when nothing fails any more."""
    triton.repository.load_error = lambda call: ""
    triton.repository.load_delay_s = lambda call: 0.0
    for name in SIZES:
        await gateway.pin_model(name, pinned=False)
        async with asyncio.timeout(PATIENCE):
            view = await gateway.unload_model(name, force=True)
        assert view.state is ModelState.ABSENT


@pytest.mark.parametrize(
    ("room", "late"),
    [
        ({"budget_bytes": BUDGET}, False),
        ({"budget_bytes": BUDGET, "headroom_bytes": 3 * MIB}, False),
        ({"budget_bytes": BUDGET}, True),
        ({}, True),
    ],
    ids=["strict", "headroom", "late loads", "no budget"],
)
def test_nothing_is_lost_and_nothing_hangs(room, late, length):
    async def main() -> None:
        models = [Model(name, loaded=False, bytes=size * MIB) for name, size in SIZES.items()]
        residency = {**room, "load_timeout_s": 0.3, "unload_timeout_s": 5, "backoff_s": 0.05, "backoff_max_s": 0.2}
        async with gateway_on_stand_in(profile(), *models, residency=residency) as (gateway, triton):
            repository = triton.repository
            tasks = Tasks(gateway, seed=1)
            await tasks.open()
            unreliable(triton, Random(0), late=late)
            await tasks.run(length(2.0, 120))
            assert tasks.answers["frame met"] > 20, tasks.answers
            assert tasks.answers["loaded"] > 2, tasks.answers
            await let_go(gateway, triton)
            await until(lambda: gateway.view().memory.held == 0)  # what was given up may have to end first
            await until(lambda: repository.used_bytes == repository.base_bytes)
            assert repository.strays == [], "a frame went to a model that was not there"
            if room:
                most = repository.most_bytes - repository.base_bytes
                assert most <= room["budget_bytes"] + room.get("headroom_bytes", 0)
            assert gateway.arena.free_bytes == gateway.arena.region.size

    asyncio.run(main())
