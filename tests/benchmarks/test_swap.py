"""What the swapping benchmark rests on: its workloads, its figures, and that it can go on where it stopped."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.swapping import models
from benchmarks.swapping.cells import run_name
from benchmarks.swapping.models import NETS, make_repository
from benchmarks.swapping.policies import SCHEDULES, instants
from benchmarks.swapping.reference import Swap as PlainSwap
from benchmarks.swapping.reference import means
from benchmarks.swapping.report import draw, figures, lines
from benchmarks.swapping.results import Results
from benchmarks.swapping.serving import SwapLog, make_settings
from benchmarks.swapping.workload import LOAD, SETS, Cell, arrivals, cells
from gateway.core.actions import LoadModel, ModelChanged, UnloadModel
from gateway.core.events import ModelLoaded, ModelUnloaded, Tick
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import ModelState


@pytest.mark.parametrize("cv", [0.25, 1.0, 4.0])
def test_intervals_have_the_mean_and_the_variation_that_was_asked_for(cv: float) -> None:
    found = arrivals([5.0, 1.0], cv, 20_000.0, seed=1)
    assert found == sorted(found)
    for index, rate in enumerate((5.0, 1.0)):
        intervals = np.diff([at_s for at_s, model in found if model == index])
        assert intervals.mean() == pytest.approx(1 / rate, rel=0.12)
        assert intervals.std() / intervals.mean() == pytest.approx(cv, rel=0.12)


def test_arrivals_are_the_same_every_time_and_independent() -> None:
    both = arrivals([5.0, 1.0], 1.0, 30.0, seed=1)
    assert both == arrivals([5.0, 1.0], 1.0, 30.0, seed=1)
    assert both != arrivals([5.0, 1.0], 1.0, 30.0, seed=2)
    alone = arrivals([5.0], 1.0, 30.0, seed=1)
    assert [frame for frame in both if frame[1] == 0] == alone, "one model's arrivals do not depend on the others"


def profile(ms: float = 40.0) -> Profile:
    times = {net.name: ms * (1 + n % 3) for n, net in enumerate(NETS)}
    return Profile(
        tuple(ProfileEntry(net.name, "1", net.shape, "UINT8", 1, 100, *([times[net.name]] * 3)) for net in NETS)
    )


def test_the_load_of_every_cell_is_the_same_share_of_the_device() -> None:
    assert len(cells()) == 18
    for cell in cells():
        rates = cell.rates_per_s(profile())
        assert sum(rate * 0.04 * (1 + n % 3) for n, rate in enumerate(rates)) == pytest.approx(LOAD)
        assert rates[: len(rates) // 2 * (len(rates) > 3)] == rates[3:], "with six models the triple is repeated"
        assert rates[0] / rates[2] == pytest.approx(cell.rates[0] / cell.rates[2])


def test_frames_of_the_policies_come_in_a_circle() -> None:
    assert [model for _, model in instants(SCHEDULES[0], 18.0)] == [0, 1, 2, 0, 1, 2]
    assert instants(((2.0, 0.0), (5.0, 1.0)), 6.0) == [(0.0, 0), (1.0, 1), (2.0, 0), (4.0, 0)]


def test_a_swap_lasts_from_the_first_command_to_the_last_end() -> None:
    log = SwapLog()
    log.on_actions(1_000_000, Tick(), [UnloadModel("a", "eviction"), LoadModel("b", "demand")])
    log.on_actions(2_000_000, ModelLoaded("b"), [ModelChanged("b", ModelState.LOADING)])
    log.on_actions(3_000_000, Tick(), [ModelChanged("b", ModelState.RESIDENT)])
    log.on_actions(5_000_000, ModelUnloaded("a"), [ModelChanged("a", ModelState.ABSENT)])
    swap = log.swap()
    assert (swap.old, swap.new, swap.ms, log.loads) == ("a", "b", 4.0, 1)
    log.clear()
    with pytest.raises(ValueError, match="unpack"):
        log.swap()


def test_the_plain_client_is_measured_against_by_the_sum_and_by_the_larger() -> None:
    found = means([PlainSwap(1.0, 0.25, 0.05), PlainSwap(1.2, 0.35, 0.05)])
    assert found.sum_s == pytest.approx(1.45)
    assert found.larger_s == pytest.approx(1.1)
    assert means([PlainSwap(0.1, 0.3, 0.1)]).larger_s == pytest.approx(0.4), "to be ready includes the warm-up"


def test_synchronous_loading_is_said_to_the_engine_alone() -> None:
    for synchronous in (False, True):
        settings = make_settings("127.0.0.1:1", NETS[:3], synchronous=synchronous, max_models=2, replacement="lru")
        residency = settings.engine_config().residency
        assert (residency.synchronous, residency.max_models, residency.replacement.value) == (synchronous, 2, "lru")


# ---------------------------------------------------------------- results


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    calls: Iterator[int] = iter(range(10))

    async def measure() -> int:
        return next(calls)

    path = tmp_path / "out" / "results.json"
    first = Results(path, resume=True)
    assert [asyncio.run(first.once("a", measure)) for _ in range(2)] == [0, 0]
    assert asyncio.run(Results(path, resume=True).once("a", measure)) == 0
    assert asyncio.run(Results(path, resume=False).once("a", measure)) == 1
    assert json.loads(path.read_text()) == {"a": 1}


def run(mean_ms: float) -> dict[str, Any]:
    return {"mean_ms": mean_ms, "frames": 2, "swaps": 3, "latencies_ms": [mean_ms - 1, mean_ms + 1]}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """One row of the first set: asynchronous 100, 90 and 50 ms with the first seed, twice that with the second."""
    found = Results(tmp_path / "results.json", resume=False)
    for cv, ours, theirs in ((0.25, 100.0, 130.0), (1.0, 90.0, 80.0), (4.0, 50.0, 60.0)):
        cell = Cell(SETS[0], (1, 1, 1), cv)
        found.keep(run_name(cell, "async", 1), run(ours))
        found.keep(run_name(cell, "async", 2), run(2 * ours))
        found.keep(run_name(cell, "sync", 1), run(theirs))
    return found


def test_the_figures_have_the_keys_that_were_asked_for(results: Results) -> None:
    found = figures(results)
    keys = {"swap_strict_ratio", "swap_overlap_ratio", "third_model_met", "cells", "pinned_miss", "swaps"}
    assert set(found) == keys
    assert found["cells"][0] == {
        "set": SETS[0].name,
        "rates": [1, 1, 1],
        "cv": 0.25,
        "async_ms": 150.0,
        "sync_ms": 130.0,
    }
    assert len(found["cells"]) == 3
    assert found["swaps"] is None, "not measured"


def test_ways_of_loading_are_compared_by_the_same_seeds(results: Results) -> None:
    said = lines(results)
    assert "| (1, 1, 1) | async | 150 (3) | 135 (3) | 75 (3) |" in said
    assert said[-1].startswith("latency at CV 4 below CV 0.25 in 1 of 1 rows; ")
    assert said[-1].endswith("asynchronous better in 2 of 3 cells, worse by over 10 % in 1")


def test_the_distributions_are_drawn(results: Results, tmp_path: Path) -> None:
    [file] = draw(results, tmp_path / "pictures")
    assert file.read_bytes()[:4] == b"\x89PNG"
    assert draw(Results(tmp_path / "none.json", resume=False), tmp_path) == []


# ---------------------------------------------------------------- models


def test_generated_nets_are_what_the_others_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "WIDTH", 16)
    monkeypatch.setattr(models, "ALL", NETS[:2])
    repository = make_repository(tmp_path)
    before = (repository / "net_1" / "1" / "model.onnx").stat().st_mtime_ns
    make_repository(tmp_path)
    assert (repository / "net_1" / "1" / "model.onnx").stat().st_mtime_ns == before, "it is made once"
    for net in NETS[:2]:
        graph = onnx.load(repository / net.name / "1" / "model.onnx")
        onnx.checker.check_model(graph, full_check=True)
        assert len(graph.graph.initializer) == 4 + net.matrices
        config = (repository / net.name / "config.pbtxt").read_text()
        assert f'name: "{net.name}"' in config
        assert "max_batch_size: 32" in config
