"""Counter-offers for refused streams, searched in another process so that no frame waits for them.

The search repeats the admission test a few dozen times. On the event loop that would hold up frames for as
long; in a thread it would share the interpreter with them. So one process does it, one refusal at a time. A refusal
that finds it busy, or that it cannot serve in time, goes out without offers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from gateway.core.plan_state import AdmissionState
from gateway.core.types import StreamSpec
from gateway.core.verdict import CounterOffer

log = logging.getLogger(__name__)

#: A refusal is worth little to a caller who has given up waiting for it.
_LIMIT_S = 2.0
_COMMAND = (sys.executable, "-m", "gateway.runtime.offers_process")


class Offers:
    """The process, and the one thread that talks to it.

    Args:
        limit_s: How long a refusal waits.
        command: The process; another one in tests.
    """

    def __init__(self, limit_s: float = _LIMIT_S, command: tuple[str, ...] = _COMMAND) -> None:
        self._limit_s = limit_s
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="offers")
        self._busy = False

    def start(self) -> None:
        """Start the process now, so that the first refusal does not wait for its imports."""
        self._thread.submit(self._running)

    async def search(self, state: AdmissionState, candidate: StreamSpec) -> tuple[CounterOffer, ...]:
        """Return ``counter_offers(state, candidate)``, or nothing if that takes too long."""
        if self._busy:
            return ()
        self._busy = True
        try:
            loop = asyncio.get_running_loop()
            answer = loop.run_in_executor(self._thread, self._ask, state, candidate)
            done, _ = await asyncio.wait((answer,), timeout=self._limit_s)
            if not done:
                log.warning("the search for counter-offers took over %g s and was ended", self._limit_s)
                self._kill()
            return await answer
        finally:
            self._busy = False

    def close(self) -> None:
        """End the process and the thread."""
        self._kill()
        self._thread.submit(self._discard)
        self._thread.shutdown(wait=True)

    def _kill(self) -> None:
        """End the process; the thread then reads an end of file. Safe at any time, from any thread."""
        if (process := self._process) is not None:
            process.kill()

    # ------------------------------------------------------------ in the thread

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is None or process.poll() is not None:
            self._discard()
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._process = process
        return process

    def _ask(self, state: AdmissionState, candidate: StreamSpec) -> tuple[CounterOffer, ...]:
        process = self._running()
        assert process.stdin is not None, "the process was started with a pipe"
        assert process.stdout is not None, "the process was started with a pipe"
        try:
            pickle.dump((state, candidate), process.stdin)
            process.stdin.flush()
            answer: tuple[CounterOffer, ...] = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):  # it died, or was ended
            self._discard()
            return ()
        return answer

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was left in the buffer has nowhere to go
                    pipe.close()
