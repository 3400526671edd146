"""The command line and the environment of the embedded `tritonserver`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.triton.instance import Instance, assemble_backends
from gateway.triton.loopback import HOST, Ports
from gateway.triton.wheel import TritonWheel, known_options

#: First size of the memory through which a stub gets its tensors: sixteen 384 x 384 frames. Triton truly reserves it,
#: for each loaded model, and containers often have 64 MB of shared memory in all; it grows as needed, in milliseconds.
STUB_MEMORY_BYTES = 8 << 20
#: How old its figures of the device's memory may be: an unload whose memory does not come back is waited for as long.
METRICS_INTERVAL_S = 0.2


def server_command(
    wheel: TritonWheel,
    instance: Instance,
    ports: Ports,
    *,
    model_repository: Path,
    backends: Path,
    models: Sequence[str],
    exit_timeout_s: float,
    rate_limiter: bool = True,
) -> list[str]:
    """Return the command; assembles the backends in the instance's scratch directory on the way.

    Args:
        wheel: Where `tritonserver` is.
        instance: Whose name its shared-memory files get.
        ports: What it listens on.
        model_repository: Triton's model repository.
        backends: Directory of Python-based backends.
        models: Loaded at the start.
        exit_timeout_s: How long it may wait for what is in flight after SIGTERM.
        rate_limiter: Whether resources that models share keep them from executing at once.
    """
    options = [
        f"--model-repository={model_repository.resolve()}",
        f"--backend-directory={assemble_backends(instance.scratch, wheel, backends)}",
        "--model-control-mode=explicit",
        # Ready means that it answers: else it says no while any one model loads or unloads.
        "--strict-readiness=false",
        *(f"--load-model={model}" for model in models),
        # Loads take 0.3 s instead of 2 s: else each one starts a second stub just to ask for the config.
        "--disable-auto-complete-config",
        # A resource's count is the largest that a model asks for, here 1: no --rate-limit-resource is needed.
        f"--rate-limit={'execution_count' if rate_limiter else 'off'}",
        *(f"--{kind}-address={HOST}" for kind in ("http", "grpc", "metrics")),
        f"--http-port={ports.http}",
        f"--grpc-port={ports.grpc}",
        f"--metrics-port={ports.metrics}",
        f"--metrics-interval-ms={METRICS_INTERVAL_S * 1_000:.0f}",
        f"--exit-timeout-secs={exit_timeout_s:.0f}",
    ]
    for name in ("python", *(path.parent.name for path in backends.glob("*/model.py"))):
        options.append(f"--backend-config={name},shm-region-prefix-name={instance.name}")
        options.append(f"--backend-config={name},shm-default-byte-size={STUB_MEMORY_BYTES}")
    # Since 2026-04 Triton refuses clients' shared memory without it; older ones do not know the option.
    if "--allow-client-shm" in known_options(wheel):
        options.append("--allow-client-shm=true")
    return [str(wheel.server), *options]


def server_environment(wheel: TritonWheel, intra_op_threads: int, *, fault_injection: bool = False) -> dict[str, str]:
    """Return the environment of `tritonserver`, which its stubs inherit; `intra_op_threads` 0 means one per core."""
    own = {
        "LD_LIBRARY_PATH": wheel.library_path,
        # The Python inside a stub ignores PYTHON* variables and finds its site-packages, as a shell would its virtual
        # environment, through the first `python3` in PATH.
        "PATH": ":".join(filter(None, [str(Path(sys.executable).parent), os.environ.get("PATH")])),
        "PYTHONPATH": ":".join(filter(None, [str(wheel.site_packages), os.environ.get("PYTHONPATH")])),
        "FRAMEGATE_INTRA_OP_THREADS": str(intra_op_threads),
        "FRAMEGATE_FAULT_INJECTION": str(int(fault_injection)),
        # Recent ONNX Runtimes report their use to their maker, on Linux too.
        "ORT_DISABLE_TELEMETRY": "1",
    }
    return os.environ | own
