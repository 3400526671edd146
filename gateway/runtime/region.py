"""The memory under the frame arena: a file in ``/dev/shm`` that Triton can open, or private memory.

Rules, each learnt from a system that lacked it:

- The space is reserved when the file is made. A sparse file in a ``/dev/shm`` that is too small works until
  the first write, which then kills the process with SIGBUS.
- The name holds the process id and 64 random bits: two gateways never meet, and Triton's registrations of a
  former run are never taken for ours.
- The owner holds an exclusive ``flock`` for as long as it lives. The kernel drops it with the last reference
  to the open file, also after ``kill -9``, so a lock that can be taken is proof that the owner is dead,
  whatever process ids mean in another container. Only such files are removed at the next start.
- No ``multiprocessing.shared_memory``: its resource tracker unlinks a segment when *any* process that opened
  it ends.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from gateway.errors import ArenaTooSmall

log = logging.getLogger(__name__)

PREFIX = "framegate-"
#: Process id and random bits; other programs' names may begin like ours.
_NAME = re.compile(rf"{PREFIX}\d+-[0-9a-f]{{16}}")
SHM_DIRECTORY = Path("/dev/shm")  # where shm_open(3) looks
_NO_SPACE = frozenset({errno.ENOSPC, errno.EFBIG, errno.ENOMEM, errno.EDQUOT})


class Region:
    """A writable range of memory of fixed size.

    Attributes:
        name: Unique name, also the name of the file; empty for private memory.
        size: In bytes.
        view: The memory itself.
    """

    def __init__(self, memory: mmap.mmap, size: int, *, path: Path | None = None, fd: int = -1) -> None:
        self.name = path.name if path else ""
        self.size = size
        self.view = memoryview(memory)
        self._memory = memory
        self._path = path
        self._fd = fd

    @property
    def key(self) -> str:
        """The name by which ``shm_open`` finds it."""
        return f"/{self.name}"

    @property
    def shared(self) -> bool:
        """Whether another process can open it."""
        return self._path is not None

    @property
    def beside_bytes(self) -> int:
        """Bytes that are left beside it where its file lies; 0 for private memory."""
        return 0 if self._path is None else _free_bytes(self._path.parent)

    def close(self) -> None:
        """Remove the file and unmap the memory. A second call has no effect."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.view.release()
        self._memory.close()


def private_region(size: int) -> Region:
    """Return memory that no other process can open."""
    return Region(mmap.mmap(-1, size), size)


def shared_region(size: int, directory: Path = SHM_DIRECTORY) -> Region:
    """Return a locked, fully reserved file of `size` bytes in `directory`, mapped and populated.

    Raises:
        ArenaTooSmall: `directory` has less than `size` bytes left; says how much is needed and how much is there.
    """
    _check_room(size, directory)
    path = directory / f"{PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if not _names(path, fd):  # a starting gateway found it before the lock was on, and took it for dead
            os.close(fd)
            return shared_region(size, directory)
        os.posix_fallocate(fd, 0, size)
        memory = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except OSError as error:
        path.unlink(missing_ok=True)
        os.close(fd)
        if error.errno in _NO_SPACE:
            raise _too_small(size, _free_bytes(directory), directory) from error
        raise
    return Region(memory, size, path=path, fd=fd)


def remove_dead_regions(directory: Path = SHM_DIRECTORY) -> list[str]:
    """Remove the files of gateways of this user that are proven dead; return their names."""
    removed = []
    for path in directory.glob(f"{PREFIX}*"):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # gone by now, or another user's
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_uid == os.getuid():
                path.unlink(missing_ok=True)
                removed.append(path.name)
        except BlockingIOError:  # its owner lives
            pass
        finally:
            os.close(fd)
    if removed:
        log.info("removed shared memory of dead gateways: %s", ", ".join(removed))
    return removed


def dead_regions(names: Iterable[str], directory: Path = SHM_DIRECTORY) -> list[str]:
    """Return those names of gateways' regions that have no file any more."""
    return sorted(name for name in names if _NAME.fullmatch(name) and not (directory / name).exists())


def _names(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _free_bytes(directory: Path) -> int:
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize


def _check_room(size: int, directory: Path) -> None:
    """Refuse early what cannot fit: reserving a part of it would take memory from everybody else."""
    free = _free_bytes(directory)
    if free < size:
        raise _too_small(size, free, directory)


def _too_small(size: int, free: int, directory: Path) -> ArenaTooSmall:
    return ArenaTooSmall(
        f"The frame arena needs {size} bytes in {directory}, which has {free} left. Give the container a larger "
        f"one (--shm-size), set FRAMEGATE_ARENA__BYTES lower, or send frames inside messages with "
        f"FRAMEGATE_TRITON__SHARED_MEMORY=off.",
        needed_bytes=size,
        arena_bytes=free,
    )
