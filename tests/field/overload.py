"""Callers that are too many and have no patience: each posts large bodies, gives up after 200 ms, and tries again."""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time
from collections import Counter
from contextlib import suppress

from tests.field.support import head, reset

PATIENCE_S = 0.2


class Caller(threading.Thread):
    """Posts `body` to `path` every `pause_s`, from `start_in_s` on.

    Attributes:
        answers: Codes of refusals, ``200`` and ``202``; ``gave up``; ``closed``, without an answer.
        refused_s: From the last byte that was sent to each refusal.
        without_advice: Refusals without a ``Retry-After``.
    """

    def __init__(self, address, path, body, pause_s, start_in_s):
        super().__init__(name="caller", daemon=True)
        self.answers = Counter()
        self.refused_s = []
        self.without_advice = 0
        self._address, self._body, self._pause_s, self._start_in_s = address, body, pause_s, start_in_s
        self._head = head("POST", path, f"Content-Length: {len(body)}", "Connection: close")
        self._over = threading.Event()

    def stop(self):
        self._over.set()
        self.join(10)

    def run(self):
        self._over.wait(self._start_in_s)
        while not self._over.is_set():
            began = time.monotonic()
            self.answers[self._call(began)] += 1
            self._over.wait(max(0.0, began + self._pause_s - time.monotonic()))

    def _call(self, began):
        connection = socket.create_connection(self._address, timeout=PATIENCE_S)
        try:
            with suppress(BrokenPipeError):  # refused before all was sent: the answer is there
                connection.sendall(self._head + self._body)
            sent = time.monotonic()
            data = b""
            while part := connection.recv(1 << 16):
                data += part
                connection.settimeout(max(0.001, began + PATIENCE_S - time.monotonic()))
            return self._note(data, time.monotonic() - sent)
        except TimeoutError:
            return "gave up"
        except ConnectionError:
            return "closed"
        finally:
            reset(connection)

    def _note(self, data, after_s):
        top, _, body = data.partition(b"\r\n\r\n")
        if not top:
            return "closed"
        status = int(top.split()[1])
        if status in (429, 503):
            self.refused_s.append(after_s)
            self.without_advice += b"retry-after" not in top.lower()
        return json.loads(body)["code"] if status >= 400 else status


class Crowd:
    """One caller for each of `paths`, spread over `pause_s`; a context."""

    def __init__(self, address, paths, body, pause_s):
        starts_s = [number * pause_s / len(paths) for number in range(len(paths))]
        self.callers = [
            Caller(address, path, body, pause_s, start_s) for path, start_s in zip(paths, starts_s, strict=True)
        ]

    def __enter__(self):
        for caller in self.callers:
            caller.start()
        return self

    def __exit__(self, *_error):
        for caller in self.callers:
            caller.stop()

    @property
    def answers(self):
        return sum((caller.answers for caller in self.callers), Counter())

    @property
    def without_advice(self):
        return sum(caller.without_advice for caller in self.callers)

    def refused_ms(self):
        """Return the median and the 90th percentile of the time to a refusal."""
        times = sorted(1_000 * each for caller in self.callers for each in caller.refused_s)
        return statistics.median(times), times[len(times) * 9 // 10]
