"""Report 37: while a model is loaded or unloaded, frames of others go on; what that costs them is said."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections import Counter
from itertools import count, pairwise
from pathlib import Path

import pytest

from gateway.triton.embedded import EmbeddedTriton
from tests.api.served import FRAME, Served, wait_until
from tests.e2e.v2_models import identity
from tests.field.support import POLICED, steady
from tests.runtime_support import admitted, frame, make_profile, running_gateway, until
from tests.stand_in import Model

FPS = 20
ESTABLISHED = "01"


def spacings(calls, since, until):
    """Return the times in s between the starts of executions of the steady stream."""
    starts = [call.began for call in calls if call.name == "echo" and since <= call.began <= until]
    return [later - earlier for earlier, later in pairwise(starts)]


def deviation(calls, since, until):
    """Return by how much 90 % of the spacings differ from the period at most."""
    period_s = 1 / FPS
    found = sorted(abs(spacing - period_s) for spacing in spacings(calls, since, until))
    assert len(found) > 10
    return statistics.quantiles(found, n=10)[-1]


class Swapper:
    """Loads and unloads model b again and again, each load taking its time."""

    def __init__(self, served, pause_s):
        self.statuses = []
        self._served, self._pause_s = served, pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="swapper")

    def _run(self):
        while not self._stop.is_set():
            for verb in ("load", "unload"):
                self.statuses.append(self._served.http.post(f"/v1/models/b/{verb}").status_code)
            self._stop.wait(self._pause_s)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_loads_and_unloads_hold_up_nobody(length):
    """Loads of 0.5 s (4 s at full length) beside 20 fps: the spacing of the executions is what it is without."""
    load_s = length(0.5, 4.0)
    other = Model("b", loaded=False, load_delay_s=load_s, unload_delay_s=load_s / 4)
    with (
        Served(Model("echo"), other, served=["echo"], models=["echo"], scheduling=POLICED) as served,
        steady(served, FRAME, fps=FPS, deadline_ms=400, jitter_ms=80) as camera,
    ):
        wait_until(lambda: camera.outcomes["met"], "it does not run")
        calls = served.stand_in.calls
        began = time.monotonic()
        time.sleep(length(2.0, 120.0))
        between = time.monotonic()
        with Swapper(served, length(0.1, 5.0)) as swapper:
            time.sleep(length(3.0, 120.0))
        ended = time.monotonic()
        quiet, beside = deviation(calls, began, between), deviation(calls, between, ended)
        assert len(served.stand_in.log("load")) >= 2
        assert set(swapper.statuses) == {200}
        # The cameras are threads of this very process, on a machine that does other things too.
        assert beside <= 3 * quiet + 0.01, f"spacing differs by {beside * 1e3:.1f} ms, without loads {quiet * 1e3:.1f}"
        assert set(camera.outcomes) == {"met"}
        channels = {kind: {call.peer for call in served.stand_in.log(kind)} for kind in ("infer", "load", "unload")}
        assert not channels["infer"] & (channels["load"] | channels["unload"]), "they share a connection"


def test_what_loads_cost_is_said():
    """On a device that loads disturb, an execution that takes longer than profiled has its cause in the metrics."""
    disturbed = Model("b", loaded=False, load_delay_s=0.5, unload_delay_s=0.1)
    with Served(Model("echo"), disturbed, served=["echo"], models=["echo"]) as served:
        served.stand_in.delay_s = lambda call: 0.03 if disturbed.state == "LOADING" else 0.0
        with (
            steady(served, FRAME, fps=FPS, deadline_ms=400, jitter_ms=80) as camera,
            Swapper(served, 0.1),
        ):
            wait_until(lambda: camera.outcomes["met"] > 30, "it does not run")
        seconds = {
            key[1]: value for key, value in served.counters().items() if key[0] == "framegate_overrun_seconds_total"
        }
        assert seconds["swap"] > 0
        assert seconds["overrun"] == 0, "the category is not to blame"


def connections(port):
    """Return how many connections to `port` there are, by the ends that made them."""
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return sum(int(row[2].rpartition(":")[2], 16) == port and row[3] == ESTABLISHED for row in rows)


async def send(gateway, stream_id, seconds):
    """Send at `FPS`; return the latencies in ms in order of size, and the outcomes."""
    tickets, began_s = [], asyncio.get_running_loop().time()
    for number in count():
        due_s = began_s + number / FPS
        if due_s > began_s + seconds:
            break
        await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
        tickets += gateway.submit(stream_id, frame(5))
    results = [await ticket.result for ticket in tickets]
    return sorted(result.latency_ms for result in results), Counter(result.outcome.value for result in results)


async def swap(gateway, stop):
    """Load and unload b until told to stop; return how often."""
    for number in count():
        if stop.is_set():
            return number
        await gateway.load_model("b")
        await gateway.unload_model("b")


@pytest.mark.e2e
def test_beside_loads_of_the_real_triton(tmp_path, length):
    repository = tmp_path / "models"
    for name in ("a", "b"):
        identity(repository, name, "UINT8", (-1, -1, 3), max_batch=8)

    async def main(server):
        profile = make_profile(models=["a"], execution_ms=20)
        async with running_gateway(server.grpc_url, profile, wait_ready=False, models=["a"]) as gateway:
            await until(lambda: gateway.ready, 60)
            stream = await admitted(gateway, model="a", period_ms=1_000 / FPS, deadline_ms=500)
            quiet, alone = await send(gateway, stream.stream_id, length(1.5, 120))
            stop = asyncio.Event()
            swapping = asyncio.create_task(swap(gateway, stop))
            beside, met = await send(gateway, stream.stream_id, length(2.5, 120))
            stop.set()
            swaps = await swapping
            assert swaps >= 1
            for name, found, outcomes in (("quiet", quiet, alone), (f"{swaps} swaps", beside, met)):
                p50, p99 = found[len(found) // 2], found[int(0.99 * len(found))]
                print(f"{name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {dict(outcomes)}")
            assert met["met"] >= 0.98 * sum(met.values()), met
            assert connections(int(server.grpc_url.rpartition(":")[2])) >= 3, "inference, loads, everything else"

    with EmbeddedTriton(repository, tmp_path / "triton.log") as server:
        asyncio.run(main(server))
