"""Free ports on loopback, whether a Triton answers there, and whether an address is there at all."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
from dataclasses import dataclass

from gateway.errors import EmbeddedTritonError

HOST = "127.0.0.1"
#: Of one probe; loopback answers in a millisecond unless the process hangs.
_PROBE_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Ports:
    """The three TCP ports on loopback."""

    http: int
    grpc: int
    metrics: int


def free_ports(wanted: Ports, earlier: Ports | None) -> Ports:
    """Fill in the ports that are 0: with those of an earlier start if they are free, else with any free ones.

    Raises:
        EmbeddedTritonError: A port that was asked for is taken.
    """
    with contextlib.ExitStack() as held:
        chosen = []
        for name in ("http", "grpc", "metrics"):
            fixed = getattr(wanted, name)
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, fixed or getattr(earlier, name, 0)))
            except OSError as error:
                if fixed:
                    raise EmbeddedTritonError(
                        f"Port {fixed} of {HOST} cannot be used ({error.strerror}): name another --{name}-port, or 0 "
                        "for any free one."
                    ) from error
                probe.bind((HOST, 0))
            chosen.append(probe.getsockname()[1])
    return Ports(*chosen)


def says_ready(port: int) -> bool:
    """Whether the HTTP endpoint on `port` says that Triton is ready."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def listens(port: int) -> bool:
    """Whether anything accepts connections on `port`."""
    try:
        with socket.create_connection((HOST, port), timeout=_PROBE_TIMEOUT_S):
            return True
    except OSError:
        return False


def is_loopback(url: str) -> bool:
    """Tell whether ``host:port`` is on this machine for certain."""
    host = url.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
