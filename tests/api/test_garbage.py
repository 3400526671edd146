"""Frames leave nothing for the garbage collector: what they made is gone with the last reference, and nobody pauses."""

import gc
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from tests.api.served import FRAME
from tests.api.sockets import Bare

FRAMES = 50
#: Ours, and the libraries that carry frames. The stand-in's are grpc's, and no matter.
OURS = (
    "gateway",
    "asyncio",
    "uvicorn",
    "uvloop",
    "httptools",
    "starlette",
    "fastapi",
    "websockets",
    "prometheus_client",
)


@contextmanager
def garbage():
    """Give a counter that holds, at the end, the kinds of objects of ours that only a collection would free."""
    found = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        time.sleep(0.1)  # what is still on its way ends
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
    finally:
        gc.set_debug(0)
        gc.enable()
        found.update(name for each in gc.garbage if (name := whose(each)).partition(".")[0] in OURS)
        gc.garbage.clear()


def whose(each):
    """Return module and name of a function, a coroutine or an object's class."""
    code = getattr(each, "cr_code", None)
    if code is not None:
        return f"{code.co_filename.rpartition('/site-packages/')[2].replace('/', '.')}:{code.co_qualname}"
    kind = each if hasattr(each, "__qualname__") and hasattr(each, "__module__") else type(each)
    return f"{kind.__module__}.{kind.__qualname__}"


def post(connection, path, body):
    """One call over a connection that stays; return its status once the answer is there."""
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    top, _, body = data.partition(b"\r\n\r\n")
    length = int(top.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    return int(top.split()[1])


def test_a_cycle_is_found():
    class Circle:
        def __init__(self):
            self.me = self

    Circle.__module__ = "gateway.made_up"
    with garbage() as found:
        Circle()
    assert [name for name in found if name.startswith("gateway.made_up.")]


@pytest.mark.parametrize(
    ("query", "body", "status"), [("", FRAME, 200), ("", FRAME * 3, 200), ("?wait=false", FRAME, 202), ("", b"x", 400)]
)
def test_over_http(served, query, body, status):
    with served.stream(deadline_ms=5_000) as stream, served.connect() as connection:
        path = stream["frames_url"] + query
        assert post(connection, path, body) == status
        with garbage() as found:
            for _ in range(FRAMES):
                assert post(connection, path, body) == status
        assert not found


def test_over_a_websocket(served):
    with served.stream(deadline_ms=5_000) as stream, Bare(served, stream) as bare:
        bare.send(FRAME)
        bare.read()
        with garbage() as found:
            for _ in range(FRAMES):
                bare.send(FRAME)
                bare.read()
        assert not found
