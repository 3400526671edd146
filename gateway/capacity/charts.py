"""Figures as PNG files: what a plan uses of the device, and how the planned times compare with the measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gateway.capacity.plan_show import NOT_PROMISED
from gateway.core.types import ServiceClass

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gateway.capacity.plan_show import Result

_DPI = 120
#: Refused streams may need many devices; the chart ends here.
_WIDEST_REFUSED = 1.5


def utilization_chart(path: Path, results: Sequence[Result]) -> None:
    """Write a stacked bar for each profile: the share of every item, then what is not promised up to 100 %.

    What was refused is drawn over that, hatched: as wide as it would need without the others.

    Raises:
        OSError, ValueError: The file cannot be written, or is of a format that is not known.
    """
    figure = _figure(9.0, 1.8 + 0.7 * len(results))
    axes = figure.subplots()
    names = list(dict.fromkeys(part.name for result in results for part in (*result.parts, *result.refused)))
    colours = {name: f"C{place % 10}" for place, name in enumerate(names)}
    seen: set[str] = set()
    widest = 1.0
    for row, result in enumerate(results):
        left = 0.0
        for part in result.parts:
            hatch = None if part.category.service_class is ServiceClass.REAL_TIME else "//"
            label = None if part.name in seen else part.name
            seen.add(part.name)
            axes.barh(row, part.share, left=left, color=colours[part.name], edgecolor="white", hatch=hatch, label=label)
            if part.share >= 0.06:  # narrower ones have no room for text
                text = f"{part.share:.0%}\nx{part.streams}"
                _write(axes, left + part.share / 2, row, text, colours[part.name])
            left += part.share
        widest = max(widest, left)
        if left < 1:
            label = None if NOT_PROMISED in seen else NOT_PROMISED
            seen.add(NOT_PROMISED)
            axes.barh(row, 1 - left, left=left, color="0.92", edgecolor="0.8", label=label)
        refused = _refused(axes, row, left, result, colours=colours, seen=seen)
        widest = max(widest, min(refused, _WIDEST_REFUSED))
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(range(len(results)), [_short(result.path.stem) for result in results])
    axes.invert_yaxis()
    axes.set_xlim(0, widest)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    axes.set_title("Use of the device by the admitted streams, and what the refused ones would need")
    axes.set_xlabel("share of the device, at least; deadlines decide what fits, not only use")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2 - 0.2 / len(results)), ncols=4, frameon=False)
    _save(figure, path)


def _refused(axes: Axes, row: int, left: float, result: Result, *, colours: Mapping[str, str], seen: set[str]) -> float:
    """Draw what was refused, hatched, from `left` on; return where it ends."""
    for part in result.refused:
        name = f"{part.name} (refused)"
        label = None if name in seen else name
        seen.add(name)
        edge = colours[part.name]
        axes.barh(row, part.share, left=left, color="none", edgecolor=edge, hatch="xx", height=0.5, label=label)
        if part.share >= 0.06 and left + part.share <= _WIDEST_REFUSED:
            text = axes.text(left + part.share / 2, row, f"refused\nx{part.streams}", ha="center", va="center")
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0})
        left += part.share
    return left


def _write(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    """Write on a bar of `colour`: white on dark ones, black on light ones (luminance of ITU-R BT.709)."""
    from matplotlib.colors import to_rgb

    luminance = float(np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)))
    ink = "white" if luminance < 0.55 else "black"
    box = {"facecolor": colour, "edgecolor": "none", "pad": 1.0}  # over the hatching
    axes.text(x, y, text, ha="center", va="center", color=ink, bbox=box)


def accuracy_chart(
    path: Path, ratios: Mapping[str, npt.NDArray[np.float64]], ends: Mapping[str, npt.NDArray[np.float64]]
) -> None:
    """Write two distributions: actual over expected execution time, and actual minus planned end in ms, by category.

    Raises:
        OSError, ValueError: The file cannot be written, or is of a format that is not known.
    """
    with_ends = {name: values for name, values in ends.items() if len(values)}
    figure = _figure(6.0 * (2 if with_ends else 1), 4.5)
    axes = figure.subplots(1, 2 if with_ends else 1, squeeze=False)[0]
    _cdf(axes[0], ratios, "actual / expected execution time", mark=1.0)
    if with_ends:
        _cdf(axes[1], with_ends, "actual minus planned end (ms)", mark=0.0)
    _save(figure, path)


def _cdf(axes: Axes, samples: Mapping[str, npt.NDArray[np.float64]], label: str, *, mark: float) -> None:
    for name, values in samples.items():
        ordered = np.sort(values)
        axes.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post", label=_short(name))
    axes.axvline(mark, color="black", linewidth=1, linestyle=":")
    axes.set_xlabel(label)
    axes.set_ylabel("share of jobs")
    axes.set_ylim(0, 1.01)
    axes.legend(fontsize="small", loc="lower right")


def _figure(width: float, height: float) -> Figure:
    """Return a figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=_DPI, bbox_inches="tight")


def _short(text: str) -> str:
    """Return `text` as it is to be drawn: dollar signs are no formulas."""
    text = text.replace("$", r"\$")
    return text if len(text) <= 40 else text[:37] + "..."
