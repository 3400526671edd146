"""Messages that come in one piece are taken out of memory that the next one is written to: none may be torn."""

import time
from collections import Counter

import pytest
from websockets.frames import Frame, Opcode

from gateway.api.ws_connection import SocketConnection
from tests.api.served import Served, books, echo, wait_until
from tests.api.sockets import Bare
from tests.api.test_ws_pieces import results_of

pytestmark = pytest.mark.usefixtures("no_error_is_logged")

SHAPE = (160, 160, 3)
FRAME_BYTES = 160 * 160 * 3


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """How often something that came was taken whole."""
    found: Counter[bool] = Counter()
    before = SocketConnection.take_whole

    def counted(self: SocketConnection, data: memoryview) -> bool:
        taken = before(self, data)
        found[taken] += 1
        return taken

    monkeypatch.setattr(SocketConnection, "take_whole", counted)
    return found


def picture(value: int) -> bytes:
    return bytes([value, 255 - value]) * (FRAME_BYTES // 2)


def message(value: int) -> bytes:
    return Frame(Opcode.BINARY, picture(value), True).serialize(mask=True)


@pytest.fixture(scope="module")
def large():
    limits = {"max_unanswered": 2}
    with Served(times={SHAPE: {1: 10.0, 4: 30.0}}, limits=limits, arena={"bytes": 64 << 20}) as gateway:
        yield gateway


def whole_ones_come(large: Served, bare: Bare, stream: dict, ways: Counter[bool]) -> int:
    """Send messages, one at a time, until some were taken whole; return how many."""
    for sent in range(200):
        bare.connection.sendall(message(sent))
        [result], _ = results_of(bare, 1)
        assert (result["message"], echo(result)) == (sent, picture(sent))
        if ways[True] > 5:
            return sent + 1
    raise AssertionError("no message ever came whole")


def test_messages_that_come_whole_are_answered_as_others_are(large: Served, ways: Counter[bool]) -> None:
    with large.stream(shape=SHAPE, burst=2, period_ms=400, deadline_ms=8_000) as stream, Bare(large, stream) as bare:
        sent = whole_ones_come(large, bare, stream, ways)
        assert books(large, stream)["accepted"] == sent
        wait_until(lambda: large.counters()["framegate_upload_bytes",] == 0, "something still counts")


def test_what_has_to_wait_is_kept_as_it_came(large: Served, ways: Counter[bool]) -> None:
    """The client may have 2 unanswered, and sends 6: the others lie somewhere until it is their turn."""
    large.stand_in.delay_s = lambda call: 0.1
    try:
        with (
            large.stream(shape=SHAPE, burst=1, period_ms=20_000, deadline_ms=10_000, on_excess="best_effort") as stream,
            Bare(large, stream) as bare,
        ):
            for value in range(6):
                bare.connection.sendall(message(value))
                time.sleep(0.01)  # so that each comes by itself
            found, _ = results_of(bare, 6)
            assert [(each["message"], echo(each)) for each in found] == [(n, picture(n)) for n in range(6)]
            assert ways[False] > 0
    finally:
        large.stand_in.delay_s = lambda call: 0.0
