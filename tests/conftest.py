"""What all tests share: hypothesis profiles. `ci` is derandomised, so that a failure is the change's own."""

import os

from hypothesis import HealthCheck, settings

# Read by ONNX Runtime when it is imported: no local database, no attempt to report.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser):
    # Here, since options of a conftest further down are not known when pytest reads its arguments.
    parser.addoption("--soak", action="store_true", help="run the tests of tests/field at their full length")
