"""Large JSON is parsed in a process of its own, so that no frame waits for it.

A megabyte of numbers takes some 25 ms, during which nothing else happens on the loop; in a thread it would hold the
interpreter all the same. What is small is parsed at once: the way to the process costs more than 64 KiB do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from gateway import errors
from gateway.api.v2.request import InferRequest, parse
from gateway.errors import BodyTooLarge, FramegateError, UploadsFull
from gateway.settings import LimitsSettings

log = logging.getLogger(__name__)

#: JSON up to this is parsed on the loop, in about 2 ms.
AT_ONCE_BYTES = 64 << 10
_COMMAND = (sys.executable, "-m", "gateway.api.v2.parser_process")
#: Length of the body, and of the JSON in it.
HEAD = struct.Struct("<QQ")
#: Large bodies that may wait: the process takes one after the other.
_MOST_WAITING = 16
#: Then the process is ended. It is nice: beside busy cores a body of 4 MiB can take seconds.
_LIMIT_S = 30.0
_RETRY_AFTER_S = 1.0


class JsonParser:
    """One process, started when it is first needed, and the one thread that talks to it."""

    def __init__(self, limits: LimitsSettings) -> None:
        self._limit_bytes = limits.max_tensor_json_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def parse(self, body: bytes, size: int | None) -> InferRequest:
        """Return what `body` asks for, as `gateway.api.v2.request.parse`.

        Raises:
            BadInference, NotSupported: It is malformed, or asks for what there is not.
            BodyTooLarge: Its JSON is over `limits.max_tensor_json_bytes`.
            UploadsFull: Too many large ones wait, or the process does not answer.
        """
        json_bytes = len(body) if size is None else size
        if json_bytes <= AT_ONCE_BYTES or json_bytes > len(body):  # the latter is refused
            return parse(body, size)
        if json_bytes > self._limit_bytes:
            raise BodyTooLarge(
                f"The JSON has {json_bytes} bytes; {self._limit_bytes} are allowed. Send tensors as binary data.",
                limit_bytes=self._limit_bytes,
            )
        if self._waiting >= _MOST_WAITING:
            raise UploadsFull(f"{self._waiting} large JSON bodies wait.", retry_after_s=_RETRY_AFTER_S)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._elsewhere(body, json_bytes)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the process and the thread."""
        if self._thread is not None:
            self._kill()
            self._thread.submit(self._discard)
            self._thread.shutdown(wait=True)

    async def _elsewhere(self, body: bytes, json_bytes: int) -> InferRequest:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="large JSON")
        asked = asyncio.get_running_loop().run_in_executor(self._thread, self._ask, body, json_bytes)
        done, _ = await asyncio.wait((asked,), timeout=_LIMIT_S)
        if not done:
            log.warning("the process for large JSON took over %g s and was ended", _LIMIT_S)
            self._kill()
        answer = await asked
        if answer is None:
            raise UploadsFull("Large JSON cannot be parsed now.", retry_after_s=_RETRY_AFTER_S)
        if isinstance(answer, InferRequest):
            return answer
        code, detail = answer
        error: FramegateError = getattr(errors, code)(detail)
        raise error

    def _kill(self) -> None:
        """End the process; the thread then reads an end of file. Safe at any time, from any thread."""
        if (process := self._process) is not None:
            process.kill()

    # ------------------------------------------------------------ in the thread

    def _ask(self, body: bytes, json_bytes: int) -> InferRequest | tuple[str, str] | None:
        """Return the request, or the class and the words of an error; None if the process gives no answer."""
        process = self._process
        if process is None or process.poll() is not None:
            self._discard()
            process = self._process = subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None, "the process was started with a pipe"
        assert process.stdout is not None, "the process was started with a pipe"
        try:
            process.stdin.write(HEAD.pack(len(body), json_bytes))
            process.stdin.write(body)
            process.stdin.flush()
            answer: InferRequest | tuple[str, str] = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):  # it died, or was ended
            self._discard()
            return None
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
