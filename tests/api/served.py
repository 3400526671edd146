"""The shipped application under its real server, on the real gateway, in front of the stand-in for Triton.

All of it runs on an event loop of a thread of its own, so that tests are plain calls over loopback.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import numpy as np

from gateway.api.app import create_app
from gateway.core.profile import Profile, ProfileEntry
from gateway.errors import FramegateError
from gateway.ingest.make import make_server
from gateway.runtime.gateway import Gateway
from gateway.settings import Settings
from gateway.telemetry.metrics import Metrics
from tests.stand_in import Model, StandIn

SMALL, LARGE = (8, 8, 3), (16, 16, 3)
FRAME = bytes(range(192))  # one frame of SMALL
#: Planned times in ms by batch size. The stand-in itself takes about 1 ms.
TIMES = {SMALL: {1: 10.0, 2: 12.0, 4: 16.0, 8: 24.0}, LARGE: {1: 40.0, 2: 60.0}}
#: The whole of tests/api can be run against ingest processes: `SERVED_INGEST_WORKERS=2 pytest tests/api`. Tests that
#: look into the server's own objects cannot pass then.
INGEST_WORKERS = int(os.environ.get("SERVED_INGEST_WORKERS", "0"))
#: Limits of a server that waits for nobody for longer than 0.3 s, and reads 4 MiB at a time.
IMPATIENT = {
    "max_body_bytes": 2 << 20,
    "inflight_body_bytes": 4 << 20,
    "upload_timeout_ms": 300,
    "send_timeout_ms": 300,
}


def profile(times=TIMES, models=("echo",), swaps=()) -> Profile:
    return Profile(
        entries=tuple(
            ProfileEntry(model, "1", shape, "UINT8", batch, 100, ms, ms, ms)
            for model in models
            for shape, row in times.items()
            for batch, ms in row.items()
        ),
        models=tuple(swaps),
        device="stand-in",
    )


class Served:
    """A gateway that answers at `url`.

    Attributes:
        stand_in: The Triton behind it, to be scripted.
        gateway, metrics, server: The parts, to be looked at; `run` and `call` for what walks through their state.
    """

    def __init__(self, *models: Model, served=None, times=TIMES, swaps=(), with_triton=True, **settings):
        self.stand_in = StandIn(*(models or (Model("echo"),)))
        self._models = tuple(self.stand_in.models) if served is None else served
        self._times = times
        self._swaps = swaps
        self._with_triton = with_triton
        self._overrides = {"arena": {"bytes": 8 << 20}, **settings}
        self._started = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="served")

    async def _serve(self):
        self._loop = asyncio.get_running_loop()
        await self.stand_in.start()
        if not self._with_triton:
            await self.stand_in.stop()  # it keeps its port
        try:
            overrides = dict(self._overrides)
            triton = {"url": self.stand_in.url, **overrides.pop("triton", {})}
            server = {"port": 0, "ingest_workers": INGEST_WORKERS, **overrides.pop("server", {})}
            # Frames come as a test likes, and contracts are as it writes them, unless it says otherwise.
            scheduling = {"policing": False, "default_jitter_ms": 0, **overrides.pop("scheduling", {})}
            settings = Settings(triton=triton, server=server, scheduling=scheduling, **overrides)
            self.metrics = Metrics("test")
            self.gateway = Gateway(settings, profile(self._times, self._models, self._swaps), observers=[self.metrics])
            self.app = create_app(self.gateway, settings, self.metrics)
            self.server = make_server(self.app, settings, on_ready=lambda url: self._ready(url))
            await self.server.serve()
        except FramegateError as error:
            self._failure = error  # `start` and `stop` look at it
        finally:
            self._started.set()
            await self.stand_in.stop()

    def _ready(self, url):
        self.url = url
        self._started.set()

    def start(self, ready=True):
        """Return once frames can be taken, or, with `ready` False, once it listens."""
        self._thread.start()
        if ready:
            assert self._started.wait(30), "the gateway did not become ready"
        else:
            wait_until(lambda: self._failure or (hasattr(self, "server") and self.server.started), "it does not listen")
            self.url = self.server.url
        assert self._failure is None, self._failure
        self.http = httpx.Client(base_url=self.url, timeout=20)
        return self

    def stop(self):
        self.server.should_exit = True
        self._thread.join(30)
        self.http.close()
        assert not self._thread.is_alive(), "the gateway did not end"
        assert self._failure is None, self._failure

    def __enter__(self):
        return self.start()

    def __exit__(self, *_error):
        self.stop()

    def run(self, coroutine):
        """Run `coroutine` on the gateway's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def call(self, function, *arguments):
        """Call `function` on the gateway's loop."""

        async def called():
            return function(*arguments)

        return self.run(called())

    def view(self):
        """Return the engine as it stands: taken on the gateway's loop, as nothing may change meanwhile."""
        return self.call(self.gateway.view)

    def wait_until_running(self):
        wait_until(lambda: self.view().running, "the device is not busy")

    def connect(self):
        """Return a bare connection."""
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=20)

    # ------------------------------------------------------------ what most tests do

    def register(self, shape=SMALL, **fields):
        body = {"model": "echo", "shape": shape, "period_ms": 200, "deadline_ms": 400, **fields}
        return self.http.post("/v1/streams", json={name: value for name, value in body.items() if value is not None})

    @contextmanager
    def stream(self, **fields):
        """A registered stream, closed at the end; gives the answer of the registration."""
        answer = self.register(**fields)
        assert answer.status_code == 201, answer.text
        stream = answer.json()
        try:
            yield stream
        finally:
            self.http.delete(f"/v1/streams/{stream['stream_id']}")

    def counters(self):
        """Return /metrics as {(name, label values...): value}."""
        from prometheus_client.parser import text_string_to_metric_families

        text = self.http.get("/metrics").text
        return {
            (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def echo(result):
    """Return the frame that this result answers, from its `echo` output."""
    output = result["outputs"]["echo"]
    return np.array(output["data"], np.uint8).reshape(output["shape"]).tobytes()


def problem(answer, status, code):
    assert answer.status_code == status, answer.text
    if answer.url.path.startswith("/v2"):
        return v2_error(answer, status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert (document["status"], document["code"]) == (status, code)
    assert document["type"] == f"urn:framegate:problem:{code}"
    assert document["title"]
    assert document["detail"]
    return document


def v2_error(answer, status, code):
    """Check an error of the Open Inference Protocol: Triton's form."""
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert (answer.status_code, document["status"], document["code"]) == (status, status, code), answer.text
    assert document["error"]
    return document


def books(served, stream):
    state = served.http.get(f"/v1/streams/{stream['stream_id']}").json()
    assert state["accepted"] == state["in_flight"] + sum(state["outcomes"].values())
    return state


def wait_until(condition, what):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)
