"""What a connection of ours tells an application beyond ASGI, and takes from it at less cost than ASGI's.

A frame's call through ASGI alone joins what came of its body, needs something that waits for the client to go away, and
sends its answer in two parts. A server that is not ours does none of this: whoever uses it knows the way without, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.types import Scope

from gateway.runtime.bodies import Piece

#: Key of ``scope["extensions"]`` of an HTTP call: a `Caller`.
CALLER = "framegate.caller"

Headers = Sequence[tuple[bytes, bytes]]


class Caller(Protocol):
    """The client of one HTTP call.

    Attributes:
        status: Of the answer; None before it.
        disconnected: It has gone away without its answer.
        size: Bytes of the body that have come and were not taken.
        complete: Whether nothing more of the body will come.
    """

    status: int | None
    disconnected: bool
    size: int

    @property
    def complete(self) -> bool: ...  # noqa: D102 - an attribute

    async def wait(self, grown: Callable[[int], None]) -> None:
        """Return once the body is complete, or the client is gone. What comes meanwhile is not held back.

        Args:
            grown: Told `size` as it grows. What it raises is raised here.

        Raises:
            TimeoutError: `give_up` was called.
        """

    def give_up(self) -> None:
        """End a `wait`."""

    def take(self) -> list[Piece]:
        """Return what has come of the body, in the pieces in which it came, and forget it."""

    def when_gone(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` when the client goes away without its answer, at once if it has. None: call nobody."""

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer in one write. `headers` are ours, so nobody checks them; Content-Length is among them."""


def caller_of(scope: Scope) -> Caller | None:
    """Return who calls; None if the server does not say."""
    extensions = scope.get("extensions")
    caller: Caller | None = extensions.get(CALLER) if extensions else None
    return caller
