"""WebSocket clients for tests, a good one and a bare one; nothing here waits for more than 20 s."""

import json
import logging
import socket
from contextlib import contextmanager

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


@contextmanager
def socket_of(served, stream, **options):
    """An open socket of `stream`, or of the path that it is."""
    path = stream if isinstance(stream, str) else f"/v1/streams/{stream['stream_id']}/ws"
    options = {"max_size": None, "compression": None, "open_timeout": 20, "close_timeout": 5, **options}
    with connect(served.url.replace("http", "ws") + path, **options) as opened:
        yield opened


def answer(opened, timeout=20):
    """Return the next message."""
    text = opened.recv(timeout)
    assert isinstance(text, str)
    return json.loads(text)


def answers(opened, count):
    return [answer(opened) for _ in range(count)]


def code_of_close(opened, timeout=20):
    """Read until the server closes; return the code, the reason and the messages before it."""
    before = []
    try:
        while True:
            before.append(answer(opened, timeout))
    except ConnectionClosed as closed:
        frame = closed.rcvd
        return (frame.code, frame.reason, before) if frame else (1006, "", before)


class Bare:
    """A WebSocket without a library: it sends what it is told, and answers nothing by itself."""

    def __init__(self, served, stream, receive_bytes=None):
        self.connection = served.connect()
        if receive_bytes is not None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        lines = ["GET /v1/streams/{stream_id}/ws HTTP/1.1".format(**stream), "Host: x", "Connection: Upgrade"]
        lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}==", "", ""]
        self.connection.sendall("\r\n".join(lines).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.connection.recv(1)
        assert head.startswith(b"HTTP/1.1 101 ")

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.connection.close()

    def frame(self, opcode, payload, *, fin=True):
        """Return one frame, masked with zeros."""
        size = len(payload)
        if size < 126:
            length = bytes([size | 0x80])
        else:
            length = b"\xfe" + size.to_bytes(2, "big") if size < 65_536 else b"\xff" + size.to_bytes(8, "big")
        return bytes([opcode | (0x80 if fin else 0)]) + length + bytes(4) + payload

    def send(self, payload, opcode=BINARY):
        self.connection.sendall(self.frame(opcode, payload))

    def read(self):
        """Return opcode and payload of the next frame; raises `EOFError` at the end of the connection."""
        first, size = self._exactly(2)
        if size > 125:
            size = int.from_bytes(self._exactly(2 if size == 126 else 8), "big")
        return first & 0x0F, self._exactly(size)

    def code_of_close(self):
        """Read until the server closes or the connection is gone; return the code, the reason and what came before."""
        before = []
        try:
            while True:
                opcode, payload = self.read()
                if opcode == CLOSE:
                    return int.from_bytes(payload[:2], "big"), payload[2:].decode(), before
                if opcode == TEXT:
                    before.append(json.loads(payload))
        except (EOFError, ConnectionError):
            return 1006, "", before

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            part = self.connection.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data


def errors_in(log):
    """Return what was logged as an error; but for what grpc says of two loops in one process."""
    records = [*log.get_records("call"), *log.get_records("teardown")]  # `records` alone forgets one for the other
    errors = [record for record in records if record.levelno >= logging.ERROR]
    return [record for record in errors if "PollerCompletionQueue" not in record.getMessage()]
