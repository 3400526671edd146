"""Report 4: no body makes memory grow beyond its limit, on whatever path, and no stream notices."""

import time

import pytest

from tests.api.served import FRAME, Served, problem
from tests.api.test_bad_clients import read_answer
from tests.field.support import MB, POLICED, head, rss_bytes, steady

LIMIT = 16 << 20
ENDLESS = 200 * MB
#: `frames` stands for a real stream's.
PATHS = [
    ("POST", "frames"),
    ("POST", "/v1/streams"),
    ("GET", "/v2/health/live"),
    ("GET", "/metrics"),
    ("PUT", "/no/such/path"),
    ("POST", "/v2/models/echo/infer"),
    ("POST", "/v1/streams/x/frames"),
]


@pytest.fixture(scope="module")
def served():
    with Served(limits={"max_body_bytes": LIMIT}, scheduling=POLICED) as gateway:
        yield gateway


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_an_announced_length_is_refused_unread(served, method, path):
    with served.stream() as stream, served.connect() as connection:
        began = time.monotonic()
        path = stream["frames_url"] if path == "frames" else path
        connection.sendall(head(method, path, "Content-Length: 5000000000"))
        status, headers, document = read_answer(connection)
        assert time.monotonic() - began < 1
        if path != "/v1/streams/x/frames":  # there the stream is what is missing
            assert (status, document["code"], headers["connection"]) == (413, "body_too_large", "close")
            assert document["limit_bytes"] <= LIMIT


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_an_endless_body_is_cut_off_at_the_limit(served, method, path, length):
    """Chunked, without a length. What is sent beyond the limit is read and thrown away up to a bound, then cut off."""
    block = b"10000\r\n" + bytes(65_536) + b"\r\n"
    with served.stream() as stream, steady(served, FRAME) as camera:
        path = stream["frames_url"] if path == "frames" else path
        rss = rss_bytes()
        for _ in range(length(1, 20)):
            with served.connect() as connection:
                sent = 0
                try:
                    connection.sendall(head(method, path, "Transfer-Encoding: chunked"))
                    while sent < ENDLESS:
                        connection.sendall(block)
                        sent += len(block)
                except OSError:
                    pass  # closed before all was sent
            assert sent < ENDLESS, "nobody cut it off"
        assert rss_bytes() - rss < 2 * LIMIT
        time.sleep(0.3)
    assert set(camera.outcomes) == {"met"}
    assert camera.outcomes["met"] > 2


def test_a_body_of_the_limit_is_taken_and_one_byte_more_is_not(served):
    """The limit of a stream is a whole number of its frames."""
    with served.stream() as stream:
        at_most = 1_024 * 192
        problem(served.http.post(stream["frames_url"], content=bytes(at_most + 1)), 413, "body_too_large")
        answer = served.http.post(stream["frames_url"], content=iter([bytes(at_most), b"x"]))
        problem(answer, 413, "body_too_large")
