"""What the C library does with memory that was freed: kept for the next frame, not given back to the system.

A frame's bytes are a block of its own, made and freed for each. glibc gives blocks of that size back to the system at
once, by default, and gets them again page by page: at 150 kB that is 37 page faults a frame.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: The largest that glibc takes: larger blocks are mapped and unmapped one by one.
_MAPPED_BYTES = 32 << 20
_KEPT_BYTES = 64 << 20


def keep_freed_memory() -> bool:
    """Let up to 64 MiB of freed memory stay with this process; return False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
