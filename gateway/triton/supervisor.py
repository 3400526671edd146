"""The parent of an embedded `tritonserver`: it sees that nothing outlives the process that asked for it.

Started as a script of its own (standard library only, no site-packages), it runs `tritonserver` as its child and
waits. It stops everything when it is told to (SIGTERM, SIGINT, SIGHUP), when its parent ends, however it ends
(``prctl(PR_SET_PDEATHSIG)``; kill -9 included), or when `tritonserver` ends by itself:

1. SIGTERM to `tritonserver`, which ends what is in flight, unloads its models and ends the stubs of its backends;
2. once the stubs are gone, or after `grace_s`, SIGKILL to it: what is left are connections that its clients hold
   open, for which it would wait three seconds more. Stubs that are left become children of this process (a
   *subreaper*): SIGKILL too;
3. the files in ``/dev/shm`` and the scratch directory that carry this instance's name are removed.

If this process itself is killed, the kernel kills `tritonserver` (its own PDEATHSIG is SIGKILL) and the stubs notice
within a second; the files stay and the next start removes them. That they are nobody's is proven by a lock: all
processes of an instance hold the open lock file, so the lock can only be taken once the last one is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
#: How long stubs may take to notice that `tritonserver` is gone before they are killed.
STUB_GRACE_S = 1.0
_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def die_with_parent(death_signal: signal.Signals, parent: int) -> None:
    """Have the kernel send `death_signal` to this process when its parent ends; exit if it already has.

    The signal comes when the parent's *thread* that started this process ends, so that must be its main thread.

    Raises:
        OSError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended between the fork and the prctl: no signal will come
        os._exit(1)


def main(arguments: list[str]) -> int:
    """Run `tritonserver` as the JSON in the only argument says; return its exit status (128 + n for signal n)."""
    spec = json.loads(arguments[0])
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS | {signal.SIGCHLD})
    die_with_parent(signal.SIGTERM, spec["parent"])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.set_inheritable(spec["report_fd"], False)
    server = _start(spec["command"])
    os.write(spec["report_fd"], f"{server}\n".encode())
    os.close(spec["report_fd"])
    status = _wait_until_told(server)
    if status is None:
        os.kill(server, signal.SIGTERM)
        status = _wait_for_stubs(server, spec["grace_s"])
    if status is None:
        os.kill(server, signal.SIGKILL)
        status = os.waitpid(server, 0)[1]
    _end_orphans(STUB_GRACE_S)
    _remove(spec["files"])
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _start(command: list[str]) -> int:
    """Fork and exec `tritonserver`. This process has one thread, so a plain fork is safe."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        die_with_parent(signal.SIGKILL, parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.execv(command[0], command)
    finally:
        os._exit(127)


def _wait_until_told(server: int) -> int | None:
    """Wait for a stop signal: None. Return the wait status of `server` if it ended before."""
    while (status := _reap().get(server)) is None:
        if signal.sigwait(_STOP_SIGNALS | {signal.SIGCHLD}) in _STOP_SIGNALS:
            return None
    return status


def _wait_for_stubs(server: int, limit_s: float) -> int | None:
    """Wait until `server` has no children left or the limit: None. Return its wait status if it ended before."""
    deadline = time.monotonic() + limit_s
    while (status := _reap().get(server)) is None:
        if time.monotonic() >= deadline or not _children(server):
            return None
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)
    return status


def _reap() -> dict[int, int]:
    """Collect the children that ended: pid -> wait status."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (result := os.waitpid(-1, os.WNOHANG))[0]:
            ended[result[0]] = result[1]
    return ended


def _end_orphans(grace_s: float) -> None:
    """Wait for stubs to end by themselves, then kill those that are left."""
    deadline = time.monotonic() + grace_s
    while (orphans := _children(os.getpid())) and time.monotonic() < deadline:
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)
        _reap()
    while orphans:
        for orphan in orphans:
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)
        orphans = _children(os.getpid())  # those of an orphan just killed


def _children(parent: int) -> list[int]:
    """The pids of the children of `parent`, from /proc."""
    children = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            # "pid (name) state ppid ...": the name may hold blanks and parentheses.
            stat = Path("/proc", entry, "stat").read_text()
            if stat.rpartition(")")[2].split()[1] == str(parent):
                children.append(int(entry))
    return children


def _remove(names: dict[str, str]) -> None:
    """Remove the scratch directory and the instance's files in shared memory, the lock last."""
    shutil.rmtree(names["scratch"], ignore_errors=True)
    lock = Path(names["lock"])
    for path in lock.parent.glob(f"{names['prefix']}*"):
        if path != lock:
            path.unlink(missing_ok=True)
    lock.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
