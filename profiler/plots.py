"""Pictures of a profile: how execution time and throughput go with the batch size."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from gateway.core.profile import Profile, ProfileEntry

_MS_PER_S = 1_000
#: Around the lines, as a share of the axis, and above the highest marker.
_MARGIN, _HEADROOM = 0.08, 1.1
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def draw(profile: Profile, directory: Path) -> list[Path]:
    """Write one PNG for each model and version of `profile` and return the files.

    Left: execution time of a batch in ms, median and 99th percentile. Right: frames per second at the median, one batch
    after the other. A line for each shape.
    """
    directory.mkdir(parents=True, exist_ok=True)
    models: dict[tuple[str, str], list[ProfileEntry]] = {}
    for entry in profile.entries:
        models.setdefault((entry.model, entry.version), []).append(entry)
    files = []
    for (model, version), entries in models.items():
        file = directory / f"{_UNSAFE.sub('_', model)}-{_UNSAFE.sub('_', version)}.png"
        _figure(profile, f"{model}/{version}", entries).savefig(file, dpi=120)
        files.append(file)
    return files


def _figure(profile: Profile, title: str, entries: Sequence[ProfileEntry]) -> Figure:
    figure = Figure(figsize=(10.0, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{title} on {profile.device}, Triton {profile.triton_version} ({profile.engine})", fontsize=10)
    times, rates = figure.subplots(1, 2)
    shapes = sorted({(entry.shape, entry.dtype) for entry in entries}, key=lambda key: (math.prod(key[0]), key))
    for number, (shape, dtype) in enumerate(shapes):
        line = sorted((e for e in entries if (e.shape, e.dtype) == (shape, dtype)), key=lambda e: e.batch)
        batches = [e.batch for e in line]
        color, label = f"C{number % 10}", "x".join(map(str, shape))
        times.plot(batches, [e.p50_ms for e in line], "o-", color=color, label=f"{label}, p50")
        times.plot(batches, [e.p99_ms for e in line], "^--", color=color, alpha=0.6, label=f"{label}, p99")
        rates.plot(batches, [e.batch / e.p50_ms * _MS_PER_S for e in line], "o-", color=color, label=label)
    ticks = sorted({entry.batch for entry in entries})
    _finish(times, "execution time of a batch (ms)", ticks)
    _finish(rates, "throughput (frames/s)", ticks)
    return figure


def _finish(axes: Axes, what: str, batches: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()
    axes.set_xlabel("batch size (frames)")
    axes.set_ylabel(what)
    axes.margins(x=_MARGIN)
    axes.set_ylim(0, axes.dataLim.y1 * _HEADROOM)
    axes.grid(alpha=0.3)
    # Beneath the axes: between them there is a marker wherever it is put.
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
