"""The process that searches counter-offers: requests in on stdin, answers out on stdout, gone at end of file.

Both are pickles between two processes of one program and one version; nothing else is ever read.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import BinaryIO

#: Frames of admitted streams go first.
_NICENESS = 5


def main(source: BinaryIO, target: BinaryIO) -> None:
    """Answer until `source` ends, which it does when the gateway goes, however it goes."""
    # A terminal sends Ctrl-C to the whole process group. First of all: the import takes longer than all before it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from gateway.core.admission import counter_offers

    os.nice(_NICENESS)
    while True:
        try:
            state, candidate = pickle.load(source)
        except EOFError:
            return
        pickle.dump(counter_offers(state, candidate), target)
        target.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
