"""What a WebSocket of ours gives an application beyond ASGI: binary messages as they came, and text at less cost.

A server that is not ours does not have it: whoever uses it knows the way without, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope

from gateway.runtime.bodies import Body

#: Key of ``scope["extensions"]`` of a WebSocket: a `Socket`.
SOCKET = "framegate.socket"
#: Key of a ``websocket.receive`` event: a binary message as a `Body`, in place of ``bytes``.
BODY = "framegate.body"


class Socket(Protocol):
    """What a connection of ours gives an application beyond ASGI."""

    def limit_messages(self, limit_bytes: int, place_bytes: int) -> None:
        """Set the limit of a message, and what of it has a place of its own among the bodies that are on their way."""

    def deliver_to(self, consumer: Callable[[Body], bool] | None) -> None:
        """Hand each binary message to `consumer`, as it comes; what that does not take comes as an event with `BODY`.

        It is asked when all events before the message have been received.
        """

    def write_text(self, text: bytes) -> bool:
        """Send a text message if it can be written at once; return whether that is so."""


def socket_of(scope: Scope) -> Socket | None:
    """Return the connection of a WebSocket; None if the server is not ours."""
    extensions = scope.get("extensions")
    socket: Socket | None = extensions.get(SOCKET) if extensions else None
    return socket


def text_header(size: int) -> bytes:
    """Return what stands before a text message of `size` bytes, in one frame that is not masked."""
    if size < 126:
        return bytes((0x81, size))
    return b"\x81\x7e" + size.to_bytes(2, "big") if size < 1 << 16 else b"\x81\x7f" + size.to_bytes(8, "big")
