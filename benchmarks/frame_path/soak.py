"""Minutes at nine tenths of what the gateway can take: does its memory stay, and is its event loop on time?"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median
from typing import Any

from benchmarks.frame_path import metrics, processes, servers
from benchmarks.frame_path.loads import LoadError
from benchmarks.frame_path.processes import Memory
from benchmarks.frame_path.servers import Place
from benchmarks.frame_path.sizes import MAIN
from benchmarks.frame_path.targets import WARM_S, Target, said_by_gateway

SHARE = 0.9
_SAMPLE_S = 1.0
#: Runs that find the capacity, and the length of each.
_RUNS, _RUN_S = 3, 5.0
#: The run is cut into so many parts, of which the second is compared with the last. Ten minutes have ten.
_PARTS = 10
#: As `gateway.telemetry` names them.
LAG, LATE, PAUSE = "framegate_event_loop_lag_seconds", "framegate_timer_late_seconds", "framegate_gc_pause_seconds"


def measure_soak(place: Place, say: Callable[[str], None], *, seconds: float) -> dict[str, Any]:
    """Return the figures of one run of `seconds`."""
    with servers.gateway_at(place, MAIN, "gateway-soak") as target:
        target.send(WARM_S)
        rates = [target.send(_RUN_S).checked().frames_per_s for _ in range(_RUNS)]
        rate_per_s = SHARE * median(rates)
        say(f"soak: capacity {median(rates):.0f} frames/s, so {rate_per_s:.0f} are sent for {seconds:g} s")
        page, cpu_before = metrics.fetch(target.port), target.cpu().own
        process = target.begin_sending(seconds, rate_per_s)
        samples = _watch(target, process, seconds)
        load = target.sent(process, _RUN_S)
        found = figures(samples)
        found |= {
            "capacity_per_s": round(median(rates), 1),
            "rate_per_s": round(rate_per_s, 1),
            "seconds": seconds,
            "served_per_s": round(load.frames_per_s, 1),
            "p50_ms": load.p50_ms,
            "p99_ms": load.p99_ms,
            "faults": dict(load.faults),
            "cpu_share": round((target.cpu().own - cpu_before) / seconds, 3),
        }
        return found | timeliness(metrics.fetch(target.port).since(page))


def _watch(target: Target, process: subprocess.Popen[str], seconds: float) -> list[Memory]:
    """Look at the gateway's memory until the sender is nearly done. Raises `LoadError` if it ends before."""
    began_s = time.monotonic()
    samples = []
    while (gone_s := time.monotonic() - began_s) < seconds - _SAMPLE_S / 2:
        samples.append(processes.memory(target.pid))
        time.sleep(min(_SAMPLE_S, seconds - gone_s))
        if process.poll() is not None and time.monotonic() - began_s < seconds - _SAMPLE_S:
            target.sent(process, 0.0)
            raise LoadError("the sender ended too early")
    return samples


def figures(samples: Sequence[Memory]) -> dict[str, Any]:
    """Return how memory went, part by part, and the last part by the second."""
    size = max(1, len(samples) // _PARTS)
    parts = [samples[start : start + size] for start in range(0, len(samples) - size + 1, size)]
    found: dict[str, Any] = {}
    for name in ("rss", "shared"):
        means = [mean(getattr(memory, name) for memory in part) for part in parts]
        found[f"{name}_mib"] = [round(each / (1 << 20), 2) for each in means]
        found[f"{name}_growth"] = round(means[-1] / means[min(1, len(means) - 1)] - 1, 4) if means[-1] else 0.0
    return found


def timeliness(page: metrics.Page) -> dict[str, Any]:
    """Return what the gateway says of its loop and of its frames. A time that is not known is null."""
    late = page.above(LATE)
    window_s = MAIN.deadline_ms / 2e3
    missed = next((count for edge, count in late.items() if edge >= window_s), None)
    return {
        "loop_lag_p99_ms": _ms(page.quantile(LAG, 0.99)),
        "loop_lag_mean_ms": _ms(page.mean(LAG)),
        "loop_lag_above_ms": _by_ms(page.above(LAG)),
        "timers": round(page.total(f"{LATE}_count")),
        "timers_late_above_ms": _by_ms(late),
        # Later than a window is long: by then the next one is over.
        "missed_timers": None if missed is None else round(missed),
        "gc_pauses": round(page.total(f"{PAUSE}_count")),
        "gc_pause_p99_ms": _ms(page.quantile(PAUSE, 0.99)),
        **said_by_gateway(page),
    }


def _ms(seconds: float) -> float | None:
    return round(1e3 * seconds, 3) if math.isfinite(seconds) else None


def _by_ms(counts: Mapping[float, float]) -> dict[str, int]:
    return {f"{1e3 * edge:g}": round(count) for edge, count in counts.items() if count}
