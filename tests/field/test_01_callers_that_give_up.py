"""Report 1: whoever gives up while waiting leaves no trace: no call, no memory, no count that stays up."""

import json
import time

import pytest

from tests.api.served import FRAME, SMALL, Served, wait_until
from tests.field.support import head, reset

#: One call per frame, so that calls can be counted.
TIMES = {SMALL: {1: 10.0}}
TENSOR = {"name": "frames", "shape": [1, *SMALL], "datatype": "UINT8", "data": list(FRAME)}


@pytest.fixture(params=["v2", "best_effort", "real_time"])
def way(request):
    """A server, and the bytes of a request that waits for its answer."""
    with Served(times=TIMES, triton={"call_timeout_ms": 20_000}) as served:
        if request.param == "v2":
            body = json.dumps({"inputs": [TENSOR]}).encode()
            yield served, message("/v2/models/echo/infer", body, "application/json")
            return
        contract = {"service_class": request.param, "deadline_ms": 20_000}
        if request.param == "real_time":
            contract |= {"period_ms": 1_000, "burst": 50, "deadline_ms": 60_000}
        with served.stream(**contract) as stream:
            yield served, message(stream["frames_url"], FRAME, "application/octet-stream")


def message(path, body, kind):
    return head("POST", path, f"Content-Length: {len(body)}", f"Content-Type: {kind}") + body


def send(served, request):
    connection = served.connect()
    connection.sendall(request)
    return connection


def status(connection):
    line = connection.makefile("rb").readline()
    connection.close()
    return int(line.split()[1])


def in_flight(served):
    return served.counters().get(("framegate_frames_in_flight", "echo"), 0)


def ended(served, outcome):
    return served.counters().get(("framegate_frames_total", "echo", outcome), 0)


def test_who_gives_up_is_not_served_and_holds_nothing(way, length):
    served, request = way
    seconds = length(0.4, 2.0)
    free = served.gateway.arena.free_bytes
    served.call(served.stand_in.calls.clear)
    served.call(setattr, served.stand_in, "delay_s", lambda call: seconds)
    connections = []
    for number in range(5):
        connections.append(send(served, request))
        wait_until(lambda n=number: in_flight(served) == n + 1, "the frame was not taken")
    time.sleep(seconds / 10)
    reset(connections.pop(2))
    wait_until(lambda: ended(served, "cancelled") == 1, "nobody noticed that the caller has gone")
    assert [status(connection) for connection in connections] == [200] * 4
    wait_until(lambda: in_flight(served) == 0, "the gauge stays up")
    assert len(served.stand_in.log("infer")) == 4
    assert ended(served, "cancelled") == 1
    assert served.gateway.arena.free_bytes == free


def test_five_hundred_who_give_up_leave_everything_as_it_was(way, length):
    served, request = way
    rounds = length(100, 500)
    free = served.gateway.arena.free_bytes
    served.call(setattr, served.stand_in, "delay_s", lambda call: 0.005)
    for number in range(rounds):
        connection = send(served, request)
        if number % 3 == 0:
            time.sleep(0.004)
        reset(connection)
    wait_until(
        lambda: in_flight(served) == 0 and served.counters()["framegate_upload_bytes",] == 0, "the gauge stays up"
    )
    counters = served.counters()
    accepted = counters["framegate_frames_accepted_total", "echo"]
    refused = sum(count for key, count in counters.items() if key[0] == "framegate_refused_total")
    assert accepted > 0
    assert accepted + refused <= rounds
    assert ended(served, "cancelled") + ended(served, "met") + ended(served, "missed") == accepted
    assert served.gateway.arena.free_bytes == free
    assert served.gateway.arena.batches == 0
    served.call(setattr, served.stand_in, "delay_s", lambda call: 0.0)
    wait_until(lambda: status(send(served, request)) == 200, "the next one is not served")  # 429 while it is surplus
