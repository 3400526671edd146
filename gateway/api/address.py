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


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use by another program; {_OTHER_PORT}."
    if error.errno == errno.EACCES:
        return f"port {port} may not be used by this user; {_OTHER_PORT}."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; {_OTHER_HOST}."
    return f"cannot listen at port {port} of {host}: {os.strerror(error.errno or 0)}; {_OTHER_PORT}."
