"""No call holds up the event loop for long, however many streams there are: whatever is long comes in turns.

What counts is the processor time of the loop's own thread: others may use the machine meanwhile.
"""

import asyncio
import threading
import time

import pytest

from tests.api.served import FRAME, LARGE, SMALL, Served

STREAMS = 300
#: A turn takes 2 ms at most on an idle machine; one over all streams at once took 12.
LONGEST_S = 0.008


class Turns:
    """The longest turn of one thread's event loop since `reset`."""

    def __init__(self, thread):
        self.longest_s = 0.0
        self._thread = thread

    def watching(self, run):
        """Return `asyncio.Handle._run` with a look at the clock."""

        def timed(handle):
            began_s = time.thread_time()
            run(handle)
            if threading.get_ident() == self._thread:
                self.longest_s = max(self.longest_s, time.thread_time() - began_s)

        return timed


@pytest.fixture(scope="module")
def full():
    """A gateway with many streams."""
    with Served(arena={"bytes": 64 << 20}) as served:
        served.app.openapi()  # `framegate serve` does it before it listens
        contract = {"model": "echo", "shape": SMALL, "period_ms": 60_000, "deadline_ms": 60_000}
        streams = [served.register(**contract, service_class="best_effort").json() for _ in range(STREAMS)]
        streams.append(served.register(**contract, burst=64).json())
        served.streams = streams
        yield served


@pytest.fixture
def turns(full, monkeypatch):
    found = Turns(full._thread.ident)
    monkeypatch.setattr(asyncio.Handle, "_run", found.watching(asyncio.Handle._run))
    return found


CALLS = {
    "streams": lambda served: served.http.get("/v1/streams"),
    "a stream": lambda served: served.http.get(f"/v1/streams/{served.streams[0]['stream_id']}"),
    "metrics": lambda served: served.http.get("/metrics"),
    "models": lambda served: served.http.get("/v1/models"),
    "the profile": lambda served: served.http.get("/v1/profile"),
    "the OpenAPI document": lambda served: served.http.get("/openapi.json"),
    "a check": lambda served: served.http.post(
        "/v1/admission/check", json={"model": "echo", "shape": LARGE, "period_ms": 1_000, "deadline_ms": 1_000}
    ),
    "frames": lambda served: served.http.post(served.streams[-1]["frames_url"], content=FRAME * 64),
    "results": lambda served: served.http.get(served.streams[-1]["results_url"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_short_turns(full, turns, name):
    assert CALLS[name](full).status_code == 200
    turns.longest_s, best_s = 0.0, 1.0
    for _ in range(3):  # the best of three: memory may be slow while others use the machine
        assert CALLS[name](full).status_code == 200
        best_s, turns.longest_s = min(best_s, turns.longest_s), 0.0
    assert 0 < best_s < LONGEST_S


def test_a_stream_comes_and_goes_in_short_turns(full, turns):
    best_s = 1.0
    for _ in range(3):
        with full.stream(period_ms=60_000, deadline_ms=60_000):
            pass
        best_s, turns.longest_s = min(best_s, turns.longest_s), 0.0
    assert 0 < best_s < LONGEST_S
