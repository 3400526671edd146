"""What the system does with the pages under the arena: keeps them in memory, and makes them large.

- *Locked* memory is never swapped out, so a frame never waits for a disk. The kernel allows it up to
  ``RLIMIT_MEMLOCK`` (``ulimit -l``), and without a limit to a process with ``CAP_IPC_LOCK``.
- *Huge pages*, of 2 MiB instead of 4 KiB, need fewer entries of page tables, which every copy looks up. Whether a file
  in ``/dev/shm`` may have any is said where that is mounted (``huge=``), by default not; in
  ``/sys/kernel/mm/transparent_hugepage`` the file ``shmem_enabled`` overrules it with ``deny`` or ``force``. For
  private memory the file ``enabled`` decides. A page is as large as it was when it was first touched, so it has to be
  asked for before.

Nothing here is needed for frames to be right: what the system does not allow is said, once.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import ArenaNotLocked
from gateway.sizes import in_bytes

_THP = Path("/sys/kernel/mm/transparent_hugepage")
_MOUNTS = Path("/proc/self/mountinfo")
_MAPS = Path("/proc/self/smaps")
#: ``MADV_POPULATE_WRITE`` of Linux 5.14: have all pages now. Python 3.11 has no name for it.
_POPULATE_WRITE = 23
_HUGE_KB = re.compile(r"(?:AnonHugePages|ShmemPmdMapped|FilePmdMapped): +(\d+) kB")
_RANGE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is wanted of the pages of a region: the settings of `arena`.

    Attributes:
        lock: ``on``: locked, or there is no region; ``auto``: if it is allowed; ``off``.
        huge_pages: If they are allowed.
    """

    lock: str = "off"
    huge_pages: bool = False


@dataclass(frozen=True, slots=True)
class Pages:
    """What became of them.

    Attributes:
        locked: All of the region is.
        huge_bytes: So much of it lies in huge pages.
        said: Both in words, with the reason where something was wanted and not had.
    """

    locked: bool = False
    huge_bytes: int = 0
    said: str = ""


def populate(memory: mmap.mmap, *, huge: bool, fd: int = -1) -> None:
    """Have all pages of new memory now, huge ones if `huge`; `fd` is its file, if it has one.

    Raises:
        OSError: There are not so many; with ``EFAULT`` where a write would be a bus error.
    """
    if huge:
        memory.madvise(mmap.MADV_HUGEPAGE)
    try:
        memory.madvise(_POPULATE_WRITE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # An old kernel: a write to each page does the same, once it is certain not to be a bus error.
        if fd >= 0:
            os.posix_fallocate(fd, 0, len(memory))
        with memoryview(memory) as view:
            view[:: mmap.PAGESIZE] = bytes(-(-len(view) // mmap.PAGESIZE))


def settle(memory: mmap.mmap, wishes: Wishes, refused: str) -> Pages:
    """Lock memory whose pages are there, if wished, and see what pages it has.

    Args:
        memory: All of it is meant.
        wishes: As in the settings.
        refused: Why huge pages are not allowed here; empty if they are.

    Raises:
        ArenaNotLocked: It had to be locked and cannot be.
    """
    reason = "" if wishes.lock == "off" else _lock(memory)
    if reason and wishes.lock == "on":
        raise ArenaNotLocked(
            f"The frame arena cannot be locked into memory: {reason}. Raise the limit (ulimit -l, LimitMEMLOCK= of a "
            "systemd unit, --ulimit memlock=-1 of a container), or set FRAMEGATE_ARENA__LOCK to auto."
        )
    locked = wishes.lock != "off" and not reason
    huge_bytes = _huge_bytes(memory)
    words = ["locked" if locked else "not locked" + (f" ({reason})" if reason else "")]
    if huge_bytes:
        words.append(f"{in_bytes(huge_bytes)} in huge pages")
    elif wishes.huge_pages:
        words.append(f"no huge pages ({refused or 'the system had none'})")
    return Pages(locked, huge_bytes, ", ".join(words))


def why_no_huge_pages(directory: Path | None) -> str:
    """Return why memory cannot have huge pages; empty if it can.

    Args:
        directory: Where its file lies; None: it is private.
    """
    if directory is None:
        chosen = _chosen("enabled")
        return "" if chosen in ("always", "madvise") else f"transparent_hugepage/enabled is {chosen}"
    chosen = _chosen("shmem_enabled")
    if chosen in ("deny", "unknown"):
        return f"transparent_hugepage/shmem_enabled is {chosen}"
    mounted = mount_option(directory)
    if chosen == "force" or mounted in ("always", "within_size", "advise"):
        return ""
    return f"{directory} is mounted with huge={mounted}"


def mount_option(directory: Path, mounts: Path = _MOUNTS) -> str:
    """Return ``huge=`` of the file system that a directory is in; ``never`` where nothing is said."""
    option, deepest = "never", -1
    try:
        wanted = directory.resolve()
        lines = mounts.read_text().splitlines()
    except OSError:
        return option
    for line in lines:
        before, _, after = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), before.split()[4]))
        if wanted.is_relative_to(point) and len(point.parts) >= deepest:  # of two at one place, the later one
            deepest = len(point.parts)
            said = re.search(r"(?:^|[ ,])huge=(\w+)", after)
            option = said[1] if said else "never"
    return option


def _chosen(name: str) -> str:
    """Return the choice in brackets of one of the kernel's files; ``unknown`` without it."""
    try:
        found = re.search(r"\[(\w+)]", (_THP / name).read_text())
    except OSError:
        found = None
    return found[1] if found else "unknown"


# ---------------------------------------------------------------- the mapping


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _lock(memory: mmap.mmap) -> str:
    """Lock it; return why that is not possible, or nothing. The lock ends with the mapping."""
    size = len(memory)
    if _LIBC.mlock(ctypes.c_void_p(_address(memory)), ctypes.c_size_t(size)) == 0:
        return ""
    number = ctypes.get_errno()
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if number in (errno.ENOMEM, errno.EPERM) and 0 <= limit < size:
        return f"{in_bytes(limit)} may be locked (ulimit -l), {in_bytes(size)} are needed"
    return os.strerror(number)


def _huge_bytes(memory: mmap.mmap) -> int:
    """Return how much of it is mapped by huge pages; 0 where the kernel does not say."""
    start = _address(memory)
    try:
        text = _MAPS.read_text()
    except OSError:
        return 0
    return sum(_huge_kb(text, start, start + len(memory))) << 10


def _huge_kb(text: str, start: int, end: int) -> Iterator[int]:
    inside = False
    for line in text.splitlines():
        if (found := _RANGE.match(line)) is not None:
            inside = start <= int(found[1], 16) < end
        elif inside and (size := _HUGE_KB.match(line)) is not None:
            yield int(size[1])
