"""What several field reports need: a camera of its own thread, the memory of a process, raw requests."""

from __future__ import annotations

import resource
import socket
import struct
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

MB = 1_000_000
#: Contracts are kept, as in real life; most other tests of the API send as they like.
POLICED = {"policing": True}


def rss_bytes(pid="self"):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def head(method, path, *headers):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def reset(connection):
    """Close it the hard way: the other side gets a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def picture(value):
    """A frame that says who sent it."""
    return bytes([value]) * 192


def send_together(served, urls, values):
    """Send a picture of each value to its URL, all at one time; return the answers."""

    def send(url, value):
        return served.http.post(url, content=picture(value))

    with ThreadPoolExecutor(len(urls)) as pool:
        return list(pool.map(send, urls, values))


class Camera:
    """Sends one frame each period, on a grid of its own, and counts what becomes of them.

    Attributes:
        outcomes: How frames ended; refusals by their code, and lost connections as ``lost``.
    """

    def __init__(self, url, frames_url, frame, period_s):
        self.outcomes = Counter()
        self._url, self._frame, self._period_s = url + frames_url, frame, period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="camera")

    def _run(self):
        with httpx.Client(timeout=20) as client:
            due = time.monotonic()
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                self.outcomes[self._send(client)] += 1
                due = max(due + self._period_s, time.monotonic())

    def _send(self, client):
        try:
            answer = client.post(self._url, content=self._frame)
        except httpx.TransportError:
            return "lost"
        document = answer.json()
        return document["results"][0]["outcome"] if answer.status_code == 200 else document["code"]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "a frame was never answered"


@contextmanager
def steady(served, frame, fps=10, deadline_ms=400, jitter_ms=80, **fields):
    """A stream that sends all the time; gives its `Camera`. Frames that missed are the caller's to look at.

    Its contract allows for a camera that is a thread of the gateway's own process.
    """
    contract = {"period_ms": 1_000 / fps, "deadline_ms": deadline_ms, "jitter_ms": jitter_ms}
    with (
        served.stream(**contract, **fields) as stream,
        Camera(served.url, stream["frames_url"], frame, 1 / fps) as camera,
    ):
        yield camera


def server_errors(counters):
    """Return how many calls were answered 5xx, by (route, status)."""
    return {
        key[1:]: count
        for key, count in counters.items()
        if key[0] == "framegate_http_responses_total" and key[-1].startswith("5") and count
    }
