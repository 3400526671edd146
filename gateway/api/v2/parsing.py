"""Large JSON, and very many strings, are parsed in a process of their own, so that no frame waits for them.

A megabyte of numbers takes some 25 ms, and to look through a megabyte of empty strings 60 ms, during which nothing else
happens on the loop; in a thread it would hold the interpreter all the same. What is small is parsed at once.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO

from gateway import errors
from gateway.api.v2.request import InferRequest, TooLong, parse
from gateway.errors import BodyTooLarge, FramegateError, UploadsFull
from gateway.runtime.child import Child
from gateway.settings import LimitsSettings
from gateway.triton.types import Tensor

#: JSON up to this is parsed on the loop, in about 2 ms, whatever it holds.
AT_ONCE_BYTES = 32 << 10
#: So many elements of BYTES tensors are looked through on the loop, in about 2 ms.
AT_ONCE_ELEMENTS = 8_192
_COMMAND = (sys.executable, "-m", "gateway.api.v2.parser_process")
#: Length of the body and of the JSON in it, and the most elements of BYTES.
HEAD = struct.Struct("<QQQ")
#: An error in words: class, detail, members.
Failure = tuple[str, str, dict[str, object]]
#: Large bodies that may wait: the process takes one after the other.
_MOST_WAITING = 16
#: Then the process is ended. It is nice: beside busy cores a body of 4 MiB can take seconds.
_LIMIT_S = 30.0
_RETRY_AFTER_S = 1.0


class JsonParser:
    """Parses what is small at once, and the rest in a process that is started when it is first needed."""

    def __init__(self, limits: LimitsSettings) -> None:
        self._limit_bytes = limits.max_tensor_json_bytes
        self._most_elements = limits.max_bytes_elements
        self.child = Child("large JSON", _COMMAND, _LIMIT_S)
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def parse(self, body: bytes, size: int | None, check: Callable[[Sequence[Tensor]], object]) -> InferRequest:
        """Return what `body` asks for, as `gateway.api.v2.request.parse`.

        Raises:
            BadInference, NotSupported: It is malformed, or asks for what there is not, or `check` says so.
            BodyTooLarge: Its JSON is over `limits.max_tensor_json_bytes`, or it has more elements of BYTES than
                `limits.max_bytes_elements`.
            UploadsFull: Too many large ones wait, or the process does not answer.
        """
        json_bytes = len(body) if size is None else size
        if json_bytes <= AT_ONCE_BYTES or json_bytes > len(body):  # the latter is refused
            try:
                return parse(body, size, check=check, most_elements=self._most_elements, at_once=AT_ONCE_ELEMENTS)
            except TooLong:
                pass  # the other process begins anew
        if json_bytes > self._limit_bytes:
            raise BodyTooLarge(
                f"The JSON has {json_bytes} bytes; {self._limit_bytes} are allowed. Send tensors as binary data.",
                limit_bytes=self._limit_bytes,
            )
        if self._waiting >= _MOST_WAITING:
            raise UploadsFull(f"{self._waiting} bodies wait to be parsed.", retry_after_s=_RETRY_AFTER_S)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._elsewhere(body, json_bytes)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the process and the thread."""
        self.child.close()

    async def _elsewhere(self, body: bytes, json_bytes: int) -> InferRequest:
        answer = await self.child.ask(partial(_exchange, body, HEAD.pack(len(body), json_bytes, self._most_elements)))
        if answer is None:
            raise UploadsFull("Large bodies cannot be parsed now.", retry_after_s=_RETRY_AFTER_S)
        if isinstance(answer, InferRequest):
            return answer
        code, detail, members = answer
        error: FramegateError = getattr(errors, code)(detail, **members)
        raise error


def _exchange(body: bytes, head: bytes, stdin: IO[bytes], stdout: IO[bytes], _new: bool) -> InferRequest | Failure:
    """Return the request, or an error in words."""
    stdin.write(head)
    stdin.write(body)
    stdin.flush()
    answer: InferRequest | Failure = pickle.load(stdout)
    return answer
