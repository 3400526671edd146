"""Random clients over random faults of Triton: each accepted frame ends once, and the books balance from /metrics.

Real sockets, the shipped application, the stand-in behind it. A seed draws everything but the timing.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter

import httpx
import pytest

from tests.api.served import SMALL, Served, echo, wait_until
from tests.field.support import head, reset

OTHER = (8, 16, 3)
TIMES = {SMALL: {1: 1.0, 2: 1.2, 4: 1.5, 8: 2.0}, OTHER: {1: 1.5, 2: 2.0, 4: 2.5}}
POISON = 66
OUTCOMES = {"met", "missed", "expired", "cancelled", "failed"}
CLIENTS = 8


class Client(threading.Thread):
    """Registers streams and sends frames in every way there is; keeps what it was told.

    Attributes:
        told: By stream, the outcome of each frame by `seq`.
        answered: How calls were answered, by status.
    """

    def __init__(self, served, seed, until_s):
        super().__init__(name=f"client {seed}")
        self.served, self.rng, self.until_s = served, random.Random(seed), until_s
        self.told, self.answered, self.error = {}, Counter(), None

    def run(self):
        try:
            with httpx.Client(base_url=self.served.url, timeout=20) as self.http:
                while time.monotonic() < self.until_s:
                    self.stream()
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.error = error

    def stream(self):
        rng = self.rng
        shape = rng.choice([SMALL, OTHER])
        contract = {
            "model": "echo",
            "shape": shape,
            "period_ms": rng.choice([20, 50]),
            "deadline_ms": rng.choice([30, 100, 300]),
            "burst": 4,
            "on_late": rng.choice(["drop", "serve", "newest"]),
            "on_excess": rng.choice(["refuse", "best_effort"]),
            "service_class": rng.choice(["real_time", "real_time", "best_effort"]),
        }
        answer = self.http.post("/v1/streams", json=contract)
        self.answered[answer.status_code] += 1
        if answer.status_code != 201:
            time.sleep(0.02)
            return
        stream = answer.json()
        for _ in range(rng.randint(1, 25)):
            rng.choice([self.send, self.send, self.leave, self.leave, self.abandon, self.infer])(stream)
            time.sleep(rng.choice([0, 0, 0.01, 0.05]))
        if rng.random() < 0.7:
            self.http.delete(f"/v1/streams/{stream['stream_id']}")
        self.collect(stream)

    def body(self, stream):
        values = [self.rng.choice([1, 2, 3, 4, POISON]) for _ in range(self.rng.randint(1, 4))]
        return b"".join(bytes([value]) * stream["frame_bytes"] for value in values)

    def send(self, stream):
        body = self.body(stream)
        answer = self.http.post(stream["frames_url"], content=body)
        self.answered[answer.status_code] += 1
        document = answer.json()
        for result in document.get("results", ()) if answer.status_code == 200 else ():
            self.note(stream, result)
            if result["outputs"] is not None:
                assert echo(result) in body, "a frame got what nobody sent"

    def abandon(self, stream):
        """Send frames, perhaps half of them, and hang up."""
        body = self.body(stream)
        connection = self.served.connect()
        sent = self.rng.choice([len(body), len(body), len(body) // 2])
        connection.sendall(head("POST", stream["frames_url"], f"Content-Length: {len(body)}") + body[:sent])
        time.sleep(self.rng.choice([0, 0.002, 0.01]))
        reset(connection)

    def leave(self, stream):
        """Do not wait for what comes of them."""
        answer = self.http.post(f"{stream['frames_url']}?wait=false", content=self.body(stream))
        self.answered[answer.status_code] += 1

    def infer(self, stream):
        data = [self.rng.choice([1, 2, POISON])] * stream["frame_bytes"]
        tensor = {"name": "frames", "shape": [1, *stream["shape"]], "datatype": "UINT8", "data": data}
        answer = self.http.post("/v2/models/echo/infer", content=json.dumps({"inputs": [tensor]}))
        self.answered[answer.status_code] += 1

    def collect(self, stream):
        after = -1
        while True:
            page = self.http.get(f"{stream['results_url']}?after={after}&timeout_ms=50").json()
            for result in page.get("results", ()):
                self.note(stream, result)
            if not page.get("results"):
                return
            after = page["next_after"]

    def note(self, stream, result):
        """The same frame may be told of twice: in the answer, and in the results. Its end is one."""
        assert result["outcome"] in OUTCOMES
        told = self.told.setdefault(stream["stream_id"], {})
        assert told.setdefault(result["seq"], result["outcome"]) == result["outcome"]


class Faults:
    """What goes wrong in Triton, drawn anew for each call."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def delay_s(self, call):
        del call
        return self.rng.choice([0] * 10 + [0.001, 0.005, 0.03, 0.1])

    def indigestible(self, frames):
        """Black frames are those of warm-ups and probes: the model itself is well."""
        if not frames.any():
            return ""
        if (frames[:, 0] == POISON).any():
            return "NaN in layer 3"
        return self.rng.choice([""] * 12 + ["CUDA error", "out of memory"])


def by(counters, name, *labels):
    return {key[1:]: count for key, count in counters.items() if key[0] == name and key[1 : 1 + len(labels)] == labels}


def balance(counters):
    """Hold the books of every model against each other; return the number of frames accepted."""
    total = 0
    for (model,), accepted in by(counters, "framegate_frames_accepted_total").items():
        ended = by(counters, "framegate_frames_total", model)
        assert {outcome for _, outcome in ended} == OUTCOMES
        [in_flight] = by(counters, "framegate_frames_in_flight", model).values()
        assert accepted == sum(ended.values()) + in_flight
        total += accepted
    return total


@pytest.mark.parametrize("seed", [1, 2])
def test_every_accepted_frame_ends_once_and_the_books_balance(seed):
    faults = Faults(seed)
    scheduling = {"early_dispatch": bool(seed % 2)}
    with Served(times=TIMES, scheduling=scheduling, limits={"idle_stream_s": 3600}) as served:
        for name in ("delay_s", "indigestible"):
            served.call(setattr, served.stand_in, name, getattr(faults, name))
        until_s = time.monotonic() + 3.0
        clients = [Client(served, 100 * seed + n, until_s) for n in range(CLIENTS)]
        for client in clients:
            client.start()
        for pause_s in (1.0, 0.8):
            time.sleep(pause_s)
            balance(served.counters())
            served.run(served.stand_in.restart())
        for client in clients:
            client.join(30)
            assert client.error is None, repr(client.error)
        served.call(setattr, served.stand_in, "delay_s", lambda call: 0)
        served.call(setattr, served.stand_in, "indigestible", lambda frames: "")
        wait_until(lambda: served.gateway.ready, "it does not come back")
        for stream in served.http.get("/v1/streams").json()["streams"]:
            served.http.delete(f"/v1/streams/{stream['stream_id']}")
        wait_until(lambda: sum(by(served.counters(), "framegate_frames_in_flight").values()) == 0, "frames never end")
        counters = served.counters()
        assert balance(counters) > 50
        told = Counter(outcome for client in clients for frames in client.told.values() for outcome in frames.values())
        ended = Counter()
        for (_, outcome), count in by(counters, "framegate_frames_total").items():
            ended[outcome] += count
        assert all(told[outcome] <= ended[outcome] for outcome in OUTCOMES)
        assert min(ended["met"], ended["failed"], ended["cancelled"] + ended["expired"]) > 0, ended
        wait_until(lambda: served.gateway.arena.batches == 0, "memory is held")
        assert not served.gateway.broken
        answered = sum((client.answered for client in clients), Counter())
        assert not answered[500], answered
