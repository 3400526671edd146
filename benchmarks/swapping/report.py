"""What the measurements come to: the figures of the issue, tables, and the distributions of latencies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.swapping.cells import MODES, mean, runs_of, table
from benchmarks.swapping.results import Results
from benchmarks.swapping.workload import CVS, RATES, SETS, Cell, ModelSet

#: A cell is lost by more than this when synchronous loading is so much better.
_LOST = 1.1
_STYLE = {"async": "-", "sync": ":"}


def figures(results: Results) -> dict[str, Any]:
    """Return what ``--json`` prints; null where nothing was measured."""
    worst = results.get("worst_case") or {}
    return {
        **{name: worst.get(name) for name in ("swap_strict_ratio", "swap_overlap_ratio", "third_model_met")},
        "cells": table(results),
        "pinned_miss": (results.get("pinned") or {}).get("pinned_miss"),
        "swaps": (results.get("policies") or {}).get("swaps"),
    }


def lines(results: Results) -> list[str]:
    """Return the tables in Markdown, with what the paper's trend and the comparison come to."""
    found = [_worst_case(results)] if "worst_case" in results else []
    for models in SETS:
        rows = _rows(results, models)
        if rows:
            found += ["", f"{models.name}: mean latency in ms (swaps)", *rows, *_verdicts(results, models)]
    if policies := results.get("policies"):
        found += ["", f"swaps for the same frames: {policies['swaps']}, by schedule {policies['runs']}"]
    if pinned := results.get("pinned"):
        misses = f"misses {pinned['miss']}; {pinned['rise_points']} points more"
        found += ["", f"pinned: {pinned['cameras']} cameras; {misses}"]
    if chaos := results.get("chaos"):
        found += ["", f"chaos: {chaos}"]
    return found


def _worst_case(results: Results) -> str:
    worst = results["worst_case"]
    plain = worst["plain"]
    return (
        f"worst case: unload {plain['unload_s']} s, load {plain['load_s']} s, warm {plain['warm_s']} s; strict "
        f"{worst['strict']['mean_ms']} ms = {worst['swap_strict_ratio']} of their sum, overlapping "
        f"{worst['overlap']['mean_ms']} ms = {worst['swap_overlap_ratio']} of the larger; third model met "
        f"{worst['third_model_met']}"
    )


def _rows(results: Results, models: ModelSet) -> list[str]:
    rows = []
    for rates in RATES:
        for mode in MODES:
            columns = []
            for cv in CVS:
                cell = Cell(models, rates, cv)
                mean_ms = mean(results, cell, mode)
                swaps = mean(results, cell, mode, "swaps")
                columns.append("" if mean_ms is None else f"{mean_ms:.0f} ({swaps:.0f})")
            if any(columns):
                rows.append(f"| {rates} | {mode} | {' | '.join(columns)} |")
    head = ["| rates | loading | " + " | ".join(f"CV {cv:g}" for cv in CVS) + " |", "|---|---|---|---|---|"]
    return head + rows if rows else []


def _verdicts(results: Results, models: ModelSet) -> list[str]:
    """How many rows follow the paper's trend, and how many cells each way of loading wins, by the same seeds."""
    grid = {(rates, cv): Cell(models, rates, cv) for rates in RATES for cv in CVS}
    ours = {at: mean(results, cell, "async") for at, cell in grid.items()}
    ends = [(ours[rates, CVS[0]], ours[rates, CVS[-1]]) for rates in RATES]
    rows = [last < first for first, last in ends if first is not None and last is not None]
    pairs = []
    for cell in grid.values():
        mine, theirs = (mean(results, cell, mode, paired=True) for mode in MODES)
        if mine is not None and theirs is not None:
            pairs.append(mine / theirs)
    return [
        f"latency at CV {CVS[-1]:g} below CV {CVS[0]:g} in {sum(rows)} of {len(rows)} rows; with the same seeds "
        f"asynchronous better in {sum(share < 1 for share in pairs)} of {len(pairs)} cells, worse by over 10 % in "
        f"{sum(share > _LOST for share in pairs)}"
    ]


def draw(results: Results, folder: Path) -> list[Path]:
    """Write one PNG per set with the distribution functions of its cells; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for models in SETS:
        if not _rows(results, models):
            continue
        figure = _figure(results, models)
        files.append(folder / f"swap-{len(models.models)}-models.png")
        figure.savefig(files[-1], dpi=120)
    return files


def _figure(results: Results, models: ModelSet) -> Figure:
    figure = Figure(figsize=(11.0, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{models.name}, largest batch {models.batches[-1]}", fontsize=10)
    panels = figure.subplots(1, len(RATES), sharey=True)
    for axes, rates in zip(panels, RATES, strict=True):
        _panel(axes, results, [Cell(models, rates, cv) for cv in CVS])
        axes.set_title(f"rates {rates}", fontsize=9)
    panels[0].set_ylabel("share of frames")
    fullest = max(panels, key=lambda axes: len(axes.lines))
    fullest.legend(fontsize=7, loc="lower right")
    return figure


def _panel(axes: Axes, results: Results, row: list[Cell]) -> None:
    """One row of the table: a colour for each CV, a style for each way of loading."""
    for number, cell in enumerate(row):
        for mode in MODES:
            pooled = [ms for run in runs_of(results, cell, mode).values() for ms in run["latencies_ms"]]
            if pooled:
                seconds = np.sort(pooled) / 1e3
                share = np.arange(1, len(seconds) + 1) / len(seconds)
                label = f"CV {cell.cv:g}, {mode}"
                axes.step(seconds, share, _STYLE[mode], color=f"C{number}", where="post", label=label)
    axes.set_xlabel("latency (s)")
    axes.set_xscale("log")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
