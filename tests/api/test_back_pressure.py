"""What has no room is refused at once, with the time to come back; over HTTP, a WebSocket and `/v2` alike."""

from contextlib import contextmanager

import pytest

from tests.api.served import FRAME, Served, books, echo, problem, v2_error
from tests.api.sockets import answer, answers, socket_of
from tests.api.v2_support import binary, infer, tensor

pytestmark = pytest.mark.usefixtures("no_error_is_logged")


@contextmanager
def full_arena(served, leave_bytes=1_024):
    """Somebody has all of the arena but `leave_bytes`."""
    free = served.call(lambda: served.gateway.arena.free_bytes)
    lent = served.call(lambda: served.gateway.arena.lend(free - leave_bytes, clear=False))
    served.call(lent.__enter__)
    try:
        yield
    finally:
        served.call(lent.__exit__, None, None, None)


def test_over_http(served):
    before = served.counters().get(("framegate_refused_total", "arena_full"), 0)
    with served.stream() as stream:
        with full_arena(served):
            for query in ({}, {"wait": "false"}):
                refused = served.http.post(stream["frames_url"], params=query, content=FRAME * 4)
                problem(refused, 503, "arena_full")
                assert int(refused.headers["retry-after"]) >= 1
        [result] = served.http.post(stream["frames_url"], content=FRAME).json()["results"]
        assert (result["seq"], echo(result)) == (0, FRAME)
        assert books(served, stream)["accepted"] == 1
    assert served.counters()["framegate_refused_total", "arena_full"] == before + 8


def test_over_a_websocket(served):
    """The message is refused as a whole, says when to come again, and the socket goes on."""
    with served.stream(burst=8, deadline_ms=2_000) as stream, socket_of(served, stream) as socket:
        with full_arena(served):
            socket.send(FRAME * 4)
            socket.send(FRAME)
            first, second = answers(socket, 2)
            for index, found in enumerate((first, second)):
                assert found["message"] == index
                assert (found["error"]["status"], found["error"]["code"]) == (503, "arena_full")
                assert found["error"]["retry_after_ms"] >= 1
        socket.send(FRAME)
        result = answer(socket)
        assert (result["message"], result["seq"], echo(result)) == (2, 0, FRAME)
        assert books(served, stream)["accepted"] == 1


def test_over_v2(served):
    call = binary([tensor([1, 8, 8, 3], size=192)], FRAME)
    with full_arena(served):
        refused = infer(served, call)
        v2_error(refused, 503, "arena_full")
        assert int(refused.headers["retry-after"]) >= 1
    assert infer(served, call).status_code == 200


def test_too_many_best_effort_frames():
    """A bound in frames, not in bytes; what keeps its contract is taken all the same."""
    with Served(best_effort={"max_waiting": 4, "window_ms": 50}) as served:
        served.stand_in.delay_s = lambda call: 0.3
        loose = {"service_class": "best_effort", "period_ms": 10, "deadline_ms": 5_000}
        with served.stream(**loose) as stream, served.stream(deadline_ms=5_000) as camera:
            served.http.post(stream["frames_url"], params={"wait": "false"}, content=FRAME)
            served.wait_until_running()
            assert (
                served.http.post(stream["frames_url"], params={"wait": "false"}, content=FRAME * 4).status_code == 202
            )
            refused = served.http.post(stream["frames_url"], content=FRAME)
            problem(refused, 503, "best_effort_full")
            assert int(refused.headers["retry-after"]) >= 1
            with socket_of(served, stream) as socket:
                socket.send(FRAME)
                error = answer(socket)["error"]
                assert (error["code"], error["retry_after_ms"] > 0) == ("best_effort_full", True)
            assert served.http.post(camera["frames_url"], content=FRAME).json()["results"][0]["outcome"] == "met"
