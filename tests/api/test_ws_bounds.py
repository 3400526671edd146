"""WebSocket clients that do not go on, send too much or do not read; the server waits for 0.3 s."""

import random
import threading
import time
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed

from gateway.api.ws_connection import CLOSE_S, MAX_FRAGMENTS
from tests.api.served import FRAME, IMPATIENT, Served, books, echo, wait_until
from tests.api.sockets import BINARY, CLOSE, PING, TEXT, Bare, answer, code_of_close, socket_of
from tests.api.test_bad_clients import rss_bytes

MIB = 1 << 20
LARGE = (256, 256, 3)
PICTURE = bytes(range(256)) * 768

pytestmark = pytest.mark.usefixtures("no_error_is_logged")


@pytest.fixture(scope="module")
def impatient():
    with Served(limits=IMPATIENT, server={"heartbeat_s": 0.3}) as served:
        yield served


def no_socket_is_left(served):
    wait_until(lambda: not served.server.server_state.tasks, "a call still runs")
    wait_until(lambda: served.counters()["framegate_websockets",] == 0, "a socket is open")
    after = served.counters()
    assert (after["framegate_upload_bytes",], after["framegate_unread_bytes",]) == (0, 0)


def test_a_socket_may_rest(impatient):
    """The short limits are for what has begun; a client that answers pings is there."""
    with impatient.stream() as stream, socket_of(impatient, stream) as socket:
        time.sleep(1.0)
        socket.send(FRAME)
        assert answer(socket)["outcome"] == "met"


def test_who_answers_no_ping_is_closed(impatient):
    with impatient.stream() as stream, Bare(impatient, stream) as bare:
        began = time.monotonic()
        assert bare.code_of_close() == (1011, "keepalive ping timeout", [])
        assert 0.5 < time.monotonic() - began < 2
    no_socket_is_left(impatient)


def test_who_sends_is_there_though_it_answers_no_ping(impatient):
    with impatient.stream(period_ms=100) as stream, Bare(impatient, stream) as bare:
        for _ in range(12):
            bare.send(FRAME)
            time.sleep(0.1)
        assert books(impatient, stream)["accepted"] >= 10


@pytest.mark.parametrize("way", ["half a message", "half a fragment", "drops"])
def test_half_a_message_is_not_waited_for(impatient, way):
    before = impatient.counters().get(("framegate_refused_total", "upload_timeout"), 0)
    with impatient.stream() as stream, Bare(impatient, stream) as bare:
        began = time.monotonic()
        bare.send(FRAME)
        whole = bare.frame(BINARY, FRAME, fin=way != "half a fragment")
        bare.connection.sendall(whole if way == "half a fragment" else whole[:-100])
        if way == "drops":
            for _ in range(2):
                time.sleep(0.1)
                bare.connection.sendall(b"x")
        code, reason, found = bare.code_of_close()
        assert (code, reason) == (1008, "upload_timeout")
        assert found[0]["outcome"] == "met"  # the whole message before it
        assert (found[1]["message"], found[1]["error"]["status"]) == (None, 408)
        assert 0.25 < time.monotonic() - began < 2
    no_socket_is_left(impatient)
    assert impatient.counters()["framegate_refused_total", "upload_timeout"] - before == 1


def test_half_messages_hold_no_more_than_the_limit_of_all_bodies(impatient):
    with impatient.stream() as stream:
        bares = [Bare(impatient, stream) for _ in range(30)]
        for bare in bares:
            bare.connection.sendall(bare.frame(BINARY, bytes(192_000))[:-1])
        assert impatient.counters()["framegate_upload_bytes",] <= 4 * MIB
        codes = [bare.code_of_close()[:2] for bare in bares]
        assert set(codes) == {(1008, "upload_timeout"), (1013, "uploads_full")}
        assert 8 <= codes.count((1008, "upload_timeout")) <= 4 * MIB // 192_000
        for bare in bares:
            bare.connection.close()
    no_socket_is_left(impatient)


def test_a_message_over_the_limit_is_refused_unread(impatient):
    """The limit is that of the stream, which is the smaller one here."""
    with impatient.stream() as stream, Bare(impatient, stream) as bare:
        bare.connection.sendall(b"\x82\xff" + (192 * 1_024 + 1).to_bytes(8, "big"))
        code, reason, _ = bare.code_of_close()
        assert code == 1009
        assert str(192 * 1_024) in reason
    with impatient.stream() as stream, socket_of(impatient, stream) as socket:
        with suppress(ConnectionClosed):  # it may be told before it has sent all
            socket.send([bytes(100_000), bytes(100_000)])
        assert code_of_close(socket)[0] == 1009
    no_socket_is_left(impatient)
    assert impatient.counters()["framegate_refused_total", "body_too_large"] >= 2


def test_a_message_in_very_many_fragments_is_refused(impatient):
    with impatient.stream() as stream, Bare(impatient, stream) as bare:
        empty = bare.frame(0, b"", fin=False)
        bare.connection.sendall(bare.frame(BINARY, b"", fin=False) + empty * (MAX_FRAGMENTS + 10))
        code, reason, [found] = bare.code_of_close()
        assert (code, reason, found["error"]["status"]) == (1009, "body_too_large", 413)
    no_socket_is_left(impatient)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\xc2\x80" + bytes(4), 1002),  # a reserved bit
        (b"\x82\x01x", 1002),  # not masked
        (b"\x80\x80" + bytes(4), 1002),  # a continuation of nothing
        (b"\x81\x81" + bytes(4) + b"\xff", 1007),  # text that is no UTF-8
        (b"\x81\x82" + bytes(4) + b"\xff\xfe" + b"\x81\x82" + bytes(4) + b"\xff\xfe", 1007),  # and again
        (b"\x83\x80" + bytes(4), 1002),  # no such opcode
        (b"\x89\xfe\x00\x80" + bytes(4 + 128), 1002),  # a ping that is too long
    ],
)
def test_what_is_no_websocket_is_closed(served, sent, code, no_error_is_logged):
    with served.stream() as stream, Bare(served, stream) as bare:
        bare.connection.sendall(sent)
        assert bare.code_of_close()[0] == code
    no_socket_is_left(served)


def test_what_is_wrong_and_a_close_in_one_packet(served, no_error_is_logged):
    with served.stream() as stream:
        for wrong in (b"\xff\xfe", b"\xff"):
            with Bare(served, stream) as bare:
                bare.connection.sendall(bare.frame(TEXT, wrong) + bare.frame(CLOSE, (1000).to_bytes(2, "big")))
                assert bare.code_of_close()[0] == 1000
        with Bare(served, stream) as bare:
            empty = bare.frame(0, b"", fin=False)
            many = bare.frame(BINARY, b"", fin=False) + empty * (MAX_FRAGMENTS + 10)
            bare.connection.sendall(many + bare.frame(CLOSE, b""))
            bare.code_of_close()
    no_socket_is_left(served)


def test_nothing_that_a_client_sends_is_an_error_of_ours(served, no_error_is_logged):
    draw = random.Random(7)
    with served.stream(burst=4, deadline_ms=500) as stream:
        for _ in range(60):
            with Bare(served, stream) as bare, suppress(OSError):
                kinds = [
                    bare.frame(BINARY, FRAME),
                    bare.frame(BINARY, FRAME[:50], fin=False),
                    bare.frame(TEXT, b"{}"),
                    bare.frame(TEXT, b"\xff\xfe"),
                    bare.frame(TEXT, b"\xff", fin=False),
                    bare.frame(0, b"abc"),
                    bare.frame(CLOSE, b""),
                    bare.frame(PING, b""),
                    draw.randbytes(20),
                ]
                sent = draw.choices(kinds, k=draw.randint(1, 6))
                for packet in [b"".join(sent)] if draw.random() < 0.5 else sent:
                    bare.connection.sendall(packet)
    no_socket_is_left(served)


def test_who_does_not_answer_a_close_is_disconnected(served):
    with served.stream(frames=1) as stream, Bare(served, stream) as bare:
        bare.send(FRAME)
        assert bare.code_of_close()[:2] == (1000, "finished")
        began = time.monotonic()
        with pytest.raises((EOFError, ConnectionError)):
            bare.read()
        assert time.monotonic() - began < CLOSE_S + 1
    no_socket_is_left(served)


def test_a_client_that_closes_is_answered(served):
    with served.stream() as stream, Bare(served, stream) as bare:
        bare.send((1000).to_bytes(2, "big"), CLOSE)
        assert bare.code_of_close() == (1000, "", [])
        with pytest.raises((EOFError, ConnectionError)):
            bare.read()


def test_pings_of_a_client_that_does_not_read_fill_no_memory(impatient):
    before = rss_bytes()
    with impatient.stream() as stream, Bare(impatient, stream, receive_bytes=4096) as bare:
        bare.connection.settimeout(0.5)
        pings = bare.frame(PING, bytes(125)) * 1_000

        def flood():
            for _ in range(1_000):
                bare.connection.sendall(pings)

        with pytest.raises(OSError, match=r"."):  # it is not read from, or disconnected
            flood()
    no_socket_is_left(impatient)
    assert rss_bytes() - before < 24 * MIB


def test_thousands_of_labels_in_one_packet_hold_nobody_up(served):
    with served.stream() as stream, served.stream() as other, Bare(served, stream) as bare:
        bare.connection.sendall(bare.frame(TEXT, b'{"timestamp_ms":1}') * 50_000)
        assert served.http.post(other["frames_url"], content=FRAME).json()["results"][0]["latency_ms"] < 300


def test_answers_to_nonsense_that_nobody_reads_fill_no_memory(impatient):
    before = rss_bytes()
    with impatient.stream() as stream, Bare(impatient, stream, receive_bytes=4096) as bare:
        nonsense = bare.frame(TEXT, b"{}") * 50_000

        def flood():
            for _ in range(50):
                bare.connection.sendall(nonsense)

        with pytest.raises(OSError, match=r"."):
            flood()
    no_socket_is_left(impatient)
    assert rss_bytes() - before < 32 * MIB


def test_one_that_does_not_read_holds_up_nobody_and_is_cut_off():
    """It sends frames with large results and takes none; another camera goes on as ever."""
    limits = {"unread_bytes": 4 * MIB, "send_timeout_ms": 1_000, "max_unanswered": 1_000}
    times = {LARGE: {1: 4.0, 4: 8.0, 16: 20.0}}
    with Served(times=times, limits=limits, arena={"bytes": 128 * MIB}) as served:
        before = rss_bytes()
        with (
            served.stream(shape=LARGE, period_ms=20_000, deadline_ms=20_000, burst=100) as stream,
            served.stream(shape=LARGE, period_ms=50, jitter_ms=40, deadline_ms=2_000) as other,
            Bare(served, stream, receive_bytes=4096) as bare,
            socket_of(served, other) as socket,
        ):

            def send_all():
                with suppress(OSError):  # cut off before the end
                    for _ in range(100):
                        bare.send(PICTURE)

            sender = threading.Thread(target=send_all)
            sender.start()
            latencies = []
            for _ in range(30):
                socket.send(PICTURE)
                result = answer(socket)
                assert echo(result) == PICTURE
                latencies.append(result["latency_ms"])
                time.sleep(0.06)
            sender.join(10)
            assert sorted(latencies)[25] < 1_000
            wait_until(lambda: served.counters()["framegate_websockets",] == 1, "it is still connected")
            assert bare.code_of_close()[0] == 1006
            assert served.counters()["framegate_results_undelivered_total", "slow_reader"] > 0
            assert books(served, stream)["in_flight"] == 0
            assert rss_bytes() - before < 64 * MIB
        no_socket_is_left(served)
