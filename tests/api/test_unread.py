"""Who is cut off when too much waits for clients; on a loop whose time the test sets."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from gateway.api.problems import LastHandler
from gateway.api.unread import Share, Unread
from gateway.core.types import Outcome
from gateway.runtime.kept import size_of
from gateway.runtime.results import FrameResult
from tests.api.asgi import Client

RESULT = FrameResult("s", 0, Outcome.MET, "", 1, 2, 1, 0, 1, False, (1,), {"x": np.zeros(1_000, np.uint8)})
SIZE = size_of(RESULT)


@pytest.fixture
def loop(monkeypatch):
    """Runs a test's coroutine; `loop.now` is what its clock says."""

    class Loop(asyncio.SelectorEventLoop):
        now = 0.0

        def time(self):
            return self.now

    loop = Loop()
    yield loop
    loop.close()


def test_the_client_that_has_taken_nothing_for_longest_is_cut_off(loop):
    async def main():
        cut = []
        unread = Unread(limit_bytes=4 * SIZE)
        slow, steady, new = (Share(lambda name=name: cut.append(name)) for name in ("slow", "steady", "new"))
        unread.hold(slow, RESULT)
        loop.now = 1.0
        unread.hold(steady, RESULT)
        loop.now = 2.0
        for _ in range(2):  # it has the most, and takes what it gets
            unread.hold(steady, RESULT)
        unread.release(steady, SIZE)
        unread.hold(new, RESULT)
        assert (cut, unread.bytes) == ([], 4 * SIZE)
        unread.hold(new, RESULT)
        assert (cut, unread.bytes, slow.bytes) == (["slow"], 4 * SIZE, 0)
        unread.release(slow, SIZE)  # what it was just sent when it was cut off
        assert unread.bytes == 4 * SIZE
        unread.forget(steady)
        unread.forget(steady)
        assert unread.bytes == 2 * SIZE

    loop.run_until_complete(main())


def test_one_client_alone_can_be_too_much_and_what_is_nothing_does_not_count(loop):
    async def main():
        cut = []
        unread = Unread(limit_bytes=SIZE)
        share = Share(lambda: cut.append(1))
        assert unread.hold(share, replace(RESULT, outputs=None)) == 0
        assert unread.hold(share, RESULT) == SIZE
        unread.hold(share, RESULT)
        assert (cut, unread.bytes) == ([1], 0)

    loop.run_until_complete(main())


@pytest.mark.parametrize("accepted", [False, True])
def test_a_fault_while_a_socket_is_served_is_logged_and_told(caplog, accepted):
    async def app(_scope, _receive, send):
        if accepted:
            await send({"type": "websocket.accept"})
        raise RuntimeError("a fault")

    client = Client()
    asyncio.run(LastHandler(app)({"type": "websocket", "path": "/"}, client.receive, client.send))
    last = client.sent[-1]
    if accepted:
        assert last == {"type": "websocket.close", "code": 1011, "reason": "internal"}
    else:
        assert client.sent[0]["status"] == 500
        assert b'"internal"' in last["body"]
    assert "a fault" in caplog.text
