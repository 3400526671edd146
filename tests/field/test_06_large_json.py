"""Report 6: large JSON tensors hold up neither health checks nor streams."""

import threading
import time

import httpx
import numpy as np
import pytest

from tests.api.served import FRAME, Served
from tests.api.v2_support import infer, tensor
from tests.field.support import steady

ROUND_S = 0.02


def health_times(url, stop, times):
    with httpx.Client(base_url=url, timeout=20) as client:
        while not stop.is_set():
            began = time.monotonic()
            assert client.get("/v2/health/live").status_code == 200
            times.append(time.monotonic() - began)
            time.sleep(ROUND_S)


@pytest.mark.parametrize("refused", [False, True])
def test_large_json_holds_nobody_up(length, refused):
    """Four at a time, each as large as may be: parsed by another process; or larger, and refused unread."""
    seconds = length(4.0, 20.0)
    shape = [1, 3, 640, 640, 3][1:] if refused else [1, 400, 400, 3]
    values = np.random.default_rng(6).integers(0, 256, int(np.prod(shape))).tolist()
    body = httpx.Request("POST", "http://x", json={"inputs": [tensor(shape, values)]}).content
    statuses, times = [], []
    stop = threading.Event()
    with Served() as served:

        def send():
            with httpx.Client(base_url=served.url, timeout=30) as client:
                while not stop.is_set():
                    statuses.append(client.post("/v2/models/echo/infer", content=body).status_code)

        threads = [threading.Thread(target=send) for _ in range(4)]
        threads.append(threading.Thread(target=health_times, args=(served.url, stop, times)))
        with steady(served, FRAME, fps=20, deadline_ms=400) as camera:
            for thread in threads:
                thread.start()
            time.sleep(seconds)
            stop.set()
            for thread in threads:
                thread.join()
    # What is not profiled is refused while a stream is promised its time, but only after it was parsed.
    assert set(statuses) == ({413} if refused else {409})
    assert set(camera.outcomes) == {"met"}
    assert np.percentile(times, 99) < 0.1, np.percentile(times, [50, 99, 100])


def test_the_limit_is_said(length):
    with Served(limits={"max_tensor_json_bytes": 10_000}) as served:
        answer = infer(served, {"json": {"inputs": [tensor([1, 100, 100, 3], [0] * 30_000)]}})
        assert answer.status_code == 413
        assert answer.json()["limit_bytes"] == 10_000
