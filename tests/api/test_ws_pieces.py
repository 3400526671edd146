"""Binary messages that the library does not see: taken as they come, whatever the network and the client do."""

import itertools
import json
import random
import time

import pytest
from websockets.frames import Frame, Opcode

from gateway.api.ws_socket import text_header
from tests.api.served import FRAME, SMALL, Served, books, echo, wait_until
from tests.api.sockets import PING, TEXT, Bare, answers, socket_of

pytestmark = pytest.mark.usefixtures("no_error_is_logged")

LARGE = (128, 128, 3)
FRAME_BYTES = 128 * 128 * 3


@pytest.fixture(scope="module")
def shared():
    times = {SMALL: {1: 10.0, 8: 24.0}, LARGE: {1: 20.0, 4: 60.0}}
    with Served(times=times, arena={"bytes": 64 << 20}) as gateway:
        yield gateway


def masked(opcode, payload, *, fin=True):
    return Frame(Opcode(opcode), payload, fin).serialize(mask=True)


def results_of(bare, count):
    """Return the next results, and the payloads of pongs between them."""
    found, pongs = [], []
    while len(found) < count:
        opcode, payload = bare.read()
        if opcode == TEXT:
            found.append(json.loads(payload))
        else:
            pongs.append(payload)
    return found, pongs


@pytest.mark.parametrize("seed", range(12))
def test_labels_pings_fragments_and_messages_keep_their_order_wherever_the_network_cuts(served, seed):
    draw = random.Random(seed)
    data, wanted, pings = b"", [], []
    for index in range(6):
        picture, label = draw.randbytes(FRAME_BYTES), None
        if draw.random() < 0.5:
            label = draw.randrange(1_000)
            data += masked(TEXT, b'{"timestamp_ms": %d}' % label)
        if draw.random() < 0.3:
            pings.append(b"%d" % index)
            data += masked(PING, pings[-1])
        if draw.random() < 0.3:
            part = draw.randrange(FRAME_BYTES)
            data += masked(2, picture[:part], fin=False) + masked(0, picture[part:])
        else:
            data += masked(2, picture)
        wanted.append((index, label, picture))
    places = sorted(draw.randrange(len(data)) for _ in range(draw.randint(0, 12)))
    with (
        served.stream(shape=LARGE, burst=8, period_ms=1_000, deadline_ms=8_000) as stream,
        Bare(served, stream) as bare,
    ):
        for start, end in itertools.pairwise([0, *places, len(data)]):
            bare.connection.sendall(data[start:end])
            time.sleep(0.002)
        found, pongs = results_of(bare, 6)
        assert [(each["message"], each["timestamp_ms"], echo(each)) for each in found] == wanted
        assert pongs == pings


def test_what_waits_because_of_the_limit_is_taken_in_order():
    """Several messages in one packet: the limit holds within it, and nothing overtakes what had to wait."""
    with Served(limits={"max_unanswered": 2}) as served:
        served.stand_in.delay_s = lambda call: 0.2
        with (
            served.stream(burst=2, period_ms=20_000, deadline_ms=20_000) as stream,
            Bare(served, stream) as bare,
        ):
            bodies = [bytes([value]) * len(FRAME) for value in range(7)]
            labelled = [
                masked(TEXT, b'{"timestamp_ms": %d}' % value) + masked(2, body) for value, body in enumerate(bodies)
            ]
            bare.connection.sendall(b"".join(labelled))
            most = 4  # what its contract lets be under way
            wait_until(lambda: books(served, stream)["accepted"] >= most, "they did not come in")
            time.sleep(0.05)
            assert books(served, stream)["in_flight"] <= most
            found, _ = results_of(bare, 7)
            assert [(each["message"], each["timestamp_ms"], echo(each)) for each in found] == [
                (value, value, body) for value, body in enumerate(bodies)
            ]
            wait_until(lambda: served.counters()["framegate_upload_bytes",] == 0, "something still counts")


def test_a_message_counts_while_it_comes_and_not_once_it_is_taken(served):
    with served.stream(shape=LARGE) as stream, Bare(served, stream) as bare:
        data = masked(2, bytes(FRAME_BYTES))
        bare.connection.sendall(data[:20_000])
        wait_until(lambda: 19_000 < served.counters()["framegate_upload_bytes",] <= 20_000, "it does not count")
        bare.connection.sendall(data[20_000:])
        assert results_of(bare, 1)[0][0]["outcome"] == "met"
        assert served.counters()["framegate_upload_bytes",] == 0


def test_what_comes_behind_a_close_is_not_taken(served):
    with served.stream(shape=LARGE) as stream, Bare(served, stream) as bare:
        close = masked(8, (1000).to_bytes(2, "big"))
        bare.connection.sendall(masked(2, bytes(FRAME_BYTES)) + close + masked(2, bytes(FRAME_BYTES)))
        assert bare.code_of_close()[0] == 1000
        wait_until(lambda: books(served, stream)["in_flight"] == 0, "it did not end")
        assert books(served, stream)["accepted"] == 1


def test_a_stream_of_results_and_refusals_in_one_packet(served):
    with served.stream(burst=8, period_ms=1_000, deadline_ms=4_000) as stream, socket_of(served, stream) as socket:
        for body in (FRAME, b"", FRAME * 2, FRAME[1:]):
            socket.send(body)
        found = sorted(answers(socket, 5), key=lambda each: each["message"])
        assert [each["message"] for each in found] == [0, 1, 2, 2, 3]
        assert [each.get("outcome") or each["error"]["code"] for each in found] == [
            "met", "frame_size_mismatch", "met", "met", "frame_size_mismatch",
        ]  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 1 << 20])
def test_the_header_of_a_text_is_the_librarys(size):
    text = b"x" * size
    assert text_header(size) + text == Frame(Opcode.TEXT, text).serialize(mask=False)
