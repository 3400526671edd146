"""The process that runs admission tests: requests in on stdin, answers out on stdout, gone at end of file."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO

#: Frames of admitted streams go first: beside busy cores this process gets one part in seventy.
_NICENESS = 19


def main(source: BinaryIO, target: BinaryIO) -> None:
    """Answer until `source` ends, which it does when the gateway goes, however it goes."""
    # A terminal sends Ctrl-C to the whole process group. First of all: the imports take longer than all before them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from gateway.core import admission
    from gateway.core.profile import Profile
    from gateway.runtime import planner_wire as wire

    os.nice(_NICENESS)
    functions: dict[str, Callable[..., Any]] = {
        "plan": admission.plan,
        "check": admission.evaluate,
        "widen": admission.widen,
        "offers": admission.counter_offers,
    }
    known = Profile()
    while True:
        try:
            kind, profile, state, arguments = wire.read(source)
        except EOFError:
            return
        known = known if profile is None else profile
        began_s = time.process_time()
        answer = functions[kind](wire.with_profile(state, known), *arguments)
        wire.write((time.process_time() - began_s, answer), target)


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
