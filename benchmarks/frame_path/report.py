"""What the runs come to: the figures that are asked for, with what lies behind them, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.frame_path import ingest
from benchmarks.frame_path.copies import COPIES
from benchmarks.frame_path.sizes import MAIN, SIZES
from benchmarks.swapping.results import Results

Runs = dict[str, list[dict[str, Any]]]

#: Key: the arm above, the arm below, what of each. All at the main size.
_RATIOS = {
    "cpu_ratio_http": ("http", "ceiling", "cpu_ms"),
    "cpu_ratio_http_batch1": ("http_single", "ceiling", "cpu_ms"),
    "rate_vs_triton_http": ("http", "triton", "frames_per_s"),
    "ws_cpu_vs_http": ("ws", "http", "cpu_ms"),
    "rate_vs_litserve": ("http", "litserve", "frames_per_s"),
    "rate_vs_mosec": ("http", "mosec", "frames_per_s"),
}
#: Beside them.
_MORE = {
    "rate_vs_triton_http_two_cores": ("http", "triton_two_cores", "frames_per_s"),
    "cpu_ratio_http_batch1_same_rate": ("http_single_paced", "ceiling_paced", "cpu_ms"),
    "cpu_ratio_http_early": ("http_early", "ceiling", "cpu_ms"),
    "ws_cpu_vs_http_same_client": ("ws", "http_own_client", "cpu_ms"),
    "ws_rate_vs_http_same_client": ("ws", "http_own_client", "frames_per_s"),
}
_COLUMNS = (
    "frames_per_s",
    "cpu_ms",
    "beside_cpu_ms",
    "behind_cpu_ms",
    "client_cpu_ms",
    "page_faults",
    "mean_batch",
    "execute_ms",
    "p50_ms",
    "p99_ms",
)


def ratio(runs: Runs, above: str, below: str, what: str) -> float | None:
    """Return the median over the rounds of one arm by another; None where none has both."""
    pairs = [
        one[what] / other[what]
        for one, other in zip(runs.get(above, []), runs.get(below, []), strict=False)
        if one.get(what) and other.get(what)
    ]
    return round(median(pairs), 3) if pairs else None


def middle(rows: Sequence[dict[str, Any]], what: str) -> float | None:
    """Return the median of one figure over the rounds that have it."""
    values = [row[what] for row in rows if row.get(what) is not None]
    return round(median(values), 4) if values else None


def figures(results: Results) -> dict[str, Any]:
    """Return what ``--json`` prints; null where nothing was measured."""
    main: Runs = results.get(f"frames {MAIN.name}") or {}
    busy: Runs = (results.get("busy") or {}).get("runs", {})
    nap: Runs = (results.get("busy_1ms") or {}).get("runs", {})
    added = (results.get("added") or {}).get("runs", [])
    found = {key: ratio(main, *arms) for key, arms in _RATIOS.items()}
    found |= {
        "busy_ratio": ratio(busy, "gateway", "perf_analyzer", "frames_per_s"),
        "added_p50_ms": middle(added, "added_p50_ms"),
        "added_p99_ms": middle(added, "added_p99_ms"),
    }
    details: dict[str, Any] = {key: ratio(main, *arms) for key, arms in _MORE.items()}
    details |= {
        "busy_ratio_in_turn": ratio(busy, "gateway_in_turn", "perf_analyzer", "frames_per_s"),
        "busy_ratio_1ms": ratio(nap, "gateway", "perf_analyzer", "frames_per_s"),
        "busy_ratio_1ms_in_turn": ratio(nap, "gateway_in_turn", "perf_analyzer", "frames_per_s"),
    }
    details |= {
        "mean_batch": {
            arm: middle(main[arm], "mean_batch") for arm in ("http", "http_early", "http_single", "ws") if arm in main
        },
        "sizes": {size.name: _medians(runs) for size in SIZES if (runs := results.get(f"frames {size.name}"))},
        "busy": {name: middle(rows, "frames_per_s") for name, rows in busy.items()},
        "busy_1ms": {name: middle(rows, "frames_per_s") for name, rows in nap.items()},
        "added": {name: middle(added, name) for name in (added[0] if added else {})},
        "ingest": ingest.summary(found_ingest) if (found_ingest := results.get("ingest")) else None,
        "soak": results.get("soak"),
        "copies_per_frame": {arm: len(copies) for arm, copies in COPIES.items()},
        "set_up": results.get("set_up"),
    }
    return found | details


def _medians(runs: Runs) -> dict[str, dict[str, float | str]]:
    found: dict[str, dict[str, float | str]] = {}
    for arm, rows in runs.items():
        found[arm] = {name: value for name in _COLUMNS if (value := middle(rows, name)) is not None}
        if errors := [row["error"] for row in rows if "error" in row]:
            found[arm] |= {"error": f"{len(errors)} of {len(rows)} runs: {errors[0]}"}
    return found


def lines(results: Results) -> list[str]:
    """Return the tables in Markdown."""
    all_figures = figures(results)
    said: list[str] = []
    for name, arms in all_figures["sizes"].items():
        said += ["", f"frames of {name}, medians", f"| arm | {' | '.join(_COLUMNS)} | copies |"]
        said.append("|---" * (len(_COLUMNS) + 2) + "|")
        for arm, row in arms.items():
            cells = [str(row.get(column, "")) for column in _COLUMNS]
            said.append(f"| {arm} | {' | '.join(cells)} | {len(COPIES[arm]) if arm in COPIES else ''} |")
            if "error" in row:
                said.append(f"  {arm}: {row['error']}")
    said += ["", "copies of a frame's bytes in user space, by the code:"]
    said += [f"- {arm}: {'; '.join(copies)}" for arm, copies in COPIES.items()]
    said.append("")
    rest = {name: value for name, value in all_figures.items() if name not in {"sizes", "copies_per_frame"}}
    return said + [f"{name}: {value}" for name, value in rest.items() if value is not None]
