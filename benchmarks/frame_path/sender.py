"""A client that costs little, for what `wrk` cannot do: WebSockets, and frames at a given rate.

``python -m benchmarks.frame_path.sender '{"port": 8000, "path": ..., ...}'`` prints one line of JSON. One thread waits
for all connections at once (epoll) and looks at answers no more than it has to. A connection carries one frame at a
time. Without a rate the next frame follows its answer; with one, frames are due at equal intervals whatever the answers
do, and wait for a connection that is free, in which case their latency counts from when they were due.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.frame_path.wire import Answer, Pong, WireError, http_answers, http_call, message, upgrade, ws_answers

_RECEIVE_BYTES = 1 << 16
#: Of a socket's buffer: a frame of 1.2 MB is handed over in one step.
_SEND_BYTES = 2 << 20
_TIMEOUT_S = 10.0
_MET = b'"outcome":"met"'


@dataclass(frozen=True)
class Order:
    """What is to be sent.

    Attributes:
        body: File with the body of a call or message.
        headers: Of a call.
        websocket: Over WebSockets.
        seconds: For so long.
        rate_per_s: Frames per second, all connections together; 0: closed loop.
    """

    port: int
    path: str
    body: str
    connections: int
    seconds: float
    headers: dict[str, str] = field(default_factory=dict)
    websocket: bool = False
    rate_per_s: float = 0.0
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class Sent:
    """What came of it.

    Attributes:
        frames: Answered with a result within the time.
        met: Of these, how many say that they met their deadline.
        faults: The others, by kind.
        late: Frames that were due while no connection was free.
    """

    frames: int
    seconds: float
    p50_ms: float
    p99_ms: float
    met: int
    faults: dict[str, int]
    late: int


class _Link:
    """One connection."""

    __slots__ = ("buffer", "left", "since_s", "socket", "writing")

    def __init__(self, order: Order) -> None:
        self.socket = socket.create_connection((order.host, order.port), _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        try:
            if order.websocket:
                self._shake_hands(order)
        except BaseException:
            self.socket.close()
            raise
        self.socket.setblocking(False)
        self.buffer = bytearray()
        self.left: deque[memoryview] = deque()
        self.since_s = 0.0
        self.writing = False

    def _shake_hands(self, order: Order) -> None:
        self.socket.sendall(upgrade(order.host, order.port, order.path))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            part = self.socket.recv(1)  # nothing that follows may be taken
            if not part:
                raise WireError(f"no handshake: {head!r}")
            head += part
        if not head.startswith(b"HTTP/1.1 101"):
            raise WireError(f"no handshake: {head!r}")

    def write(self) -> None:
        """Hand over what there is to send, as much as is taken."""
        while self.left:
            view = self.left.popleft()
            try:
                taken = self.socket.send(view)
            except BlockingIOError:
                taken = 0
            if taken < len(view):
                self.left.appendleft(view[taken:])
                return


class Sender:
    """See the module's docstring."""

    def __init__(self, order: Order) -> None:
        body = Path(order.body).read_bytes()
        if order.websocket:
            self._request = memoryview(message(body))
        else:
            self._request = memoryview(http_call(order.host, order.port, order.path, body, order.headers))
        self._answers: Callable[..., Any] = ws_answers if order.websocket else http_answers
        self._order = order
        self._poll = select.epoll()
        self._links = {link.socket.fileno(): link for link in (_Link(order) for _ in range(order.connections))}
        for number in self._links:
            self._poll.register(number, select.EPOLLIN)
        self._free = deque(self._links.values())
        self._latencies_ms = array("d")
        self._faults: Counter[str] = Counter()
        self._met = self._late = 0

    def run(self) -> Sent:
        """Send for as long as was ordered. Raises `WireError`, `OSError`."""
        rate = self._order.rate_per_s
        began_s = now_s = time.monotonic()
        end_s = began_s + self._order.seconds
        due, missed = 0, -1
        while now_s < end_s:
            due_s = began_s + due / rate if rate else now_s
            while self._free and due_s <= now_s:
                self._send(self._free.popleft(), due_s)
                due += 1
                due_s = began_s + due / rate if rate else now_s
            if rate and due_s <= now_s and due != missed:
                self._late += 1
                missed = due
            wait_s = end_s - now_s if not self._free else min(end_s, due_s) - now_s
            for number, events in self._poll.poll(max(0.0, wait_s)):
                self._see_to(self._links[number], events)
            now_s = time.monotonic()
        return self._sent(now_s - began_s)

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.socket.close()
        self._poll.close()

    def _send(self, link: _Link, since_s: float) -> None:
        link.since_s = since_s
        link.left.append(self._request)
        self._write(link)

    def _write(self, link: _Link) -> None:
        link.write()
        if bool(link.left) != link.writing:
            link.writing = bool(link.left)
            self._poll.modify(link.socket.fileno(), select.EPOLLIN | select.EPOLLOUT * link.writing)

    def _see_to(self, link: _Link, events: int) -> None:
        if events & select.EPOLLOUT:
            self._write(link)
        if not events & ~select.EPOLLOUT:
            return
        data = link.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise WireError("the server closed a connection")
        link.buffer += data
        for found in self._answers(link.buffer):
            if isinstance(found, Pong):
                link.left.append(memoryview(found.data))
                self._write(link)
            else:
                self._take(link, found)

    def _take(self, link: _Link, answer: Answer) -> None:
        if answer.fault:
            self._faults[answer.fault] += 1
        else:
            self._latencies_ms.append((time.monotonic() - link.since_s) * 1e3)
            self._met += _MET in answer.body
        self._free.append(link)

    def _sent(self, seconds: float) -> Sent:
        latencies = sorted(self._latencies_ms)
        count = len(latencies)
        p50_ms, p99_ms = (latencies[int(share * count)] if count else 0.0 for share in (0.5, 0.99))
        return Sent(
            frames=count,
            seconds=seconds,
            p50_ms=round(p50_ms, 3),
            p99_ms=round(p99_ms, 3),
            met=self._met,
            faults=dict(self._faults),
            late=self._late,
        )


def main() -> None:
    """Send what the only argument says."""
    sender = Sender(Order(**json.loads(sys.argv[1])))
    sys.stdout.write(json.dumps(asdict(sender.run())) + "\n")


if __name__ == "__main__":
    main()
