"""A real `tritonserver`, from the wheel `nvidia-pytriton`, as a child of this process.

::

    with EmbeddedTriton(Path("model_repository"), Path("triton.log")) as triton:
        ... triton.grpc_url ...

It listens on loopback only, loads models on request only, lets clients register system shared memory, and, unless
told otherwise, runs its rate limiter (models that name one shared resource never execute at once). It dies with its
parent, whatever ends that: see `gateway.triton.supervisor`.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.errors import EmbeddedTritonError
from gateway.triton import supervisor
from gateway.triton.instance import create_instance, remove_leftovers
from gateway.triton.loopback import HOST, Ports, free_ports, listens, says_ready
from gateway.triton.server_options import server_command, server_environment
from gateway.triton.wheel import TritonWheel, find_wheel

#: Where the Python-based backends are in a checkout.
DEFAULT_BACKENDS = Path(__file__).resolve().parents[2] / "deploy/embedded/backends"
#: `tritonserver` gets this long to unload its models after SIGTERM, then it is killed. A load that is under way
#: holds it up; the sum with the stubs' grace stays well under the 10 s in which nothing may be left.
GRACE_S = 5.0
#: Starts when a port that was free a moment ago is taken (a lost race).
PORT_ATTEMPTS = 5
#: How much of a failed start's log is read, and how many lines of it are shown.
_LOG_BYTES = 1 << 20
_TAIL_LINES = 12
_INFORMATION = re.compile(r"I\d{4} ")


class EmbeddedTriton:
    """Starts and stops one `tritonserver`.

    Args:
        model_repository: Triton's model repository.
        log_file: What Triton, its stubs and the supervisor print is appended here.
        models: Loaded before `start` returns; others are loaded through Triton's API.
        backends: Directory of Python-based backends, ``<name>/model.py``.
        intra_op_threads: Threads of one execution, for models whose config does not say; None or 0: one per core.
        http_port: 0 picks a free one, as for `grpc_port` and `metrics_port`.
        ready_timeout_s: Limit of the start, without `models`.
        load_timeout_s: Added to it for each of `models`.
        rate_limiter: False lets models execute at once whatever resources they name; for measuring just that.
        fault_injection: Its backends take the delays that requests ask for (`gateway.runtime.injection`).

    After `stop`, `start` uses the same ports again if they are still free, so that clients find it.
    """

    def __init__(
        self,
        model_repository: Path,
        log_file: Path,
        models: Sequence[str] = (),
        backends: Path | None = None,
        intra_op_threads: int | None = None,
        *,
        http_port: int = 0,
        grpc_port: int = 0,
        metrics_port: int = 0,
        ready_timeout_s: float = 10.0,
        load_timeout_s: float = 60.0,
        rate_limiter: bool = True,
        fault_injection: bool = False,
    ) -> None:
        self.model_repository = Path(model_repository)
        self.log_file = Path(log_file)
        self.models = tuple(models)
        self._backends = Path(backends or DEFAULT_BACKENDS)
        self._intra_op_threads = intra_op_threads or 0
        self._rate_limiter = rate_limiter
        self._fault_injection = fault_injection
        self._wanted = Ports(http_port, grpc_port, metrics_port)
        self._timeout_s = ready_timeout_s + load_timeout_s * len(self.models)
        self._ports: Ports | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    def start(self) -> None:
        """Start it and wait until it is ready (about 0.4 s). Blocks; call it from the main thread.

        Raises:
            EmbeddedTritonError: It cannot run here, or died, or was not ready in time; says what to do.
        """
        wheel = self._prepare()
        deadline = time.monotonic() + self._timeout_s
        for attempt in range(PORT_ATTEMPTS):
            ports = free_ports(self._wanted, self._ports if attempt == 0 else None)
            failure = self._try(wheel, ports, deadline)
            if failure is None:
                self._ports = ports
                return
            if "already in use" not in failure:
                raise EmbeddedTritonError(failure)
        raise EmbeddedTritonError(
            f"In {PORT_ATTEMPTS} attempts another process took a port of {HOST} first: try again."
        )

    def restart(self) -> None:
        """Start it on the ports of its last start, after it ended by itself; does not wait until it is ready.

        Blocks for about 0.05 s; call it from the main thread.

        Raises:
            EmbeddedTritonError: It cannot run here, or a port is taken.
        """
        wheel = self._prepare()
        self._spawn(wheel, free_ports(self._known_ports(), None))

    def stop(self) -> None:
        """Stop it and all that belongs to it; returns after 0.1 s to 7 s. Does nothing if it does not run."""
        process, self._process, self._pid = self._process, None, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(GRACE_S + supervisor.STUB_GRACE_S + 2.0)
        except subprocess.TimeoutExpired:  # the supervisor itself hangs; the kernel then kills tritonserver
            process.kill()
            process.wait()
            remove_leftovers()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The pid of `tritonserver`; None before `start` and after `stop`."""
        return self._pid

    @property
    def grpc_url(self) -> str:
        """host:port of the gRPC endpoint."""
        return f"{HOST}:{self._known_ports().grpc}"

    @property
    def http_url(self) -> str:
        """host:port of the HTTP endpoint."""
        return f"{HOST}:{self._known_ports().http}"

    @property
    def addresses(self) -> dict[str, str]:
        """Both endpoints, as the settings of the group `triton` call them."""
        return {"url": self.grpc_url, "http_url": self.http_url}

    @property
    def settings(self) -> dict[str, str | bool]:
        """What is known of it, as the settings of the group `triton` call it."""
        return {**self.addresses, "rate_limited": self._rate_limiter}

    @property
    def metrics_url(self) -> str:
        """host:port of the Prometheus endpoint, path ``/metrics``."""
        return f"{HOST}:{self._known_ports().metrics}"

    def _known_ports(self) -> Ports:
        if self._ports is None:
            raise EmbeddedTritonError("The embedded Triton has no address before start().")
        return self._ports

    def _prepare(self) -> TritonWheel:
        """Check that it can start, and remove what dead ones left."""
        if self.running:
            raise EmbeddedTritonError("This embedded Triton already runs: call stop() first.")
        if threading.current_thread() is not threading.main_thread():
            raise EmbeddedTritonError(
                "Start the embedded Triton from the main thread: the kernel ties its life to the thread that starts it."
            )
        wheel = find_wheel()
        self._check_paths()
        remove_leftovers()
        return wheel

    def _check_paths(self) -> None:
        if not self.model_repository.is_dir():
            raise EmbeddedTritonError(
                f"The model repository {self.model_repository} does not exist: name the directory with "
                "--model-repository (in a checkout: model_repository)."
            )
        if not any(self._backends.glob("*/model.py")):
            raise EmbeddedTritonError(
                f"No Python-based backend in {self._backends}: run from a checkout of Framegate, or name the directory."
            )

    def _try(self, wheel: TritonWheel, ports: Ports, deadline: float) -> str | None:
        """Start it once; return why it did not become ready, after stopping it, or None."""
        log_start = self._spawn(wheel, ports)
        try:
            if self._wait_until_ready(ports, deadline):
                return None
            what = f"was not ready within {self._timeout_s:.0f} s" if self.running else "ended while starting"
        except BaseException:  # Ctrl-C
            self.stop()
            raise
        self.stop()
        return f"tritonserver {what}. The end of {self.log_file}:\n{self._log_tail(log_start)}"

    def _spawn(self, wheel: TritonWheel, ports: Ports) -> int:
        """Start the supervisor and with it `tritonserver`; return where this run begins in the log."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        instance = create_instance()
        report, report_child = os.pipe()
        try:
            spec = {
                "parent": os.getpid(),
                "report_fd": report_child,
                "grace_s": GRACE_S,
                "command": server_command(
                    wheel,
                    instance,
                    ports,
                    model_repository=self.model_repository,
                    backends=self._backends,
                    models=self.models,
                    exit_timeout_s=GRACE_S,
                    rate_limiter=self._rate_limiter,
                ),
                "files": {"prefix": instance.name, "lock": str(instance.lock), "scratch": str(instance.scratch)},
            }
            with self.log_file.open("ab") as log:
                log_start = log.tell()
                # Isolated and without site-packages: it starts in 30 ms and takes 10 MB. A session of its own: Ctrl-C
                # in a terminal reaches this process, which then stops Triton when its own work has ended.
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", supervisor.__file__, json.dumps(spec)],
                    env=server_environment(wheel, self._intra_op_threads, fault_injection=self._fault_injection),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(instance.lock_fd, report_child),
                    start_new_session=True,
                )
        except BaseException:
            instance.discard()
            os.close(report)
            raise
        finally:
            os.close(report_child)
        instance.close()
        self._pid = _read_pid(report)
        return log_start

    def _wait_until_ready(self, ports: Ports, deadline: float) -> bool:
        """Poll until the HTTP endpoint says ready and the metrics endpoint, the last to open, listens."""
        while self.running and time.monotonic() < deadline:
            if says_ready(ports.http) and listens(ports.metrics):
                return True
            time.sleep(0.01)
        return False

    def _log_tail(self, start: int) -> str:
        """The last lines of this run in the log: errors and warnings if there are any."""
        with self.log_file.open("rb") as log:
            log.seek(start)
            lines = log.read(_LOG_BYTES).decode(errors="replace").splitlines()
        told = [line for line in lines if line.strip() and line[0] not in "|+"]  # not the tables that Triton draws
        grave = [line for line in told if not _INFORMATION.match(line)]
        return "\n".join((grave or told)[-_TAIL_LINES:])


def _read_pid(report: int) -> int | None:
    """Read the pid that the supervisor reports; None if it died first."""
    with open(report) as pipe:
        ready, _, _ = select.select([pipe], [], [], 10.0)
        line = pipe.readline() if ready else ""
    return int(line) if line else None
