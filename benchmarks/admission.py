"""What an admission test costs, and what it costs the frames that are served meanwhile.

``python -m benchmarks.admission --json``. Needs the extra `embedded` (unless ``--rounds 0``). Two parts:

- Wall time of ``plan`` (jobs of all streams, EDF imitation to the end, evidence, order of slots) on the recorded state
  of an admitted set: 20 categories, 80 finite streams, 4 frames a job; 10^2 to 10^5 frames to follow.
- A gateway with that set of 10^5 frames on a real Triton with a trivial model serves a further stream at 100 fps, once
  alone, once while ``check`` runs again and again in the admission process; several rounds in turn. Latency of a
  frame: from the instant at which its camera should send it to the instant at which its result is there, so what holds
  up the event loop counts.

The last line is one JSON object with ``ms_by_frames`` (medians) and ``live_p99_rise_ms`` (difference of the medians of
the rounds' 99th percentiles; null without rounds).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import uvloop

from benchmarks.live_batching import serving
from gateway.core.actions import Admitted
from gateway.core.admission import plan
from gateway.core.config import EngineConfig
from gateway.core.engine import Engine
from gateway.core.events import RegisterStream
from gateway.core.profile import Profile, ProfileEntry
from gateway.core.types import NS_PER_MS, NS_PER_S, Outcome, StreamSpec
from gateway.runtime.gateway import Gateway
from gateway.runtime.tickets import FrameTicket
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton

SIZES = (100, 1_000, 10_000, 100_000)
CATEGORIES, STREAMS, FEW_STREAMS = 20, 80, 100
#: Runs of each size: more of the short ones, whose median is less steady.
RUNS = {100: 51, 1_000: 51, 10_000: 21, 100_000: 11}
MODEL = "mean"
#: Registered streams that are to be planned for and not to be served begin this late.
LATER_NS = 3_600 * NS_PER_S
#: The served stream.
PERIOD_NS, DEADLINE_NS, SHAPE = 10 * NS_PER_MS, 100 * NS_PER_MS, (64, 64, 3)
_LARGEST = 8
FIRST_MS, NEXT_MS = 2.5, 0.5

MODEL_PY = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            frames = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
            mean = frames.reshape(len(frames), -1).mean(axis=1, dtype=np.float32)[:, None]
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("mean", mean)]))
        return answers
"""
CONFIG_PBTXT = f"""
name: "{MODEL}"
backend: "python"
max_batch_size: {_LARGEST}
input [ {{ name: "image" data_type: TYPE_UINT8 dims: [ -1, -1, 3 ] }} ]
output [ {{ name: "mean" data_type: TYPE_FP32 dims: [ 1 ] }} ]
instance_group [ {{ kind: KIND_CPU }} ]
"""


def profile() -> Profile:
    """20 shapes that take 2.5 ms and 0.5 ms for each frame, and that of the served stream: the plan is to be full."""
    shapes = [(8 + n, 8, 3) for n in range(CATEGORIES)]
    times = [
        (shape, batch, FIRST_MS + NEXT_MS * batch) for shape in [*shapes, SHAPE] for batch in range(1, _LARGEST + 1)
    ]
    return Profile(tuple(ProfileEntry(MODEL, "1", shape, "UINT8", n, 1_000, ms, ms, ms) for shape, n, ms in times))


def specs(frames: int, start_ns: int = 0) -> Iterator[StreamSpec]:
    """Yield 80 streams that have `frames` frames in all: with W of a period, a job has one of each of four streams.

    100 frames are one of each of 100 streams, five to a category; in some the fifth comes a window later.
    """
    streams = FEW_STREAMS if frames == FEW_STREAMS else STREAMS
    each, more = divmod(frames, streams)
    for n in range(streams):
        place = n % CATEGORIES
        period_ns = (90 + 2 * place) * NS_PER_MS
        later_ns = period_ns if n >= STREAMS and place % 4 == 0 else 0
        yield StreamSpec(
            MODEL,
            "1",
            (8 + place, 8, 3),
            period_ns,
            2 * period_ns,
            frames=each + (n < more),
            start_in_ns=start_ns + later_ns + n * 7 * NS_PER_MS % period_ns,
        )


def plan_ms(frames: int) -> dict[str, Any]:
    """Return the median time of a test that follows `frames` frames, and what it found."""
    *first, candidate = specs(frames)
    engine = Engine(profile(), EngineConfig())
    for n, spec in enumerate(first):
        [action] = engine.handle(RegisterStream(f"stream-{n}", spec), 0)
        if not isinstance(action, Admitted):
            raise SystemExit(f"the benchmark's own set does not fit: {action}")
    state = engine.admission_state(0)
    spent, found = [], None
    gc.collect()
    for _ in range(RUNS[frames]):
        begin = time.perf_counter()
        found = plan(state, candidate, "candidate")
        spent.append((time.perf_counter() - begin) * 1e3)
    verdict = found.verdict if found is not None else None
    if verdict is None or not verdict.admitted or verdict.test != "exact" or verdict.frames_checked != frames:
        raise SystemExit(f"not the test that was to be measured: {verdict}")
    jobs = len(found.slots) if found is not None and found.slots is not None else 0
    return {
        "ms": round(median(spent), 3),
        "worst_ms": round(max(spent), 3),
        "frames_a_job": round(frames / jobs, 2),
        "utilization_over_horizon": round(_busy(engine, jobs, frames, verdict.horizon_ns), 3),
    }


def _busy(engine: Engine, jobs: int, frames: int, horizon_ns: int) -> float:
    """Share of the horizon that the jobs take."""
    return (
        (FIRST_MS * jobs + NEXT_MS * frames) * NS_PER_MS / horizon_ns if horizon_ns and engine.profile.entries else 0.0
    )


# ---------------------------------------------------------------- live


async def send(gateway: Gateway, stream_id: str, count: int) -> float:
    """Send frames at their times; return the 99th percentile of their latency in ms."""
    loop = asyncio.get_running_loop()
    picture = bytes(int(np.prod(SHAPE)))
    late: list[float] = []
    tickets: list[FrameTicket] = []

    def ended(at_s: float, _result: object) -> None:
        late.append((loop.time() - at_s) * 1e3)

    epoch_s = loop.time() + 0.1
    for n in range(count):
        at_s = epoch_s + n * PERIOD_NS / NS_PER_S
        await asyncio.sleep(max(0.0, at_s - loop.time()))
        [ticket] = gateway.submit(stream_id, picture)
        ticket.result.add_done_callback(partial(ended, at_s))
        tickets.append(ticket)
    results = await asyncio.gather(*(ticket.result for ticket in tickets))
    if failed := sum(result.outcome is Outcome.FAILED for result in results):
        raise SystemExit(f"{failed} of {count} frames failed")
    return float(np.percentile(late, 99))


async def check_for_ever(gateway: Gateway, candidate: StreamSpec, spent_ms: list[float]) -> None:
    """Ask whether the candidate would fit, again and again; keep the time of the tests that followed every frame.

    A frame that is late as it is, because the machine was busy with something else, makes the test end there.
    """
    while True:
        begin = time.perf_counter()
        verdict = (await gateway.check(candidate)).verdict
        if verdict.admitted and verdict.test == "exact" and verdict.frames_checked > 0.9 * SIZES[-1]:
            spent_ms.append((time.perf_counter() - begin) * 1e3)


async def live(url: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Serve one stream with and without checks, in turn."""
    settings = Settings(models=[MODEL])
    settings = settings.model_copy(update={"triton": settings.triton.model_copy(update={"url": url})})
    count = round(seconds * NS_PER_S / PERIOD_NS)
    async with serving(settings, profile(), early=True) as gateway:
        *first, candidate = specs(SIZES[-1] - (2 * rounds + 1) * count, LATER_NS)
        own = StreamSpec(MODEL, "", SHAPE, PERIOD_NS, DEADLINE_NS, frames=(2 * rounds + 1) * count)
        for spec in [*first, own]:
            registration = await gateway.register(spec)
            if registration.stream is None:
                raise SystemExit(f"the benchmark's own set does not fit: {registration.verdict}")
            stream_id = registration.stream.stream_id
        gc.collect()
        gc.freeze()
        await send(gateway, stream_id, count)  # warm
        alone, checked, spent_ms = [], [], list[float]()
        for _ in range(rounds):
            alone.append(await send(gateway, stream_id, count))
            checks = asyncio.create_task(check_for_ever(gateway, candidate, spent_ms))
            checked.append(await send(gateway, stream_id, count))
            if checks.done():
                checks.result()
            checks.cancel()
            await asyncio.wait((checks,))
        if len(spent_ms) < rounds * seconds:
            raise SystemExit(f"{len(spent_ms)} tests of all frames are too few to say anything")
        return {
            "live_p99_rise_ms": round(median(checked) - median(alone), 3),
            "live_p99_ms": {"alone": [round(ms, 2) for ms in alone], "checked": [round(ms, 2) for ms in checked]},
            "checks": len(spent_ms),
            "check_ms": round(median(spent_ms), 1),
        }


def live_on_triton(rounds: int, seconds: float) -> dict[str, Any]:
    """Start a Triton with the trivial model and run `live` on it."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        version = repository / MODEL / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(MODEL_PY)
        (version.parent / "config.pbtxt").write_text(CONFIG_PBTXT)
        with EmbeddedTriton(repository, Path(folder) / "triton.log") as triton:
            found: dict[str, Any] = uvloop.run(live(triton.grpc_url, rounds, seconds))
            return found


def main(argv: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="What an admission test costs.")
    parser.add_argument("--rounds", type=int, default=9, help="of the live part, each with and without checks")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each half of a round")
    parser.add_argument("--json", action="store_true", help="only the JSON object, on one line")
    arguments = parser.parse_args(argv)
    tests = {frames: plan_ms(frames) for frames in SIZES}
    found = live_on_triton(arguments.rounds, arguments.seconds) if arguments.rounds else {"live_p99_rise_ms": None}
    report = {
        "ms_by_frames": {str(frames): test["ms"] for frames, test in tests.items()},
        "tests": {str(frames): test for frames, test in tests.items()},
        **found,
    }
    lines = [] if arguments.json else [f"{name:18} {value}" for name, value in report.items()]
    sys.stdout.write("\n".join([*lines, json.dumps(report)]) + "\n")


if __name__ == "__main__":
    main()
