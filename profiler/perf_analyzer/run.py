"""Runs `perf_analyzer` once, within its time, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

from profiler.perf_analyzer import child
from profiler.perf_analyzer.request import Request
from profiler.perf_analyzer.results import Outcome, PerfAnalyzerError, read_export, read_split
from profiler.perf_analyzer.tool import Tool

#: Its exit status when it measured, but the windows never agreed.
_UNSTABLE = 2
#: It may print without end; what it says last is what matters.
_CHUNK_BYTES, _CHUNKS_KEPT = 4096, 8
_MESSAGE_LENGTH = 400
_LAST_WORDS_S = 1.0
_LOCK_PAUSE_S = 0.1
_SHM = Path("/dev/shm")
_UNPRINTABLE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[^\x20-\x7e\u00a0-\uffff]")


async def run(tool: Tool, request: Request) -> Outcome:
    """Measure `request`.

    Raises:
        PerfAnalyzerError: It could not be started, did not end in time, failed, or wrote nothing usable.
    """
    async with contextlib.AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="framegate-perf-")))
        if request.shared_memory:
            await stack.enter_async_context(_alone_on_this_machine())
        json_file, csv_file = scratch / "export.json", scratch / "report.csv"
        status, said = await _execute(tool, request, json_file, csv_file)
        if status not in (0, _UNSTABLE):
            raise PerfAnalyzerError(f"perf_analyzer: {said or 'it said nothing'} (exit status {status})")
        try:
            started_ns, ended_ns = read_export(json_file)
        except PerfAnalyzerError as error:
            told = f"; it said: {said}" if said else ""
            text = f"perf_analyzer: {error} (exit status {status}){told}"
            raise PerfAnalyzerError(text, unreadable=error.unreadable) from None
        return Outcome(started_ns, ended_ns, unstable=status == _UNSTABLE, split=read_split(csv_file))


async def _execute(tool: Tool, request: Request, json_file: Path, csv_file: Path) -> tuple[int, str]:
    """Return its exit status and what it said, in short. Its whole process group is gone when this returns."""
    process = _spawn(tool, request, json_file, csv_file)
    kept: deque[bytes] = deque(maxlen=_CHUNKS_KEPT)
    left: list[Path] = []
    try:
        async with _drained(process, kept):
            try:
                status = await asyncio.wait_for(asyncio.to_thread(process.wait), request.limit_s)
            except (TimeoutError, asyncio.CancelledError):
                left = _mapped(process.pid)
                raise
            finally:
                # The group first: children that it left hold its output open.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                for path in left:  # it removes them itself unless it is killed
                    path.unlink(missing_ok=True)
    except TimeoutError:
        last = message(b"".join(kept))
        told = f"; the last it said: {last}" if last else ""
        raise PerfAnalyzerError(
            f"perf_analyzer took longer than {request.limit_s:g} s and was killed{told}",
            regions=tuple(path.name for path in left),
        ) from None
    return status, message(b"".join(kept))


def _spawn(tool: Tool, request: Request, json_file: Path, csv_file: Path) -> subprocess.Popen[bytes]:
    """Start it, in a group of its own.

    Not with asyncio's means: uvloop forks in full, of which gRPC complains aloud. This is vfork, from the main thread
    if the loop runs there, as the kernel wants it for a child that dies with its parent.
    """
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", child.__file__, str(os.getpid())),
            *(str(tool.path), *request.arguments(json_file, csv_file)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=json_file.parent,
        env=tool.environment(request.url),
        start_new_session=True,
    )


@contextlib.asynccontextmanager
async def _drained(process: subprocess.Popen[bytes], kept: deque[bytes]) -> AsyncIterator[None]:
    """Read what `process` prints, so that it never waits, and keep the end of it."""

    async def read() -> None:
        while chunk := await stream.read(_CHUNK_BYTES):
            kept.append(chunk)

    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), process.stdout
    )
    reader = asyncio.create_task(read())
    try:
        yield
    finally:
        await asyncio.wait((reader,), timeout=_LAST_WORDS_S)  # one that left the group can hold it open
        reader.cancel()
        transport.close()


def message(output: bytes) -> str:
    """Return what matters of what it printed, on one line: the last line about an error, else the last line."""
    text = output.decode(errors="replace")
    lines = [" ".join(_UNPRINTABLE.sub(" ", line).split()) for line in text.splitlines()]
    lines = [line for line in lines if line]
    told = [line for line in lines if "error" in line.lower() or "failed" in line.lower()]
    return ((told or lines or [""])[-1])[:_MESSAGE_LENGTH]


@contextlib.asynccontextmanager
async def _alone_on_this_machine() -> AsyncIterator[None]:
    """Wait until no other run of ours uses the names in ``/dev/shm`` that they all share."""
    path = Path(tempfile.gettempdir()) / f"framegate-perf-analyzer-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _mapped(pid: int) -> list[Path]:
    """Return the files in ``/dev/shm`` that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return [Path(path) for path in sorted(paths) if path.startswith(f"{_SHM}/") and " (deleted)" not in path]
