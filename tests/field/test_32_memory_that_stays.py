"""Report 32: unloading does not give all memory back; no load begins on what is not there, and the loss is shown."""

import asyncio

import pytest

from gateway.core.profile import ModelEntry, Profile
from gateway.core.types import Outcome, ServiceClass
from gateway.runtime.gateway import Gateway
from gateway.telemetry.collector import GatewayCollector
from gateway.telemetry.metrics import Metrics
from tests.runtime_support import admitted, frame, make_profile, make_settings, until
from tests.stand_in import Model, StandIn

MB = 1 << 20
NAMES = ("a", "b", "c")
BUDGET = 2 * MB
CYCLES = 50


def sized_profile() -> Profile:
    entries = make_profile(models=NAMES, batches=(1, 2)).entries
    return Profile(entries=entries, models=tuple(ModelEntry(name, "1", 5.0, 2.0, MB) for name in NAMES))


class Watched:
    """A gateway with room for two of three models, and what the device had free at each load that it began."""

    def __init__(self, gives_back: float) -> None:
        self.triton = StandIn(*(Model(name, loaded=False, gives_back=gives_back) for name in NAMES))
        self.metrics = Metrics("test")
        self.free_at_loads: list[int] = []
        repository = self.triton.repository

        def note(call):
            model = self.triton.models[call.name]
            loading = MB if model.state == "LOADING" and not model.loaded else 0  # the stand-in counts it at once
            self.free_at_loads.append(BUDGET - (repository.used_bytes - repository.base_bytes - loading))
            return 0.0

        repository.load_delay_s = note

    async def __aenter__(self):
        await self.triton.start()
        settings = make_settings(
            self.triton.url,
            models=list(NAMES),
            best_effort={"window_ms": 1, "timeout_ms": 5_000},
            residency={"budget_bytes": BUDGET, "metrics_url": self.triton.metrics_url, "metrics_interval_s": 0.02},
        )
        self.gateway = Gateway(settings, sized_profile(), observers=[self.metrics])
        await self.gateway.start()
        await until(lambda: self.gateway.ready)
        asked = self.triton.metrics.asked
        await until(lambda: self.triton.metrics.asked > asked)  # what is in use without any loss is known
        await asyncio.sleep(0.05)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gateway.stop()
        await self.triton.stop()

    def lost(self) -> float | None:
        """Return what the gateway's metrics say."""
        self.metrics.registry.register(GatewayCollector(self.gateway, self.metrics))
        return self.metrics.registry.get_sample_value("framegate_memory_lost", {"unit": "bytes"})

    async def swap(self, cycles: int) -> list[tuple[Outcome, str]]:
        """Use the three models one after the other, so that each has to make room for the next but one."""
        streams = [
            await admitted(
                self.gateway, model=name, service_class=ServiceClass.BEST_EFFORT, period_ms=5_000, deadline_ms=5_000
            )
            for name in NAMES
        ]
        ended = []
        for cycle in range(cycles):
            ticket = self.gateway.submit(streams[cycle % 3].stream_id, frame(cycle))[0]
            result = await ticket.result
            ended.append((result.outcome, result.reason))
            memory = self.gateway.view().memory
            assert 0 <= memory.held <= BUDGET
            assert memory.lost >= 0
        return ended


@pytest.mark.parametrize(("gives_back", "met"), [(0.6, 0), (0.93, 5)])
def test_no_load_begins_on_memory_that_was_not_given_back(gives_back, met):
    """Each registration of a stream loads its model, too: at 60 % that is all that there is memory for."""

    async def main():
        async with Watched(gives_back) as watched:
            ended = await watched.swap(CYCLES)
            assert min(watched.free_at_loads) >= MB, "each found room, by what the device really had"
            assert len(watched.free_at_loads) >= len(NAMES)
            assert sum(outcome is Outcome.MET for outcome, _ in ended) >= met
            assert [outcome for outcome, _ in ended[-3:]] == [Outcome.FAILED] * 3, "in the end not even one fits"
            lost = watched.triton.repository.lost_bytes
            assert lost > MB
            assert all(f"{lost} were not given back" in reason for _, reason in ended[-3:]), "the refusal says why"
            assert watched.gateway.view().memory.lost == lost
            assert watched.lost() == lost

    asyncio.run(main())


def test_without_a_leak_fifty_swaps_lose_nothing():
    async def main():
        async with Watched(gives_back=1.0) as watched:
            ended = await watched.swap(CYCLES)
            assert {outcome for outcome, _ in ended} <= {Outcome.MET, Outcome.MISSED}
            assert len(watched.free_at_loads) > CYCLES / 2, "they did swap"
            assert min(watched.free_at_loads) >= MB
            assert watched.gateway.view().memory.lost == 0

    asyncio.run(main())


def test_models_that_grow_count_against_the_budget():
    """An arena keeps the peak of a large input: nobody was unloaded, and still there is less room."""

    async def main():
        async with Watched(gives_back=1.0) as watched:
            await watched.swap(4)
            watched.triton.repository.base_bytes += MB // 2
            await watched.swap(3)
            await until(lambda: watched.gateway.view().memory.lost == MB // 2)

    asyncio.run(main())
