"""Results as server-sent events, under the real server."""

import dataclasses
import json
import socket as sockets
import threading
import time
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

from tests.api.served import FRAME, Served, echo, problem, wait_until
from tests.api.test_bad_clients import head

MIB = 1 << 20


class Events:
    """Reads an event stream as it comes."""

    def __init__(self, answer):
        self.answer = answer
        self._lines = answer.iter_lines()

    def __next__(self):
        """Return the next event or comment: id, name, data."""
        fields = {}
        for line in self._lines:
            if line == "":
                return fields.get("id"), fields.get("event"), fields.get("data")
            name, _, value = line.partition(":")
            fields[name or "comment"] = value.strip()
            if name == "data":
                fields["data"] = json.loads(value)
        raise StopIteration

    def results(self, count):
        return [next(self)[2] for _ in range(count)]

    def __iter__(self):
        return self


@contextmanager
def events_of(served, stream, headers=None, **params):
    with served.http.stream("GET", stream["events_url"], params=params, headers=headers or {}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        events = Events(answer)
        assert next(events) == (None, None, None)  # retry: alone
        yield events


def post(served, stream, frames=1):
    answer = served.http.post(stream["frames_url"], content=FRAME * frames)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


def test_results_follow_one_another_and_end_with_the_stream(served):
    with served.stream(burst=8, deadline_ms=2_000, frames=6) as stream:
        post(served, stream, 2)
        with events_of(served, stream) as events:
            before = [next(events), next(events)]
            assert [each[0] for each in before] == ["0", "1"]
            assert echo(before[1][2]) == FRAME
            posted = post(served, stream, 3)
            assert events.results(3) == posted
            assert served.counters()["framegate_event_streams",] == 1
            post(served, stream)
            assert next(events)[0] == "5"
            assert next(events) == (None, "end", {"reason": "finished"})
            assert list(events) == []
        # whoever comes back is told not to
        assert served.http.get(stream["events_url"], headers={"Last-Event-ID": "5"}).status_code == 204
        with events_of(served, stream, headers={"Last-Event-ID": "4"}) as events:
            assert [next(events)[0], next(events)[1]] == ["5", "end"]
    wait_until(lambda: served.counters()["framegate_event_streams",] == 0, "it is counted as open")


def test_who_comes_back_goes_on_where_it_was(served):
    with served.stream(burst=8, deadline_ms=2_000) as stream:
        post(served, stream, 4)
        with events_of(served, stream, after=1) as events:
            assert [result["seq"] for result in events.results(2)] == [2, 3]
        # an EventSource asks with the address that it has, and says what it saw
        with events_of(served, stream, headers={"Last-Event-ID": "2"}, after=1) as events:
            assert next(events)[0] == "3"


@pytest.mark.parametrize("wrong", ["", "-1", "x", "1.5", "9" * 30, "\u0661".encode()])
def test_an_id_that_is_none_is_refused(served, wrong):
    with served.stream() as stream:
        problem(served.http.get(stream["events_url"], headers={"Last-Event-ID": wrong}), 422, "invalid_request")
        problem(served.http.get(stream["events_url"], params={"after": -2}), 422, "invalid_request")
        problem(served.http.get(stream["events_url"], params={"before": 1}), 422, "invalid_request")
    problem(served.http.get("/v1/streams/none/events"), 404, "stream_not_found")


def test_what_was_not_kept_is_a_gap():
    with Served(limits={"results_kept": 4}) as served, served.stream(burst=16, deadline_ms=2_000) as stream:
        post(served, stream, 10)
        with events_of(served, stream) as events:  # who asks for all that is kept gets that
            assert [result["seq"] for result in events.results(4)] == [6, 7, 8, 9]
        with events_of(served, stream, after=2) as events:
            assert next(events) == (None, "gap", {"from": 3, "to": 5, "reason": "not_kept"})
            assert next(events)[0] == "6"
        assert served.counters()["framegate_results_undelivered_total", "slow_reader"] == 0


def test_a_silent_stream_says_that_it_is_there():
    with (
        Served(server={"heartbeat_s": 0.1}) as served,
        served.stream() as stream,
        events_of(served, stream) as events,
    ):
        assert [next(events) for _ in range(3)] == [(None, None, None)] * 3
        post(served, stream)
        while (event := next(events))[0] is None:
            pass
        assert event[0] == "0"


def test_a_slow_reader_finds_a_gap_and_holds_nobody_up():
    """It takes nothing while 400 results of 250 kB go by; another one gets them all."""
    with Served(limits={"results_kept": 32, "results_kept_bytes": 64 * MIB}) as served, served.stream() as stream:
        post(served, stream)
        host, port = served.url.removeprefix("http://").split(":")
        with sockets.socket() as slow:
            slow.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
            slow.connect((host, int(port)))
            slow.settimeout(20)
            slow.sendall(head("GET", stream["events_url"]))
            wait_until(lambda: served.counters()["framegate_event_streams",] == 1, "it did not come in")
            seen = []

            def follow():
                with events_of(served, stream, after=0) as events:
                    while len(seen) < 400:
                        seen.append(int(next(events)[0]))

            fast = threading.Thread(target=follow)
            fast.start()
            wait_until(lambda: served.counters()["framegate_event_streams",] == 2, "it did not come in")
            for first in range(1, 401, 8):
                keep_results_from(served, stream, first, 8)
                wait_until(lambda last=first + 7: (seen or [0])[-1] >= last, "the fast one waits")
            fast.join(20)
            assert seen == list(range(1, 401))
            data = b""
            while b"event: gap" not in data:
                data = data[-100:] + slow.recv(1 << 20)
        assert served.counters()["framegate_results_undelivered_total", "slow_reader"] > 100


def keep_results_from(served, stream, first, count):
    ring = served.gateway.stream(stream["stream_id"]).ring
    [template] = served.run(served.gateway.results(stream["stream_id"], first - 2, 1_000))[:1]
    for seq in range(first, first + count):
        served.call(ring.add, dataclasses.replace(template, seq=seq, outputs={"x": np.full(60_000, 255, np.uint8)}))


def test_a_client_that_goes_away_is_not_followed(served):
    with served.stream() as stream:
        with served.connect() as connection:
            connection.sendall(head("GET", stream["events_url"]))
            wait_until(lambda: served.counters()["framegate_event_streams",] == 1, "it did not come in")
        wait_until(lambda: served.counters()["framegate_event_streams",] == 0, "it is still followed")
        assert served.gateway.stream(stream["stream_id"]).ring._waiters == set()


def test_a_stop_ends_open_event_streams_at_once():
    served = Served(server={"shutdown_grace_s": 30}).start()
    stream = served.register().json()
    seen = []

    def follow():
        with httpx.Client(base_url=served.url, timeout=20) as http, http.stream("GET", stream["events_url"]) as answer:
            seen.extend(Events(answer))

    follower = threading.Thread(target=follow)
    follower.start()
    wait_until(lambda: served.call(lambda: served.server.server_state.tasks), "it did not come in")
    time.sleep(0.1)
    began = time.monotonic()
    served.stop()
    follower.join(10)
    assert time.monotonic() - began < 3
    assert seen[-1] == (None, "end", {"reason": "stopping"})
