"""The servers that are compared, each with the same trivial model and the same share of the machine.

Front ends run on the first processor core. Triton, the workers of the others and all clients run on the second.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.frame_path import models, processes
from benchmarks.frame_path.processes import HOST, free_port, on_cores, started, wait_until_ok
from benchmarks.frame_path.rival import Rival
from benchmarks.frame_path.sizes import Size
from benchmarks.frame_path.targets import Target
from gateway.core.profile import Profile
from gateway.runtime.profile_file import write_profile
from gateway.triton.embedded import EmbeddedTriton

_RAW = {"content-type": "application/octet-stream"}
_BOUNDARY = "framegate-frame"
#: How long LitServe and mosec may wait until a batch is full; Triton's batcher and the gateway's windows are as short.
_WAIT_MS = 5
_LARGE_BYTES = 1 << 20
#: The gateway's arena where frames are large, and what it lets be on its way at one time.
_ARENA_BYTES = 1 << 30
_VALUE = b"[7.0,8.0,9.0]"


@dataclass(frozen=True)
class Place:
    """Where servers run.

    Attributes:
        front, back: Processor cores: of front ends; of Triton, workers and clients.
        triton: Runs.
        folder: For files.
    """

    front: int
    back: int
    triton: EmbeddedTriton
    folder: Path

    def frame(self, size: Size) -> Path:
        """The file with one frame."""
        path = self.folder / f"{size.name}.frame"
        if not path.exists():
            path.write_bytes(size.frame())
        return path


def missing_rivals(arms: list[str]) -> list[str]:
    """Return those of `arms` that need a package that is not installed."""
    return [name for name in ("litserve", "mosec") if name in arms and importlib.util.find_spec(name) is None]


@contextmanager
def embedded_triton(cores: Collection[int], folder: Path, *names: str) -> Iterator[EmbeddedTriton]:
    """A Triton with models of `models.ALL`, on some processor cores."""
    repository = models.write_repository(folder / "models")
    triton = EmbeddedTriton(repository, folder / "triton.log", models=names, intra_op_threads=1)
    with on_cores(cores):
        triton.start()
    try:
        yield triton
    finally:
        triton.stop()


@contextmanager
def gateway(
    place: Place,
    name: str,
    profile: Profile,
    stream: Mapping[str, object],
    *,
    body: Path,
    settings: Mapping[str, str],
) -> Iterator[Target]:
    """`framegate serve` with one stream.

    Args:
        place: Where.
        name: Of its files.
        profile: Of its one model.
        stream: As `POST /v1/streams` takes it.
        body: File with a frame of the stream.
        settings: Environment variables without their prefix.
    """
    port = free_port()
    path, log = place.folder / f"{name}.profile.json", place.folder / f"{name}.log"
    write_profile(path, profile)
    command = [sys.executable, "-c", "from gateway.cli import app; app()", "serve", "--port", str(port)]
    command += ["--triton", place.triton.grpc_url, "--profile", str(path)]
    environment = {f"FRAMEGATE_{key}": value for key, value in settings.items()}
    environment["FRAMEGATE_TRITON__HTTP_URL"] = place.triton.http_url
    environment["FRAMEGATE_TRITON__RATE_LIMITED"] = "true"
    with started(command, place.front, log, environment) as process:
        wait_until_ok(process, port, "/v2/health/ready", log)
        headers = {"content-type": "application/json"}
        answer = json.loads(processes.call(port, "POST", "/v1/streams", json.dumps(stream).encode(), headers))
        yield Target(
            port=port,
            path=f"/v1/streams/{answer['stream_id']}/frames",
            body=body,
            connections=1,
            pid=process.pid,
            headers=_RAW,
            answer=_VALUE,
            metrics=True,
            behind=place.triton.pid,
        )


def over_websocket(target: Target) -> Target:
    """Return the same stream's WebSocket."""
    path = target.path.removesuffix("/frames") + "/ws"
    return replace(target, path=path, websocket=True, headers={})


@contextmanager
def gateway_at(place: Place, size: Size, name: str, more: Mapping[str, str] | None = None) -> Iterator[Target]:
    """The gateway for frames of `size`, with the settings that a user would choose for them, and `more`."""
    settings = {
        "SCHEDULING__EARLY_DISPATCH": str(size.early_dispatch).lower(),
        "BEST_EFFORT__WINDOW_MS": str(size.deadline_ms / 2),
        "LIMITS__INFLIGHT_BODY_BYTES": str(_ARENA_BYTES),
        **(more or {}),
    }
    if size.frame_bytes > _LARGE_BYTES:
        settings["ARENA__BYTES"] = str(_ARENA_BYTES)
    model = models.FIRST_VALUE.name
    body = place.frame(size)
    with gateway(place, name, size.profile(model), size.stream(model), body=body, settings=settings) as target:
        yield replace(target, connections=size.connections)


@contextmanager
def ceiling(place: Place, size: Size) -> Iterator[Target]:
    """The raw ASGI route."""
    port, log = free_port(), place.folder / "ceiling.log"
    with started([sys.executable, "-m", "benchmarks.frame_path.ceiling", str(port)], place.front, log) as process:
        wait_until_ok(process, port, "/", log)
        yield Target(port, "/", place.frame(size), size.connections, process.pid, _RAW, b"{}")


def triton_http(place: Place, size: Size, triton: EmbeddedTriton) -> Target:
    """Triton's own HTTP front end: the tensor as binary data, in and out."""
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": models.INPUT,
                    "shape": [1, *size.shape],
                    "datatype": "UINT8",
                    "parameters": {"binary_data_size": size.frame_bytes},
                }
            ],
            "outputs": [{"name": models.OUTPUT, "parameters": {"binary_data": True}}],
        },
        separators=(",", ":"),
    ).encode()
    body = place.folder / f"{size.name}.triton"
    body.write_bytes(head + size.frame())
    assert triton.pid is not None
    return Target(
        port=int(triton.http_url.rpartition(":")[2]),
        path=f"/v2/models/{models.BATCHED.name}/infer",
        body=body,
        connections=size.connections,
        pid=triton.pid,
        headers=_RAW | {"Inference-Header-Content-Length": str(len(head))},
        answer=models.OUTPUT.encode(),
        family=True,
    )


@contextmanager
def litserve(place: Place, size: Size) -> Iterator[Target]:
    """LitServe; a frame is the file of a form."""
    port, log = free_port(), place.folder / "litserve.log"
    rival = Rival(place.back, size.shape, max(size.batches), _WAIT_MS)
    command = [sys.executable, "-m", "benchmarks.frame_path.litserve_server", str(port)]
    head = (
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="frame"; filename="frame"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    body = place.folder / f"{size.name}.form"
    body.write_bytes(head.encode() + size.frame() + f"\r\n--{_BOUNDARY}--\r\n".encode())
    headers = {"content-type": f"multipart/form-data; boundary={_BOUNDARY}"}
    with started(command, place.front, log, rival.environment()) as process:
        wait_until_ok(process, port, "/health", log)
        yield Target(port, "/predict", body, size.connections, process.pid, headers, _VALUE, family=True)


@contextmanager
def mosec(place: Place, size: Size) -> Iterator[Target]:
    """The model in mosec; a frame is the body."""
    port, log = free_port(), place.folder / "mosec.log"
    rival = Rival(place.back, size.shape, max(size.batches), _WAIT_MS)
    environment = rival.environment() | {"MOSEC_ADDRESS": HOST, "MOSEC_PORT": str(port)}
    command = [sys.executable, "-m", "benchmarks.frame_path.mosec_server", "--log-level", "warning"]
    command += ["--timeout", "10000", "--max-request-size", str(_ARENA_BYTES)]
    with started(command, place.front, log, environment) as process:
        wait_until_ok(process, port, "/metrics", log)
        yield Target(port, "/inference", place.frame(size), size.connections, process.pid, _RAW, b"7.0", family=True)
