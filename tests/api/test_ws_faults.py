"""Faults of the gateway's own while it serves a WebSocket."""

import pytest

from gateway.api import ws_exchange
from tests.api.served import FRAME
from tests.api.sockets import BINARY, TEXT, Bare, errors_in


@pytest.mark.parametrize("sent", [(BINARY,), (TEXT, BINARY), (BINARY, BINARY)])
def test_a_fault_of_the_gateway_is_logged_and_ends_the_socket_with_a_code(served, sent, monkeypatch, caplog):
    """Also where a message is taken as its last byte comes, without a task in between that could fail."""

    def submit(*_arguments):
        raise RuntimeError("a fault")

    with served.stream() as stream, Bare(served, stream) as bare:
        monkeypatch.setattr(served.gateway, "submit", submit)
        payloads = {TEXT: b'{"timestamp_ms": 1}', BINARY: FRAME}
        bare.connection.sendall(b"".join(bare.frame(opcode, payloads[opcode]) for opcode in sent))
        assert bare.code_of_close() == (1011, "internal", [])
    assert [record.getMessage() for record in errors_in(caplog)] == ["unexpected error while answering a WebSocket"]
    assert "RuntimeError: a fault" in caplog.text
    assert served.counters()["framegate_websockets",] == 0


@pytest.mark.parametrize("large", [False, True])
def test_so_does_one_while_an_answer_is_written(served, large, monkeypatch, caplog):
    """At once, as its frame ends, or by the task that writes what has to wait."""

    def frame_result(_result):
        raise RuntimeError("a fault")

    monkeypatch.setattr(ws_exchange, "frame_result", frame_result)
    monkeypatch.setattr(ws_exchange, "is_large", lambda _results: large)
    with served.stream() as stream, Bare(served, stream) as bare:
        bare.send(FRAME)
        assert bare.code_of_close() == (1011, "internal", [])
    assert [record.getMessage() for record in errors_in(caplog)] == ["unexpected error while answering a WebSocket"]
    assert served.counters()["framegate_websockets",] == 0
