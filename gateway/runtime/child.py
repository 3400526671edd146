"""A process that does work for the gateway, and the one thread that talks to it over its pipes.

Work of some milliseconds would hold up every frame on the event loop, and in a thread hardly less: it would share the
interpreter. So it is done elsewhere, one request at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Writes a request and reads its answer: the process's stdin and stdout, and whether it is a new one, to which nothing
#: has been said yet. May raise `EOFError`, `OSError` or `pickle.UnpicklingError`: there is no answer.
Exchange = Callable[[IO[bytes], IO[bytes], bool], T]


class Child:
    """See the module's docstring.

    Args:
        name: For the log.
        command: What to run.
        limit_s: How long one request may take; then the process is ended, and the next request has a new one.

    Attributes:
        process: None before it is first needed, and after its end has been seen.
    """

    def __init__(self, name: str, command: tuple[str, ...], limit_s: float) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._name = name
        self._command = command
        self._limit_s = limit_s
        self._new = True
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    def start(self) -> None:
        """Start the process now, so that the first request does not wait for its imports."""
        self._thread.submit(self._running)

    async def ask(self, exchange: Exchange[T]) -> T | None:
        """Return what `exchange` does, called in the thread; None when the process gave no answer in time."""
        answer = asyncio.get_running_loop().run_in_executor(self._thread, self._ask, exchange)
        done, _ = await asyncio.wait((answer,), timeout=self._limit_s)
        if not done:
            log.warning("the process for %s took over %g s and was ended", self._name, self._limit_s)
            self._kill()
        return await answer

    def close(self) -> None:
        """End the process and the thread; a request that is under way gets no answer."""
        self._kill()
        self._thread.submit(self._discard)
        self._thread.shutdown(wait=True)

    def _kill(self) -> None:
        """End the process; the thread then reads an end of file. Safe at any time, from any thread."""
        if (process := self.process) is not None:
            process.kill()

    # ------------------------------------------------------------ in the thread

    def _running(self) -> subprocess.Popen[bytes]:
        process = self.process
        if process is None or process.poll() is not None:
            self._discard()
            process = self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return process

    def _ask(self, exchange: Exchange[T]) -> T | None:
        process = self._running()
        assert process.stdin is not None, "the process was started with a pipe"
        assert process.stdout is not None, "the process was started with a pipe"
        try:
            answer = exchange(process.stdin, process.stdout, self._new)
        except (EOFError, OSError, pickle.UnpicklingError):  # it died, or was ended
            self._discard()
            return None
        self._new = False
        return answer

    def _discard(self) -> None:
        process, self.process, self._new = self.process, None, True
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was left in the buffer has nowhere to go
                    pipe.close()
