"""A server under load: how it is called, and what that costs it."""

from __future__ import annotations

import http.client
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.frame_path import metrics, processes, wrk
from benchmarks.frame_path.loads import Load, LoadError
from benchmarks.frame_path.processes import HOST
from benchmarks.frame_path.sender import Order

_GRACE_S = 30.0
_WORKER_S, _POLL_S = 15.0, 0.1
#: Connections are made and caches are warm then; whole seconds, as wrk knows no others.
WARM_S = 1.0


@dataclass(frozen=True)
class Target:
    """One server and one way to call it.

    Attributes:
        body: File with the body of a call, or a message.
        answer: Somewhere in each answer.
        pid: Of the process of which the time counts.
        family: Its descendants on the same processor core are part of it, not something beside it.
        websocket: Called over WebSockets.
        own_client: Called by our own sender where wrk would do.
        metrics: It is a gateway, and says what it did.
        behind: Of the process that runs the model, where it is not a descendant.
        rate_per_s: Called so often, by our own sender; 0: as often as it answers.
    """

    port: int
    path: str
    body: Path
    connections: int
    pid: int
    headers: Mapping[str, str] = field(default_factory=dict)
    answer: bytes = b""
    family: bool = False
    websocket: bool = False
    own_client: bool = False
    metrics: bool = False
    behind: int | None = None
    rate_per_s: float = 0.0

    def check(self) -> None:
        """Call it once. A worker may start more slowly than its front end.

        Raises:
            LoadError: It does not answer as it should, for some time.
        """
        if self.websocket:
            return
        began_s, said = time.monotonic(), ""
        while time.monotonic() - began_s < _WORKER_S:
            try:
                text = processes.call(self.port, "POST", self.path, self.body.read_bytes(), self.headers)
            except (OSError, http.client.HTTPException) as error:
                said = str(error)
            else:
                if self.answer in text:
                    return
                said = f"{self.path} answered {text[:500]!r}"
            time.sleep(_POLL_S)
        raise LoadError(said)

    def drive(self, seconds: float, rate_per_s: float = 0.0) -> Load:
        """Put it under load. Raises `LoadError`."""
        rate_per_s = rate_per_s or self.rate_per_s
        if not (self.websocket or self.own_client or rate_per_s):
            url = f"http://{HOST}:{self.port}{self.path}"
            tool = wrk.find()
            load = wrk.run(tool, url, self.body, self.headers, connections=self.connections, seconds=seconds)
            return load.checked()
        return self.send(seconds, rate_per_s).checked()

    def send(self, seconds: float, rate_per_s: float = 0.0) -> Load:
        """Put it under the load of our own sender; not `checked`. Raises `LoadError`."""
        process = self.begin_sending(seconds, rate_per_s)
        return self.sent(process, seconds)

    def begin_sending(self, seconds: float, rate_per_s: float = 0.0) -> subprocess.Popen[str]:
        """Start our own sender."""
        order = Order(
            port=self.port,
            path=self.path,
            body=str(self.body),
            connections=self.connections,
            seconds=seconds,
            headers=dict(self.headers),
            websocket=self.websocket,
            rate_per_s=rate_per_s,
        )
        command = [sys.executable, "-m", "benchmarks.frame_path.sender", json.dumps(asdict(order))]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def sent(process: subprocess.Popen[str], seconds: float) -> Load:
        """Wait for a sender. Raises `LoadError`."""
        try:
            output, said = process.communicate(timeout=seconds + _GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise LoadError(f"the sender took longer than {seconds + _GRACE_S:g} s") from None
        if process.returncode:
            raise LoadError((said.strip().splitlines() or ["the sender said nothing"])[-1])
        found = json.loads(output)
        return Load(found["frames"], found["seconds"], found["p50_ms"], found["p99_ms"], found["faults"])

    def cpu(self) -> Cpu:
        """Return what was used so far."""
        own, *others = processes.on_same_core(self.pid)
        beside_s = sum(map(processes.cpu_s, others))
        own_s = processes.cpu_s(own) + beside_s * self.family
        if self.behind is None:
            behind = [pid for pid in processes.children(self.pid) if pid not in others]
        else:
            behind = [self.behind, *processes.children(self.behind)]
        clients = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Cpu(
            own=own_s,
            beside=beside_s * (not self.family),
            behind=sum(map(processes.cpu_s, behind)),
            clients=clients.ru_utime + clients.ru_stime,
        )


@dataclass(frozen=True)
class Cpu:
    """Processor time, in s.

    Attributes:
        own: Of the server itself.
        beside: Of its processes on the same core, unless they are the server.
        behind: Of Triton, or of the workers.
        clients: Of those that have ended.
    """

    own: float
    beside: float
    behind: float
    clients: float

    def per_frame(self, before: Cpu, frames: int) -> dict[str, float]:
        """Return what was used since `before`, in ms per frame: the same as seconds per thousand frames."""
        used = {
            "cpu_ms": self.own - before.own,
            "beside_cpu_ms": self.beside - before.beside,
            "behind_cpu_ms": self.behind - before.behind,
            "client_cpu_ms": self.clients - before.clients,
        }
        return {name: round(1e3 * seconds / frames, 5) for name, seconds in used.items()}


def measure(target: Target, seconds: float) -> dict[str, Any]:
    """Put `target` under load for `seconds`, after a little to warm it, and return the figures.

    Raises:
        LoadError: It did not take the load.
    """
    target.check()
    target.drive(WARM_S)
    page = metrics.fetch(target.port) if target.metrics else None
    before, faults = target.cpu(), processes.page_faults(target.pid)
    load = target.drive(seconds)
    found: dict[str, Any] = {
        "frames_per_s": round(load.frames_per_s, 1),
        **target.cpu().per_frame(before, load.frames),
        "page_faults": round((processes.page_faults(target.pid) - faults) / load.frames, 2),
        "p50_ms": load.p50_ms,
        "p99_ms": load.p99_ms,
        "frames": load.frames,
    }
    if load.faults:
        found["faults"] = dict(load.faults)
    if page is not None:
        found |= said_by_gateway(metrics.fetch(target.port).since(page))
    return found


def said_by_gateway(page: metrics.Page) -> dict[str, Any]:
    """Return what matters of what a gateway says of one run."""
    jobs = round(page.total("framegate_job_batch_frames_count"))
    return {
        "mean_batch": round(page.mean("framegate_job_batch_frames"), 2) if jobs else None,
        "jobs": jobs,
        "execute_ms": round(1e3 * page.mean("framegate_job_execute_seconds"), 3) if jobs else None,
        "outcomes": {name: round(n) for name, n in page.by("framegate_frames_total", "outcome").items() if n},
        "demoted": round(page.by("framegate_frames_by_class_total", "service_class").get("best_effort", 0.0)),
        "refused": {name: round(n) for name, n in page.by("framegate_refused_total", "reason").items() if n},
        "second_copies": round(page.total("framegate_arena_moves_total")),
        "outside_the_arena": round(page.total("framegate_arena_overflows_total")),
    }
