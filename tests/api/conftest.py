import logging

import pytest

from tests.api.served import Served
from tests.api.sockets import errors_in


@pytest.fixture(scope="module")
def shared():
    """One gateway for a module: its start takes half a second."""
    served = Served().start()
    yield served
    served.stop()


@pytest.fixture
def served(shared):
    """The module's gateway; at the end nothing of the test is left in it."""
    yield shared
    shared.stand_in.delay_s = lambda call: 0.0
    shared.stand_in.error = lambda call: ""
    left = [stream["stream_id"] for stream in shared.http.get("/v1/streams").json()["streams"]]
    for stream_id in left:
        shared.http.delete(f"/v1/streams/{stream_id}")
    assert not left, "the test left streams behind"


@pytest.fixture
def no_error_is_logged(caplog):
    """At the end of the test, no error has been logged by the server."""
    caplog.set_level(logging.WARNING)
    yield
    assert errors_in(caplog) == []
