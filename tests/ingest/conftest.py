import pytest

from tests.api.conftest import no_error_is_logged, served  # noqa: F401 - fixtures
from tests.api.served import Served


@pytest.fixture(scope="module")
def shared():
    """One gateway with two ingest processes for a module: its start takes a second and more."""
    running = Served(server={"ingest_workers": 2}).start()
    yield running
    running.stop()
