"""The paper's simulated workloads, with asynchronous and with synchronous loading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.swapping.results import Results
from benchmarks.swapping.serving import Feed, SwapLog, make_settings, quiet, serving
from benchmarks.swapping.workload import SEEDS, SETS, Cell, ModelSet, arrivals, cells
from gateway.core.profile import Profile
from gateway.core.types import NS_PER_S, Outcome
from gateway.runtime.gateway import Gateway

MODES = ("async", "sync")
#: After the last arrival. What has not been answered then counts with what it has waited, and is cancelled: queues that
#: only grow would take minutes.
DRAIN_S = 15.0
Say = Callable[[str], object]


def run_name(cell: Cell, mode: str, seed: int) -> str:
    """Where the figures of one run are kept."""
    return f"cell; {cell.name}; {mode}; seed {seed}"


@dataclass(frozen=True)
class Cells:
    """The runs of all cells; what is in `results` already is not run again.

    Attributes:
        seeds: How many of `SEEDS` each cell is run with, in each way of loading.
    """

    url: str
    profile: Profile
    results: Results
    say: Say
    seconds: float
    seeds: int

    async def measure(self) -> None:
        """Run them.

        A gateway serves all cells of one set, mode and seed, one after the other, so that both modes of a seed are
        measured within minutes of each other.
        """
        for models in SETS:
            for seed in SEEDS[: self.seeds]:
                for mode in MODES:
                    todo = [
                        cell
                        for cell in cells()
                        if cell.models is models and run_name(cell, mode, seed) not in self.results
                    ]
                    if todo:
                        await self._serve(models, mode, seed, todo)

    async def _serve(self, models: ModelSet, mode: str, seed: int, todo: Sequence[Cell]) -> None:
        log = SwapLog()
        settings = make_settings(self.url, models.models, synchronous=mode == "sync", max_models=models.room)
        async with serving(settings, limited(self.profile, models), log) as gateway:
            for cell in todo:
                rates = cell.rates_per_s(self.profile)
                frames = arrivals(rates, cell.cv, self.seconds, seed)
                found = await run(gateway, log, cell, rates, frames)
                found = self.results.keep(run_name(cell, mode, seed), found | {"seconds": self.seconds})
                self.say(
                    f"{run_name(cell, mode, seed)}: mean {found['mean_ms']} ms, {found['frames']} frames, "
                    f"{found['swaps']} swaps"
                )


def limited(profile: Profile, models: ModelSet) -> Profile:
    """What the gateway of a set knows: its models, and batches up to its limit."""
    names = {model.name for model in models.models}
    return Profile(
        entries=tuple(e for e in profile.entries if e.model in names and e.batch in models.batches),
        models=tuple(m for m in profile.models if m.model in names),
        device=profile.device,
    )


async def run(
    gateway: Gateway, log: SwapLog, cell: Cell, rates: Sequence[float], frames: Sequence[tuple[float, int]]
) -> dict[str, Any]:
    """One run. The warm-up is a frame of each model, one after the other; it ends with the last ones resident."""
    feeds = [
        await Feed.open(gateway, model, round(NS_PER_S / rate))
        for model, rate in zip(cell.models.models, rates, strict=True)
    ]
    for feed in feeds:
        await feed.call()
    await quiet(gateway)
    loads = log.loads
    loop = asyncio.get_running_loop()
    epoch_s = loop.time()
    tickets = []
    for at_s, index in frames:
        if (wait_s := epoch_s + at_s - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        tickets.append(feeds[index].send())
    await asyncio.wait([ticket.result for ticket in tickets], timeout=DRAIN_S)
    given_up = [ticket for ticket in tickets if not ticket.result.done()]
    for ticket in given_up:
        gateway.cancel(ticket)
    ended = await asyncio.gather(*(ticket.result for ticket in tickets))
    figures = {
        "mean_ms": round(fmean(result.latency_ms for result in ended), 1),
        "frames": len(ended),
        "swaps": log.loads - loads,
        "given_up": len(given_up),
        "failed": sum(result.outcome is Outcome.FAILED for result in ended),
        "rates_per_s": [round(rate, 3) for rate in rates],
        "latencies_ms": [round(result.latency_ms, 1) for result in ended],
    }
    for feed in feeds:
        await feed.close()
    await quiet(gateway)
    return figures


def runs_of(results: Results, cell: Cell, mode: str) -> dict[int, dict[str, Any]]:
    """Return the runs of a cell that were made, by seed."""
    names = {seed: run_name(cell, mode, seed) for seed in SEEDS}
    return {seed: results[name] for seed, name in names.items() if name in results}


def mean(results: Results, cell: Cell, mode: str, what: str = "mean_ms", *, paired: bool = False) -> float | None:
    """Return the mean over the seeds that were run, `paired`: in both ways of loading; None without any."""
    runs = runs_of(results, cell, mode)
    seeds = set(runs).intersection(*(runs_of(results, cell, other) for other in MODES)) if paired else set(runs)
    return fmean(runs[seed][what] for seed in seeds) if seeds else None


def table(results: Results) -> list[dict[str, Any]]:
    """Return one row per cell that was measured: means over the seeds of each way of loading."""
    rows = []
    for cell in cells():
        means = {f"{mode}_ms": mean(results, cell, mode) for mode in MODES}
        if any(value is not None for value in means.values()):
            row = {"set": cell.models.name, "rates": list(cell.rates), "cv": cell.cv}
            rows.append(row | {name: None if value is None else round(value, 1) for name, value in means.items()})
    return rows
