"""Which model goes: the least recently used one, or the one whose next frame is furthest away.

Three models, room for two, frames at fixed periods that both gateways know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from benchmarks.swapping.models import CLASSES, EXTRA, FACES
from benchmarks.swapping.serving import Feed, SwapLog, make_settings, quiet, serving
from benchmarks.swapping.worst_case import known
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_S, Outcome

MODELS = (CLASSES, FACES, EXTRA)
ROOM = 2
POLICIES = ("lru", "next_use")
#: Periods and first instants in s: one after the other in a circle, which is the worst for LRU; and all different.
#: Between two frames there is time for a swap.
SCHEDULES = (((9.0, 0.0), (9.0, 3.0), (9.0, 6.0)), ((6.0, 0.0), (12.0, 2.0), (12.0, 4.0)))
Say = Callable[[str], object]


def instants(schedule: tuple[tuple[float, float], ...], seconds: float) -> list[tuple[float, int]]:
    """Return ``(instant in s, index of the model)``, in order of time."""

    def of(index: int, period_s: float, first_s: float) -> list[tuple[float, int]]:
        endless = ((first_s + n * period_s, index) for n in range(int(seconds / period_s) + 1))
        return list(takewhile(lambda frame: frame[0] < seconds, endless))

    return sorted(frame for index, stream in enumerate(schedule) for frame in of(index, *stream))


async def run(
    url: str, profile: Profile, policy: str, schedule: tuple[tuple[float, float], ...], seconds: float
) -> dict[str, int]:
    """Return how many models were loaded for the same frames, and how many frames there were."""
    log = SwapLog()
    settings = make_settings(url, MODELS, max_models=ROOM, replacement=policy)
    async with serving(settings, known(profile, MODELS), log) as gateway:
        feeds = [
            await Feed.open(gateway, model, round(period_s * NS_PER_S))
            for model, (period_s, _) in zip(MODELS, schedule, strict=True)
        ]
        await quiet(gateway)
        loads, loop = log.loads, asyncio.get_running_loop()
        epoch_s = loop.time()
        tickets = []
        for at_s, index in instants(schedule, seconds):
            await asyncio.sleep(max(0.0, epoch_s + at_s - loop.time()))
            tickets.append(feeds[index].send())
        ended = await asyncio.gather(*(ticket.result for ticket in tickets))
        await quiet(gateway)
    assert all(result.outcome is Outcome.MET for result in ended), ended
    return {"swaps": log.loads - loads, "frames": len(ended)}


async def measure_policies(url: str, profile: Profile, say: Say, *, seconds: float) -> dict[str, Any]:
    """Return the runs of both policies, and the swaps of each in all."""
    runs: dict[str, list[dict[str, int]]] = {}
    for policy in POLICIES:
        runs[policy] = [await run(url, profile, policy, schedule, seconds) for schedule in SCHEDULES]
        say(f"{policy}: {runs[policy]}")
    return {"runs": runs, "swaps": {policy: sum(each["swaps"] for each in runs[policy]) for policy in POLICIES}}
