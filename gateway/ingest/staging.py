"""Memory that one ingest process shares with the scheduler: bodies on their way from a socket to their batch.

It belongs to no file: it is gone when both have let it go, however they end. Bodies are taken in the order in which
they were put down, so it is a ring. One that is empty begins anew at its start: a process that is not behind uses the
same few pages all the time, and the processor's caches hold them.

Nobody can change its size: whoever reads behind the end of memory that another process has cut off is ended.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections import deque
from contextlib import suppress

_ALIGNMENT = 64
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Staging:
    """One ring.

    Args:
        fd: Of the memory; closed with it.
        size: In bytes.

    Attributes:
        view: The memory itself.
        used_bytes: What is put down and not taken yet, with what is lost at the end of the ring.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.used_bytes = 0
        self._memory = mmap.mmap(fd, size)
        self.view = memoryview(self._memory)
        self._size = size
        self._next = 0
        self._held: deque[int] = deque()

    @classmethod
    def create(cls, size: int) -> Staging:
        """Return new memory of at least `size` bytes. Its pages are taken as they are first written to."""
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        fd = os.memfd_create("framegate-staging", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            return cls(fd, size)
        except BaseException:
            os.close(fd)
            raise

    @property
    def size(self) -> int:
        """In bytes."""
        return self._size

    def put(self, size: int) -> int | None:
        """Return where a body of `size` bytes is to be written; None while there is no room for it."""
        if not self._held:
            self._next = 0
        start, needed = self._next, -(-size // _ALIGNMENT) * _ALIGNMENT
        if start + needed > self._size:  # it has to lie in one piece: at the start of the ring
            needed += self._size - start
            start = 0
        if self.used_bytes + needed > self._size:
            return None
        self.used_bytes += needed
        self._next = start + (-(-size // _ALIGNMENT) * _ALIGNMENT)
        self._held.append(needed)
        return start

    def taken(self) -> None:
        """The oldest body is not needed any more."""
        self.used_bytes -= self._held.popleft()

    def close(self) -> None:
        """Let it go: now, or with the last view of it."""
        os.close(self.fd)
        with suppress(BufferError):
            self.view.release()
            self._memory.close()
