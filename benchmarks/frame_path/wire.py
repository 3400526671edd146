"""Calls and messages as the senders write them, once, and the answers as far as somebody reads them.

A WebSocket's client has to mask what it sends. Here it does so once, when it makes the message that it sends over and
over; the server takes the mask off each time.
"""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_MASKED, _FINAL = 0x80, 0x80
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_SHORT, _MEDIUM, _LONG = 125, 126, 127
_MASK_BYTES = 4
_HEAD_END = b"\r\n\r\n"
#: There is another header that ends so.
_LENGTH = b"\r\ncontent-length:"
_OK = 200
_PROBLEM, _CODE = b'{"error"', b'"code":"'


class WireError(Exception):
    """The server did not say what was expected of it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer.

    Attributes:
        fault: Why there is no result: an HTTP status, or the code of a problem over a WebSocket; empty if there is one.
        body: Its text.
    """

    fault: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Pong:
    """What has to be sent now, as the server has asked whether anybody is there."""

    data: bytes


def http_call(host: str, port: int, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a POST."""
    lines = [f"POST {path} HTTP/1.1", f"host: {host}:{port}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def http_answers(buffer: bytearray) -> Iterator[Answer]:
    """Take the complete answers off the front of `buffer`. Raises `WireError`."""
    while (end := buffer.find(_HEAD_END)) >= 0:
        head = bytes(buffer[:end]).lower()
        at = head.find(_LENGTH)
        if at < 0:
            raise WireError(f"an answer without content-length: {head[:200]!r}")
        start = end + len(_HEAD_END)
        size = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
        if len(buffer) < start + size:
            return
        status = int(head[9:12])
        yield Answer("" if status == _OK else f"http_{status}", bytes(buffer[start : start + size]))
        del buffer[: start + size]


def upgrade(host: str, port: int, path: str) -> bytes:
    """Return the handshake of a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [f"GET {path} HTTP/1.1", f"host: {host}:{port}", "upgrade: websocket", "connection: Upgrade"]
    lines += [f"sec-websocket-key: {key}", "sec-websocket-version: 13"]
    return "\r\n".join([*lines, "", ""]).encode()


def message(payload: bytes, opcode: int = _BINARY) -> bytes:
    """Return one message of a client."""
    size = len(payload)
    if size <= _SHORT:
        head = struct.pack("!BB", _FINAL | opcode, _MASKED | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", _FINAL | opcode, _MASKED | _MEDIUM, size)
    else:
        head = struct.pack("!BBQ", _FINAL | opcode, _MASKED | _LONG, size)
    mask = os.urandom(_MASK_BYTES)
    return head + mask + masked(payload, mask)


def masked(payload: bytes, mask: bytes) -> bytes:
    """Return `payload` under a mask of 4 bytes, or from under it."""
    size = len(payload)
    over = (mask * (size // _MASK_BYTES + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(over, "little")).to_bytes(size, "little")


def ws_answers(buffer: bytearray) -> Iterator[Answer | Pong]:
    """Take the complete messages of a server off the front of `buffer`. Raises `WireError`."""
    while len(buffer) >= 2:
        opcode, size, start = buffer[0] & 0x0F, buffer[1] & 0x7F, 2
        if size == _MEDIUM:
            start = 4
            size = int.from_bytes(buffer[2:4], "big")
        elif size == _LONG:
            start = 10
            size = int.from_bytes(buffer[2:10], "big")
        if len(buffer) < start + size:
            return
        payload = bytes(buffer[start : start + size])
        del buffer[: start + size]
        if opcode == _TEXT:
            yield Answer(_fault(payload), payload)
        elif opcode == _PING:
            yield Pong(message(payload, _PONG))
        elif opcode == _CLOSE:
            raise WireError(f"the server closed: {payload!r}")


def _fault(text: bytes) -> str:
    """Return the code of the problem that a message is; empty if it is a result."""
    if not text.startswith(_PROBLEM):
        return ""
    _, _, rest = text.partition(_CODE)
    return rest.partition(b'"')[0].decode() or "problem"
