"""Servers as processes of their own: how they start and end, and what they use, read from ``/proc``."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STOP_S = 20.0
_START_S = 60.0
_POLL_S = 0.05
_CALL_S = 30.0
_TAIL_BYTES = 2_000


@dataclass(frozen=True)
class Memory:
    """Of one process, in bytes.

    Attributes:
        rss: All of its resident pages.
        shared: Those of them that lie in shared memory.
    """

    rss: int
    shared: int


def cpu_s(pid: int) -> float:
    """Return the processor time of all threads of a process, in user and kernel mode; 0 if it is gone."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if fields else 0.0


def page_faults(pid: int) -> int:
    """Return how many pages a process has had to be given so far, without reading from a disk; 0 if it is gone."""
    fields = _stat(pid)
    return int(fields[7]) if fields else 0


def children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        mine = parents.get(waiting.pop(), [])
        found += mine
        waiting += mine
    return found


def on_same_core(pid: int) -> list[int]:
    """Return those descendants of a process that are bound as it is, and the process itself."""
    mine = os.sched_getaffinity(pid)
    found = [pid]
    for child in children(pid):
        with suppress(ProcessLookupError):
            if os.sched_getaffinity(child) == mine:
                found.append(child)
    return found


def memory(pid: int) -> Memory:
    """Return what a process holds."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Rss")
    )
    rss = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return Memory(rss, int(fields["RssShmem"].split()[0]) << 10)


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/<pid>/stat`` from the third on: the second may hold blanks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def free_port() -> int:
    """Return a TCP port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Run this thread, and what it starts, on these processor cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def started(
    command: Sequence[str], core: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server on one processor core, in a group of its own; end all of it."""
    with on_cores({core}), log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | dict(environment or {}),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_ok(process: subprocess.Popen[bytes], port: int, path: str, log: Path) -> None:
    """Poll a server until it answers 200 to a GET.

    Raises:
        SystemExit: It ended, or took too long; with the end of its log.
    """
    began = time.monotonic()
    while time.monotonic() - began < _START_S and process.poll() is None:
        with suppress(OSError, http.client.HTTPException):
            get(port, path)
            return
        time.sleep(_POLL_S)
    said = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
    raise SystemExit(f"{process.args!r} did not start:\n{said}")


def get(port: int, path: str) -> bytes:
    """Return what a server of this machine answers to a GET.

    Raises:
        OSError, http.client.HTTPException: It does not, or not with 200.
    """
    return call(port, "GET", path)


def call(port: int, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """Return what a server of this machine answers. Raises as `get`."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_CALL_S)
    try:
        connection.request(method, path, body or None, dict(headers or {}))
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status not in (http.client.OK, http.client.CREATED):
        raise http.client.HTTPException(f"{method} {path}: {answer.status} {text[:500]!r}")
    return text
