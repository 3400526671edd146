"""Bodies over HTTP in pieces: each frame comes out whole, and the calls behind it on the connection are understood."""

import gc
import random
import time

import httpx
import pytest

from gateway.api import connection, http_cycle
from gateway.client import wire
from tests.api.served import FRAME, SMALL, Served, books, echo, wait_until
from tests.api.test_bad_clients import head, read_answer

LARGE = (128, 128, 3)  # 49 152 bytes: more than what is parsed
FRAME_BYTES = 128 * 128 * 3
TIMES = {SMALL: {1: 10.0, 8: 24.0}, LARGE: {1: 20.0, 4: 60.0}}


@pytest.fixture(scope="module")
def shared():
    with Served(times=TIMES, arena={"bytes": 64 << 20}) as gateway:
        yield gateway


def picture(seed):
    return random.Random(seed).randbytes(FRAME_BYTES)


def post(stream, body, *headers, announced=None):
    """Return a call; the answer is binary, as that always says how long it is."""
    length = len(body) if announced is None else announced
    accept = "Accept: application/octet-stream"
    return head("POST", stream["frames_url"], f"Content-Length: {length}", accept, *headers) + body


def answers_of(peer, count):
    """Return status, headers and body of the next answers."""
    data, found = b"", []
    while len(found) < count:
        top, blank, rest = data.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in top.decode().split("\r\n")[1:])
        if blank and len(rest) >= (size := int(headers["content-length"])):
            found.append((int(top.split()[1]), headers, rest[:size]))
            data = rest[size:]
            continue
        data += peer.recv(1 << 18) or pytest.fail(f"closed after {found} and {data!r}")
    return found


def echoes(answer):
    status, headers, body = answer
    assert status == 200
    results = wire.results_of(httpx.Response(status, headers=headers, content=body))
    return [each.outputs["echo"].tobytes() for each in results]


def send_in(peer, data, places, pause_s=0.002):
    """Send it in packets that end at `places`; most will be read by themselves."""
    start = 0
    for end in [*sorted(places), len(data)]:
        if end > start:
            peer.sendall(data[start:end])
            time.sleep(pause_s)
            start = end


@pytest.mark.parametrize("seed", range(12))
def test_wherever_the_network_cuts_every_frame_is_whole(served, seed):
    """Three calls one behind the other, the last of them not of a frame."""
    draw = random.Random(seed)
    pictures = [picture(seed * 10 + number) for number in range(3)]
    with served.stream(shape=LARGE, burst=8, period_ms=400, deadline_ms=5_000) as stream, served.connect() as peer:
        data = post(stream, pictures[0] + pictures[1]) + post(stream, pictures[2]) + head("GET", "/v2/health/live")
        begins = [0, len(post(stream, pictures[0] + pictures[1])), len(data)]
        near = [begin + draw.randint(-5, 200) for begin in begins for _ in range(2)]
        places = [draw.randrange(len(data)) for _ in range(draw.randint(0, 5))] + draw.sample(near, draw.randint(0, 4))
        send_in(peer, data, [max(0, min(place, len(data))) for place in places])
        found = answers_of(peer, 3)
        assert [each for answer in found[:2] for each in echoes(answer)] == pictures
        assert found[2][0] == 200


def test_a_body_that_is_refused_unread_does_not_hide_the_next_call(served):
    with served.stream(shape=LARGE) as stream, served.connect() as peer:
        none = head("POST", "/v1/streams/0/frames", f"Content-Length: {3 * FRAME_BYTES}")
        peer.sendall(none)
        assert answers_of(peer, 1)[0][0] == 404
        send_in(peer, bytes(3 * FRAME_BYTES), [1, 70_000, 100_000])
        peer.sendall(post(stream, picture(1)))
        assert answers_of(peer, 1)[0][0] == 200
        peer.sendall(head("POST", stream["frames_url"], "Content-Length: 40000") + bytes(40_000))
        assert answers_of(peer, 1)[0][0] == 400
        peer.sendall(post(stream, picture(2)))
        assert answers_of(peer, 1)[0][0] == 200


def test_a_body_without_a_length_may_have_a_trailer(served):
    with served.stream(shape=LARGE) as stream, served.connect() as peer:
        chunked = head("POST", stream["frames_url"], "Transfer-Encoding: chunked", "Accept: application/octet-stream")
        body = picture(3)
        parts = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:30_000], body[30_000:]))
        send_in(peer, chunked + parts + b"0\r\nX: 90000\r\n", [200, 20_000])
        peer.sendall(b"\r\n" + head("GET", "/v2/health/live"))
        first, second = answers_of(peer, 2)
        assert (echoes(first), second[0]) == ([body], 200)


def test_a_client_that_asks_first_is_told_to_go_on(served):
    with served.stream(shape=LARGE) as stream, served.connect() as peer:
        peer.sendall(post(stream, b"", "Expect: 100-continue", announced=FRAME_BYTES))
        assert peer.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        send_in(peer, picture(4), [10, 40_000])
        assert answers_of(peer, 1)[0][0] == 200


@pytest.mark.parametrize("sent", [0, 1_000, FRAME_BYTES - 1])
def test_a_client_that_breaks_off_in_a_body_is_forgotten(served, sent):
    before = served.counters().get(("framegate_refused_total", "client_gone"), 0)
    with served.stream(shape=LARGE) as stream:
        with served.connect() as peer:
            peer.sendall(post(stream, bytes(sent), announced=FRAME_BYTES))
            wait_until(lambda: served.server.server_state.tasks, "the call did not come in")
        wait_until(lambda: not served.server.server_state.tasks, "the call still runs")
        after = served.counters()
        assert after["framegate_refused_total", "client_gone"] == before + 1
        assert after["framegate_upload_bytes",] == 0
        assert books(served, stream)["accepted"] == 0


def test_a_client_that_goes_away_behind_a_pipelined_call_cancels_its_frames(served):
    """uvicorn tells only the newest call of a connection; here the one that runs is told."""
    served.stand_in.delay_s = lambda call: 0.5
    with served.stream(burst=4, period_ms=500, deadline_ms=5_000) as stream, served.connect() as busy:
        busy.sendall(post(stream, FRAME))
        served.wait_until_running()
        with served.connect() as peer:
            peer.sendall(post(stream, FRAME) + head("GET", "/v2/health/live"))
            wait_until(lambda: books(served, stream)["accepted"] == 2, "it did not come in")
        wait_until(lambda: books(served, stream)["outcomes"]["cancelled"] == 1, "it was not cancelled")
        assert answers_of(busy, 1)[0][0] == 200


def test_an_answer_is_one_packet_with_what_uvicorn_adds(served):
    with served.stream() as stream, served.connect() as peer:
        peer.sendall(head("POST", stream["frames_url"], "Content-Length: 192") + FRAME)
        status, headers, document = read_answer(peer)
        assert (status, document["results"][0]["outcome"]) == (200, "met")
        assert set(headers) == {"date", "content-type", "content-length"}
        peer.sendall(post(stream, FRAME, "Connection: close"))
        [(status, headers, _)] = answers_of(peer, 1)
        assert (status, headers["connection"]) == (200, "close")
        assert peer.recv(1) == b""


def test_calls_leave_nothing_for_the_garbage_collector(served):
    """Objects that hold each other are freed by it alone, and while it runs every frame waits."""
    with served.stream(period_ms=20, deadline_ms=2_000) as stream, served.connect() as peer:

        def call(times):
            for _ in range(times):
                peer.sendall(post(stream, FRAME))
                assert answers_of(peer, 1)[0][0] == 200

        gc.disable()
        try:
            call(50)
            assert sum(type(each) is http_cycle.Cycle for each in gc.get_objects()) < 10
        finally:
            gc.enable()


def test_small_bodies_are_parsed_and_large_ones_are_not(served, monkeypatch):
    """What the numbers are for: parsers are made for large bodies alone, and reading is not paused for usual ones."""
    made = []
    parser = connection.httptools.HttpRequestParser
    monkeypatch.setattr(connection.httptools, "HttpRequestParser", lambda protocol: made.append(1) or parser(protocol))
    with served.stream(shape=LARGE) as large, served.stream() as small, served.connect() as peer:
        peer.sendall(post(small, FRAME))
        assert answers_of(peer, 1)[0][0] == 200
        first = len(made)
        peer.sendall(post(large, picture(1)))
        assert answers_of(peer, 1)[0][0] == 200
        assert len(made) == first + 1
    assert connection.PLAIN_BYTES < FRAME_BYTES < http_cycle.PAUSE_BYTES


def test_a_head_like_the_one_before_is_not_parsed_and_says_the_same(served, monkeypatch):
    """As a camera's are; one that differs in a single byte is parsed, and so is the one after it."""
    repeated = []
    before = connection.Connection._repeat
    monkeypatch.setattr(connection.Connection, "_repeat", lambda self, said: repeated.append(1) or before(self, said))

    def call(stream, seed, *headers):
        length = f"Content-Length: {FRAME_BYTES}"
        peer.sendall(head("POST", stream["frames_url"], length, *headers) + picture(seed))
        status, _, document = read_answer(peer)
        return status, document

    lasting = {"shape": LARGE, "deadline_ms": 4_000, "on_excess": "best_effort"}
    with served.stream(**lasting) as stream, served.stream(**lasting) as other:
        with served.connect() as peer:
            for seed in range(20):  # the whole of a piece is needed to see it, and the network may cut any
                status, document = call(stream, seed)
                [result] = document["results"]
                assert (status, result["seq"], echo(result)) == (200, seed, picture(seed))
            assert len(repeated) > 5
            for label in (1.0, 2.0):
                [result] = call(stream, 3, f"Framegate-Timestamp-Ms: {label}")[1]["results"]
                assert (result["timestamp_ms"], echo(result)) == (label, picture(3))
            [result] = call(stream, 4)[1]["results"]
            assert result["timestamp_ms"] is None
            assert [call(other, seed)[1]["results"][0]["seq"] for seed in range(2)] == [0, 1]
            served.http.delete(f"/v1/streams/{other['stream_id']}")
            assert [call(other, seed)[0] for seed in range(2)] == [410, 410]
            assert call(stream, 5)[0] == 200
        assert books(served, stream)["in_flight"] == 0


@pytest.mark.parametrize("seed", range(6))
def test_heads_that_are_alike_in_front_of_bodies_that_come_in_pieces(served, seed):
    draw = random.Random(seed)
    with served.stream(shape=LARGE, burst=8, period_ms=1_000, deadline_ms=8_000) as stream, served.connect() as peer:
        for number in range(6):
            data = post(stream, picture(number))
            start = len(data) - FRAME_BYTES
            send_in(peer, data, [draw.randrange(start, len(data)) for _ in range(draw.randint(0, 2))])
            assert echoes(answers_of(peer, 1)[0]) == [picture(number)]
