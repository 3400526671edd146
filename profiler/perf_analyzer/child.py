"""Becomes the program it is told, one that the kernel kills when its parent ends: ``child.py PARENT_PID PROGRAM ...``.

Run by path with a bare Python, so it imports nothing of this package.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Replace this process by `command`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() == parent:  # else it ended before it could be watched
        try:
            os.execv(command[0], command)
        except OSError as error:
            sys.stderr.write(f"error: {command[0]} cannot be run: {error.strerror}\n")
    sys.exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
