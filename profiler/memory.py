"""Memory that a local tritonserver and its model processes hold."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")
_KIB = 1024


def family_pss_bytes(pid: int) -> int:
    """Return the proportional set size of process `pid` and all its descendants, in bytes.

    Pages shared by several processes are counted in parts, so the sum counts each once. Processes that end
    meanwhile count nothing.
    """
    return sum(_pss_bytes(member) for member in [pid, *_descendants(pid)])


def _pss_bytes(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * _KIB for line in lines if line.startswith("Pss:"))


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            children.setdefault(_parent(entry), []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _parent(entry: Path) -> int:
    try:
        after_name = (entry / "stat").read_text().rpartition(")")[2]
    except OSError:
        return 0
    return int(after_name.split()[1])
