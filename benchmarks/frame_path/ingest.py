"""What ingest processes cost and what they make room for: `framegate serve --ingest-workers 2` beside one without.

Both run on the first processor core, as all front ends here: the rate says what the whole costs, and not what several
cores would make of it. That is predicted, by `predicted_per_s`, from the processor time of a frame in the scheduler and
in the ingest processes, which have cores of their own where there are any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from benchmarks.frame_path import servers
from benchmarks.frame_path.loads import LoadError
from benchmarks.frame_path.servers import Place
from benchmarks.frame_path.sizes import MAIN, SIZES
from benchmarks.frame_path.targets import Target, measure
from gateway.ingest.staging import Staging

WORKERS = 2
#: For which the rate is predicted.
CORES = (8, 16)
_COPIES_S = 0.3
#: More than the caches of any processor hold.
_COLD_BYTES = 256 << 20
FORMULA = (
    "frames/s = min(1000 / scheduler_cpu_ms, (cores - 1) * 1000 / (ingest_cpu_ms + behind_cpu_ms)); behind_cpu_ms, "
    "what Triton and its model take of this machine's processor, is 0 where the model runs on a device"
)


def measure_ingest(place: Place, say: Callable[[str], None], *, seconds: float, rounds: int) -> dict[str, Any]:
    """Return the runs of all arms, and what they come to."""
    runs: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        targets: dict[str, Target] = {}
        for name, workers in (("alone", 0), ("ingest", WORKERS)):
            more = {"SERVER__INGEST_WORKERS": str(workers)}
            http = stack.enter_context(servers.gateway_at(place, MAIN, f"gateway-{name}", more))
            targets |= {f"{name}_http": http, f"{name}_ws": servers.over_websocket(http)}
        for number in range(rounds):
            names = list(targets)
            for name in names if number % 2 == 0 else names[::-1]:
                try:
                    found = measure(targets[name], seconds)
                except LoadError as error:
                    found = {"error": str(error)}
                runs.setdefault(name, []).append(found)
                say(f"ingest {name}: {found}")
    return {"runs": runs, "copy_us": {size.name: copy_us(size.frame_bytes) for size in SIZES}}


def copy_us(size: int) -> float:
    """Return what the scheduler's copy of a frame takes, in us, between memory that is in no cache."""
    slots = max(2, _COLD_BYTES // size)
    source, target = Staging.create(slots * size), Staging.create(slots * size)
    source.view[:], target.view[:] = bytes(source.size), bytes(source.size)  # all pages are there
    times: list[int] = []
    end = time.monotonic() + _COPIES_S
    while time.monotonic() < end:
        at = len(times) % slots * size
        began = time.perf_counter_ns()
        target.view[at : at + size] = source.view[at : at + size]
        times.append(time.perf_counter_ns() - began)
    source.close()
    target.close()
    return round(median(times) / 1e3, 2)


def predicted_per_s(scheduler_ms: float, beside_ms: float, cores: int) -> float:
    """Return the frames per second of so many cores, of which the scheduler has one; see `FORMULA`."""
    return round(min(1e3 / scheduler_ms, (cores - 1) * 1e3 / beside_ms), 0)


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return medians, and the rates that they predict."""
    said: dict[str, Any] = {"workers": WORKERS, "copy_us": found["copy_us"], "formula": FORMULA}
    for name, rows in found["runs"].items():
        good = [row for row in rows if "error" not in row]
        if not good:
            continue
        middle = {key: _middle(good, key) for key in ("frames_per_s", "cpu_ms", "beside_cpu_ms", "behind_cpu_ms")}
        said[name] = {
            "frames_per_s": middle["frames_per_s"],
            "scheduler_cpu_ms": middle["cpu_ms"],
            "ingest_cpu_ms": middle["beside_cpu_ms"],
            "behind_cpu_ms": middle["behind_cpu_ms"],
            "mean_batch": _middle(good, "mean_batch"),
            "p50_ms": _middle(good, "p50_ms"),
        }
        if name.startswith("ingest"):
            said[name] |= _predictions(middle)
    return said


def _predictions(middle: Mapping[str, float]) -> dict[str, float]:
    found = {}
    for cores in CORES:
        here, behind = middle["beside_cpu_ms"], middle["behind_cpu_ms"]
        found[f"predicted_per_s_{cores}_cores"] = predicted_per_s(middle["cpu_ms"], here + behind, cores)
        found[f"predicted_per_s_{cores}_cores_device"] = predicted_per_s(middle["cpu_ms"], here, cores)
    return found


def _middle(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    return round(float(median(row[key] for row in rows if row.get(key) is not None)), 4)
