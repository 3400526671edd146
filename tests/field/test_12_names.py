"""Report 12: names and versions lead nowhere but to models; the version that ran is always said."""

import re

import pytest

from tests.api.served import FRAME, Served
from tests.api.v2_support import binary, infer, outputs_of, tensor
from tests.field.support import head
from tests.stand_in import Model

#: As they stand in the path, and what they mean.
NAMES = [
    "..%2Fx", "../x", "a%2Fb", "a/b", "%2e%2e%2fx", "%252e%252e%252fx", "a%00b", ".", "..", "%2e", "", "n" * 300,
    "%D0%B5cho", "ech%C3%B6", "echo%20", "%20echo", "echo%0A", "echo%0D%0A", "-echo", "~", "*", "%FF",
]  # fmt: skip
VERSIONS = ["2", "-1", "0", "01", "1.0", "latest", "9" * 30, "", "%31%2F", "1%20", "%D9%A1", "1%0A", "x"]
REGISTERED = ["../x", "a/b", "a\0b", ".", "", "n" * 300, "\u0435cho", "echo\n"]
SHAPE = [1, 8, 8, 3]


@pytest.fixture(scope="module")
def served():
    with Served(Model("echo", versions=("1", "3"))) as gateway:
        gateway.stand_in.calls.clear()
        yield gateway
        assert gateway.stand_in.calls == [], "something reached Triton"


def status(served, method, path, content=b""):
    """Return the status of a call whose path is sent as it is."""
    with served.connect() as connection:
        connection.sendall(head(method, path, f"Content-Length: {len(content)}", "Connection: close") + content)
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    return int(re.match(rb"HTTP/1.1 (\d{3})", answer)[1])


@pytest.mark.parametrize("name", NAMES)
def test_names(served, name):
    for method, rest in (("POST", "/infer"), ("GET", "/ready"), ("GET", "/config"), ("GET", "/stats"), ("GET", "")):
        assert status(served, method, f"/v2/models/{name}{rest}") in (400, 404, 405), rest
    for verb in ("load", "unload"):
        assert status(served, "POST", f"/v2/repository/models/{name}/{verb}") in (400, 404)
        assert status(served, "POST", f"/v1/models/{name}/{verb}") in (400, 404, 405)


@pytest.mark.parametrize("version", VERSIONS)
def test_versions(served, version):
    for method, rest in (("POST", "/infer"), ("GET", "/ready"), ("GET", "/config"), ("GET", "/stats"), ("GET", "")):
        assert status(served, method, f"/v2/models/echo/versions/{version}{rest}") in (400, 404, 405), rest


@pytest.mark.parametrize("name", REGISTERED)
def test_names_of_registrations(served, name):
    assert served.register(model=name).status_code in (404, 422)


@pytest.mark.parametrize("version", ["2", "-1", "01", "1.0", "latest", "9" * 30])
def test_versions_of_registrations(served, version):
    assert served.register(version=version).status_code in (404, 422)


def test_the_answer_says_the_version_that_ran():
    with Served(Model("echo", versions=("1", "3"))) as served:
        call = binary([tensor(SHAPE, size=192)], FRAME)
        assert outputs_of(infer(served, call))[0]["model_version"] == "3"
        for version in ("1", "3"):
            assert outputs_of(infer(served, call, version=version))[0]["model_version"] == version
