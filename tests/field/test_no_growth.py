"""Memory does not grow with the frames that went through: not the gateway's objects, nor its process, nor the arena."""

import gc
import sys
import threading
import time

import httpx
import pytest
from websockets.sync.client import connect

from gateway.core import reservation
from gateway.runtime.profile_file import write_profile
from tests.api.served import FRAME, Served, profile
from tests.api.sockets import answers, socket_of
from tests.api.test_serve import serving, triton, url_of  # noqa: F401 - a fixture
from tests.field.support import MB, rss_bytes

#: Streams keep this many results, so that they have them all after a moment.
KEPT = 32
LIMITS = {"results_kept": KEPT, "closed_streams_kept": 2}


def send(served, rounds):
    """Frames of cameras that come and go, over calls and WebSockets; some are refused."""
    for _ in range(rounds):
        with served.stream(burst=8, deadline_ms=400) as stream:
            for _ in range(8):
                assert served.http.post(stream["frames_url"], content=FRAME * 4).status_code == 200
                assert served.http.post(stream["frames_url"], content=FRAME[1:]).status_code == 400
            with socket_of(served, stream) as socket:
                for _ in range(8):
                    socket.send(FRAME * 4)
                assert all(result["outcome"] in ("met", "missed") for result in answers(socket, 32))
            served.http.get(stream["results_url"])
        served.http.get("/metrics")


def blocks(served):
    """Return how many pieces of memory Python holds, when nothing is under way and the last deadline is over."""
    time.sleep(0.5)
    served.stand_in.calls.clear()
    gc.collect()
    return sys.getallocatedblocks()


def test_no_object_is_left_behind(monkeypatch):
    monkeypatch.setattr(reservation, "_REMEMBERED", 64)  # by design the latest 16,384 frames are, for plans under way
    with Served(limits=LIMITS) as served:
        send(served, 80)  # caches of text that was parsed fill up to their bounds, the slowest after some 70 rounds
        free, before = served.gateway.arena.free_bytes, blocks(served)
        send(served, 40)
        grown = blocks(served) - before
        assert served.gateway.arena.free_bytes == free
        assert served.gateway.arena.batches == 0
        frames, calls = 40 * 64, 40 * 16
        assert grown < calls / 2, f"{grown} blocks for {frames} frames in {calls} calls and messages"


class Load(threading.Thread):
    """Sends frames as fast as they are answered, until it is stopped; over HTTP, or a WebSocket."""

    def __init__(self, url, stream, frame, *, over_ws):
        super().__init__(name="load", daemon=True)
        self.frames = 0
        self._url, self._stream, self._frame = url, stream, frame
        self._way = self._over_ws if over_ws else self._over_http
        self._over = threading.Event()

    def run(self):
        self._way()

    def stop(self):
        self._over.set()
        self.join(20)
        assert not self.is_alive(), "a frame was never answered"

    def _over_http(self):
        with httpx.Client(timeout=20) as client:
            while not self._over.is_set():
                answer = client.post(self._url + self._stream["frames_url"], content=self._frame)
                assert answer.status_code == 200, answer.text
                self.frames += 1

    def _over_ws(self):
        url = self._url.replace("http", "ws") + f"/v1/streams/{self._stream['stream_id']}/ws"
        with connect(url, max_size=None, compression=None) as socket:
            while not self._over.is_set():
                socket.send(self._frame * 4)
                for _ in range(4):
                    assert "outcome" in socket.recv(20)
                self.frames += 4


@pytest.mark.slow
def test_the_process_stays_as_it_is(triton, tmp_path, length):  # noqa: F811 - the fixture
    """Frames of 150 kB; at full length as much as the machine takes in ten minutes."""
    shape = (224, 224, 3)
    frame = bytes(224 * 224 * 3)
    write_profile(tmp_path / "profile.json", profile({shape: {1: 5.0, 2: 6.0, 4: 8.0}}))
    triton.models["echo"].outputs = ("stamp",)
    options = ("--triton", triton.url, "--profile", tmp_path / "profile.json", "--arena-mb", 64)
    settings = {
        "FRAMEGATE_LIMITS__RESULTS_KEPT": str(KEPT),
        "FRAMEGATE_SCHEDULING__POLICING": "false",
        "FRAMEGATE_TELEMETRY__LOG_LEVEL": "warning",
    }
    try:
        with serving(*options, **settings) as process:
            url = url_of(process)
            body = {"model": "echo", "shape": shape, "period_ms": 200, "deadline_ms": 10_000, "burst": 4}
            streams = [httpx.post(f"{url}/v1/streams", json=body).json() for _ in range(3)]
            loads = [Load(url, stream, frame, over_ws=number == 0) for number, stream in enumerate(streams)]
            for load in loads:
                load.start()
            time.sleep(length(2, 60))
            rss, frames = rss_bytes(process.pid), sum(load.frames for load in loads)
            time.sleep(length(4, 600))
            grown, frames = rss_bytes(process.pid) - rss, sum(load.frames for load in loads) - frames
            triton.calls.clear()
            for load in loads:
                load.stop()
            metrics = httpx.get(f"{url}/metrics").text
    finally:
        triton.models["echo"].outputs = ("echo", "stamp")
    print(f"{frames} frames, {rss / MB:.1f} MB at first, {grown / MB:+.2f} MB")
    assert frames > 200
    assert "framegate_arena_free_bytes 6.7108864e+07" in metrics
    assert grown < 0.03 * rss, f"{grown} bytes more after {frames} frames"
