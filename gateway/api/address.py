"""Whether the address to listen on can be had: asked before anything else is started."""

from __future__ import annotations

import errno
import os
import socket

from gateway.errors import AddressUnavailable
from gateway.settings import ServerSettings

_OTHER_PORT = "choose another with --port or FRAMEGATE_SERVER__PORT; 0 takes a free one"
_OTHER_HOST = "choose another with --host or FRAMEGATE_SERVER__HOST"


def check_address(settings: ServerSettings) -> None:
    """Bind every address of the host once, and let it go again.

    Raises:
        AddressUnavailable: The server could not listen there; one line that says why, and which option to change.
    """
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise AddressUnavailable(f"{host} is no address to listen on ({error}); {_OTHER_HOST}.") from None
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind(address)
            except OSError as error:
                raise AddressUnavailable(_explain(host, port, error)) from None


def listening_addresses(settings: ServerSettings) -> list[socket.socket]:
    """Return sockets bound to every address of the host, at one port, so that other processes may listen there.

    They do not listen themselves: as long as they are open, the port stays ours, and every process that binds it with
    ``SO_REUSEPORT`` gets its share of the connections.

    Raises:
        AddressUnavailable: As `check_address`.
    """
    check_address(settings)  # without SO_REUSEPORT, with which a second gateway could sit down beside this one
    found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(found):
        port = bound[0].getsockname()[1] if bound else settings.port
        try:
            bound.append(_reserved_socket(family, (address[0], port, *address[2:])))
        except OSError as error:
            for each in bound:
                each.close()
            raise AddressUnavailable(_explain(settings.host, settings.port, error)) from None
    return bound


def _reserved_socket(family: int, address: tuple[object, ...]) -> socket.socket:
    """Return a socket that shares `address`, and for which `check_address` finds it in use before anybody listens."""
    try:
        return reusable_socket(family, address, reuse_address=False)
    except OSError:  # connections of a server that has ended linger there
        return reusable_socket(family, address)


def reusable_socket(family: int, address: tuple[object, ...], *, reuse_address: bool = True) -> socket.socket:
    """Return a socket bound to `address`, which others may be, too. Raises `OSError`."""
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse_address)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use by another program; {_OTHER_PORT}."
    if error.errno == errno.EACCES:
        return f"port {port} may not be used by this user; {_OTHER_PORT}."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; {_OTHER_HOST}."
    return f"cannot listen at port {port} of {host}: {os.strerror(error.errno or 0)}; {_OTHER_PORT}."
