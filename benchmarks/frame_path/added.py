"""What the gateway adds to a frame's latency when there is little to do.

One frame at a time, from one connection, at a low rate. Twice the same frame: as its client sees it, from when its last
byte was handed to the socket until the answer is there; and as the gateway says in the answer, from arrival to Triton's
reply. The device's own time is subtracted from both. It comes from Triton's statistics, which are read between two
frames: what Triton's model instance took for exactly this frame, input and output included, and not what a request
waited in Triton's queue or spent in its front end, which is the gateway's affair.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.frame_path import models, processes, servers
from benchmarks.frame_path.loads import LoadError
from benchmarks.frame_path.servers import Place
from benchmarks.frame_path.sizes import MAIN, Size
from benchmarks.frame_path.targets import Target
from benchmarks.frame_path.wire import http_answers, http_call
from gateway.core.types import NS_PER_MS

#: Frames per second, their deadline, and how unevenly they come: nothing here shall beat in step with a timer.
PER_S, DEADLINE_MS, UNEVEN = 25, 100.0, 0.3
#: The contract is for so many times as many: a client that was held up makes up for it.
_CONTRACT = 4
_WARM = 10
_TIMEOUT_S = 10.0
_PARTS = ("compute_input", "compute_infer", "compute_output")


@dataclass(frozen=True)
class Sample:
    """One frame, in ms.

    Attributes:
        client: Last byte sent to answer received.
        gateway: Arrival to Triton's reply.
        device: Triton's model instance.
    """

    client: float
    gateway: float
    device: float


def measure_added(place: Place, say: Callable[[str], None], *, seconds: float, rounds: int) -> dict[str, Any]:
    """Return so many runs of `seconds` each."""
    model = models.FIRST_VALUE.name
    size = Size("low load", MAIN.shape, 1, _CONTRACT * PER_S, DEADLINE_MS, (1, 2, 4), early_dispatch=True)
    stream = {
        "model": model,
        "shape": list(size.shape),
        "fps": float(_CONTRACT * PER_S),
        "deadline_ms": DEADLINE_MS,
        "jitter_ms": 1e3 * UNEVEN / PER_S,
    }
    runs = []
    body = place.frame(MAIN)
    with servers.gateway(place, "gateway-added", size.profile(model), stream, body=body, settings={}) as target:
        for _ in range(rounds):
            runs.append(figures(_run(target, place, round(seconds * PER_S))))
            say(f"added: {runs[-1]}")
    return {"per_s": PER_S, "runs": runs}


def figures(samples: Sequence[Sample]) -> dict[str, float]:
    """Return medians and 99th percentiles in ms."""
    found: dict[str, float] = {"frames": len(samples)}
    columns = {
        "added": [s.client - s.device for s in samples],
        "added_in_gateway": [s.gateway - s.device for s in samples],
        "device": [s.device for s in samples],
    }
    for name, values in columns.items():
        ordered = sorted(values)
        found |= {f"{name}_p{p}_ms": round(ordered[p * len(ordered) // 100], 3) for p in (50, 99)}
    return found


def _run(target: Target, place: Place, frames: int) -> list[Sample]:
    request = http_call(processes.HOST, target.port, target.path, target.body.read_bytes(), target.headers)
    triton_port = int(place.triton.http_url.rpartition(":")[2])
    uneven = random.Random(frames)
    samples = []
    with socket.create_connection((processes.HOST, target.port), _TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(request))
        before = _device(triton_port)
        began_s = time.monotonic()
        for number in range(frames + _WARM):
            at_s = began_s + (number + uneven.uniform(0, UNEVEN)) / PER_S
            time.sleep(max(0.0, at_s - time.monotonic()))
            client_ms, result = _call(connection, request)
            after = _device(triton_port)
            if after[0] != before[0] + 1:
                raise LoadError(f"Triton ran {after[0] - before[0]} jobs for one frame")
            if number >= _WARM:
                samples.append(Sample(client_ms, result["latency_ms"], (after[1] - before[1]) / NS_PER_MS))
            before = after
    return samples


def _call(connection: socket.socket, request: bytes) -> tuple[float, dict[str, Any]]:
    """Send one frame and return how long its answer took, in ms, and its result."""
    connection.sendall(request)
    sent_ns = time.monotonic_ns()
    buffer = bytearray()
    while True:
        part = connection.recv(1 << 16)
        if not part:
            raise LoadError("the gateway closed the connection")
        buffer += part
        for answer in http_answers(buffer):
            client_ms = (time.monotonic_ns() - sent_ns) / NS_PER_MS
            if answer.fault:
                raise LoadError(f"{answer.fault}: {answer.body[:300]!r}")
            result: dict[str, Any] = json.loads(answer.body)["results"][0]
            return client_ms, result


def _device(port: int) -> tuple[int, int]:
    """Return how many jobs Triton has run of the model, and the time of its instance for all of them, in ns."""
    text = processes.get(port, f"/v2/models/{models.FIRST_VALUE.name}/stats")
    stats = json.loads(text)["model_stats"][0]
    return int(stats["execution_count"]), sum(int(stats["inference_stats"][part]["ns"]) for part in _PARTS)
