"""Report 46: live says nothing of models, ready nothing of loads, and each model's own ready is exact."""

import threading
import time

import httpx
import pytest

from tests.api.served import Served, wait_until
from tests.stand_in import Model

POLL_S = 0.1
#: The gateway looks at Triton's models once a second.
NOTICED_S = 1.3
PATHS = {
    "live": "/v2/health/live",
    "ready": "/v2/health/ready",
    "a": "/v2/models/a/ready",
    "b": "/v2/models/b/ready",
    "b/1": "/v2/models/b/versions/1/ready",
}


class Poll:
    """Asks for everything ten times a second; keeps what changed, and when."""

    def __init__(self, url):
        self.changes = {name: [] for name in PATHS}
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with httpx.Client(base_url=self._url, timeout=10) as client:
            while not self._stop.wait(POLL_S):
                for name, path in PATHS.items():
                    seen = self.changes[name]
                    good = client.get(path).status_code == 200
                    if not seen or seen[-1][0] is not good:
                        seen.append((good, time.monotonic()))

    def states(self, name):
        return [good for good, _ in self.changes[name]]

    def __enter__(self):
        self._thread.start()
        wait_until(lambda: self.changes["b/1"], "nothing is polled")
        return self

    def __exit__(self, *_error):
        self._stop.set()
        self._thread.join()


@pytest.fixture
def served():
    with Served(Model("a"), Model("b")) as gateway:
        yield gateway


def test_one_model_is_unloaded_and_takes_long_to_load(served, length):
    """It is gone within a second, comes back once, and all the while the rest is as it was."""
    seconds = length(2.5, 30.0)
    model = served.stand_in.models["b"]
    model.load_delay_s = seconds
    with Poll(served.url) as poll:
        model.loaded = False
        gone = time.monotonic()
        wait_until(lambda: poll.states("b/1")[-1:] == [False], "it is still ready")
        assert poll.changes["b"][-1][1] - gone < NOTICED_S
        deadline = gone + seconds + 8
        while poll.states("b/1") != [True, False, True]:
            assert time.monotonic() < deadline, "it is not ready again"
            time.sleep(POLL_S)
        assert poll.changes["b"][-1][1] - gone > seconds
    assert poll.states("b") == poll.states("b/1") == [True, False, True]
    assert poll.states("live") == poll.states("ready") == poll.states("a") == [True]
    assert len(served.stand_in.log("load")) == 1, "it was loaded once"


def test_without_triton_it_lives_and_no_model_is_ready():
    served = Served(Model("a"), with_triton=False).start(ready=False)
    try:
        assert served.http.get("/v2/health/live").status_code == 200
        assert served.http.get("/v2/health/ready").status_code == 503
        assert served.http.get("/v2/models/a/ready").status_code == 503
    finally:
        served.stop()
