"""What one embedded Triton owns outside its processes: a name, a lock, shared-memory files, a scratch directory.

Everything carries the instance's name. The lock file ``/dev/shm/<name>.lock`` is locked (``flock``) by all processes
of the instance through one open file that they inherit, so whoever can take the lock has proof that they are all
dead, whatever the pid namespace; only then are files removed. `gateway.triton.supervisor` removes them at the end of
an orderly run, `remove_leftovers` those of predecessors that were killed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gateway.triton.wheel import TritonWheel

SHARED_MEMORY = Path("/dev/shm")
_NAME = "framegate_triton_"


@dataclass(frozen=True)
class Instance:
    """The files of one embedded Triton.

    Attributes:
        name: Unique; the prefix of its shared-memory files.
        lock_fd: The open, locked lock file; the processes of the instance inherit it.
        scratch: Directory with the assembled backends.
    """

    name: str
    lock_fd: int
    scratch: Path

    @property
    def lock(self) -> Path:
        """The lock file."""
        return SHARED_MEMORY / f"{self.name}.lock"

    def close(self) -> None:
        """Close this process's hold on the lock (its children keep theirs)."""
        os.close(self.lock_fd)

    def discard(self) -> None:
        """Remove everything: for an instance whose processes never started or are all gone. Closes the lock."""
        _remove(self.name)
        self.close()


def create_instance() -> Instance:
    """Make a new instance: its lock, taken, and its scratch directory."""
    name = f"{_NAME}{secrets.token_hex(6)}"
    while (fd := _lock(SHARED_MEMORY / f"{name}.lock", create=True)) is None:
        name = f"{_NAME}{secrets.token_hex(6)}"
    scratch = _scratch(name)
    scratch.mkdir(mode=0o700)
    return Instance(name, fd, scratch)


def remove_leftovers() -> list[str]:
    """Remove the files of instances of which no process is left; return their names. Others' are not touched."""
    removed = []
    for lock in SHARED_MEMORY.glob(f"{_NAME}*.lock"):
        fd = _lock(lock, create=False)
        if fd is not None:
            _remove(lock.stem)
            os.close(fd)
            removed.append(lock.stem)
    return removed


def assemble_backends(scratch: Path, wheel: TritonWheel, backends: Path) -> Path:
    """Make the directory that `--backend-directory` names and return it. Takes a few milliseconds.

    The Python backend comes from the wheel, with the stub of the running Python beside its library, where it looks
    for it; `backends` holds the Python-based ones (``<name>/model.py``). Copies, as Triton refuses a library whose
    real path lies outside its backend directory.
    """
    directory = scratch / "backends"
    (directory / "python").mkdir(parents=True)
    for file in (*wheel.python_backend.iterdir(), wheel.stub):
        if file.is_file():
            shutil.copy(file, directory / "python")
    for model in backends.glob("*/model.py"):
        (directory / model.parent.name).mkdir()
        shutil.copy(model, directory / model.parent.name)
    return directory


def _lock(path: Path, *, create: bool) -> int | None:
    """Open and lock `path`; None if another holds it, or it vanished or is not ours."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
    except OSError:  # gone meanwhile, or another user's
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Removed between the open and the lock: then the name is no longer this file's.
        if os.fstat(fd).st_nlink:
            return fd
    except BlockingIOError:
        pass
    os.close(fd)
    return None


def _remove(name: str) -> None:
    """Remove the scratch directory and all files in shared memory of `name`, the lock last."""
    shutil.rmtree(_scratch(name), ignore_errors=True)
    lock = SHARED_MEMORY / f"{name}.lock"
    for path in SHARED_MEMORY.glob(f"{name}*"):
        if path != lock:
            path.unlink(missing_ok=True)
    lock.unlink(missing_ok=True)


def _scratch(name: str) -> Path:
    return Path(tempfile.gettempdir()) / name
