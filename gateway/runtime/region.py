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
- Every page is there before the first frame, so that no copy waits for the kernel to find and clear one.
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
from gateway.runtime.pages import Pages, Wishes, populate, settle, why_no_huge_pages
from gateway.settings import ArenaSettings
from gateway.sizes import in_bytes

log = logging.getLogger(__name__)

PREFIX = "framegate-"
#: Process id and random bits; other programs' names may begin like ours.
_NAME = re.compile(rf"{PREFIX}\d+-[0-9a-f]{{16}}")
SHM_DIRECTORY = Path("/dev/shm")  # where shm_open(3) looks
#: The last one: a write would be a bus error.
_NO_SPACE = frozenset({errno.ENOSPC, errno.EFBIG, errno.ENOMEM, errno.EDQUOT, errno.EFAULT})
_NO_WISHES = Wishes()
_KINDS = {True: "shared", False: "private"}


class Region:
    """A writable range of memory of fixed size.

    Attributes:
        name: Unique name, also the name of the file; empty for private memory.
        size: In bytes.
        view: The memory itself.
        pages: What the system does with it.
    """

    def __init__(self, memory: mmap.mmap, pages: Pages, *, path: Path | None = None, fd: int = -1) -> None:
        self.name = path.name if path else ""
        self.size = len(memory)
        self.pages = pages
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


def open_region(settings: ArenaSettings, *, shared: bool) -> Region:
    """Return the region that the settings ask for, and log what it is. Raises as the two below.

    Args:
        settings: Size and wishes.
        shared: Triton is to open it. What gateways that are dead have left is removed first.
    """
    wishes = Wishes(settings.lock, settings.huge_pages == "auto")
    if shared:
        remove_dead_regions()
        region = shared_region(settings.bytes, wishes=wishes)
    else:
        region = private_region(settings.bytes, wishes)
    log.info("frame arena: %s of %s memory, %s", in_bytes(region.size), _KINDS[shared], region.pages.said)
    return region


def private_region(size: int, wishes: Wishes = _NO_WISHES) -> Region:
    """Return memory that no other process can open, with all its pages.

    Raises:
        ArenaNotLocked: As `wishes` would have it locked, and it cannot be.
        OSError: There is not so much.
    """
    refused = why_no_huge_pages(None)
    # Private to the process also for the kernel, which gives huge pages to such memory more freely.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        populate(memory, huge=wishes.huge_pages and not refused)
        return Region(memory, settle(memory, wishes, refused))
    except BaseException:
        memory.close()
        raise


def shared_region(size: int, directory: Path = SHM_DIRECTORY, wishes: Wishes = _NO_WISHES) -> Region:
    """Return a locked, fully reserved file of `size` bytes in `directory`, mapped and populated.

    Raises:
        ArenaTooSmall: `directory` has less than `size` bytes left; says how much is needed and how much is there.
        ArenaNotLocked: As `wishes` would have it locked into memory, and it cannot be.
    """
    _check_room(size, directory)
    path, fd = _new_file(directory)
    try:
        memory, pages = _filled(fd, size, directory, wishes)
    except BaseException as error:
        path.unlink(missing_ok=True)
        os.close(fd)
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            raise _too_small(size, _free_bytes(directory), directory) from error
        raise
    return Region(memory, pages, path=path, fd=fd)


def _new_file(directory: Path) -> tuple[Path, int]:
    """Return an empty file, locked as ours, and its descriptor."""
    while True:
        path = directory / f"{PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if _names(path, fd):
            return path, fd
        os.close(fd)  # a starting gateway found it before the lock was on, and took it for dead


def _filled(fd: int, size: int, directory: Path, wishes: Wishes) -> tuple[mmap.mmap, Pages]:
    """Map a new file of which every byte is reserved and every page is there. Raises as `shared_region`, `OSError`."""
    refused = why_no_huge_pages(directory)
    huge = wishes.huge_pages and not refused
    if not huge:
        os.posix_fallocate(fd, 0, size)
    else:  # reserved by filling it: what is reserved first has got its pages, and they are small
        os.ftruncate(fd, size)
    memory = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | (0 if huge else mmap.MAP_POPULATE))
    try:
        if huge:
            populate(memory, huge=True, fd=fd)
        return memory, settle(memory, wishes, refused)
    except BaseException:
        memory.close()
        raise


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
