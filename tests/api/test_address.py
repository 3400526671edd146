"""An address that is taken for processes which do not listen yet is in use for everybody else."""

import socket

import pytest

from gateway.api.address import check_address, listening_addresses, reusable_socket
from gateway.errors import AddressUnavailable
from gateway.settings import ServerSettings


def test_nobody_else_takes_an_address_before_its_processes_listen():
    [reserved] = listening_addresses(ServerSettings(port=0))
    with reserved:
        settings = ServerSettings(port=reserved.getsockname()[1])
        with pytest.raises(AddressUnavailable, match="is in use"):
            check_address(settings)
        with reusable_socket(socket.AF_INET, reserved.getsockname()) as process:
            process.listen()
            socket.create_connection(process.getsockname()).close()
            with pytest.raises(AddressUnavailable, match="is in use"):
                listening_addresses(settings)


def test_connections_that_linger_there_are_in_nobodys_way():
    """Of a server that did not share its port, and has ended."""
    with socket.create_server(("127.0.0.1", 0)) as before:
        port = before.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        before.accept()[0].close()  # this side closes first, and waits
        client.close()
    [reserved] = listening_addresses(ServerSettings(port=port))
    with reserved, reusable_socket(socket.AF_INET, reserved.getsockname()) as process:
        process.listen()
