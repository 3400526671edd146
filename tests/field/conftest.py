"""What the tests of the field reports share. `docs/field-reports.md` says which test covers which report."""

import pytest

#: In seconds. Of one test at full length: the longest report asks for three minutes of overload between two others.
FULL_TIMEOUT_S = 1_200


@pytest.fixture
def length(request):
    """Return ``length(short, full)``: how long, or how often, to do it; `short` unless ``--soak`` was given."""
    soak = request.config.getoption("--soak")
    return lambda short=3.0, full=180.0: full if soak else short


def pytest_collection_modifyitems(config, items):
    """At full length, the usual limit of a test does not hold."""
    if config.getoption("--soak"):
        for item in items:
            item.add_marker(pytest.mark.timeout(FULL_TIMEOUT_S))
