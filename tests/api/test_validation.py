"""Bad bodies, as raw text: each is a 422 with a valid document, and leaves no trace."""

import json

import pytest

from gateway.api.requests import StreamRequest
from tests.api.served import problem

GOOD = {"model": "echo", "shape": [8, 8, 3], "period_ms": 200, "deadline_ms": 400}

#: As raw JSON text.
BAD_TIMES = [
    "NaN",
    '"NaN"',
    "Infinity",
    "-Infinity",
    "0",
    "-0.0",
    "-1",
    "1e-12",
    "1e-5",
    "1e308",
    "1e400",
    "86400000.1",
    "true",
    "null",
    '"33ms"',
    '"33"',
    "[]",
    "[33]",
    "{}",
    "1" + "0" * 400,
    "1" + "0" * 5_000,
    "0x10",
    "+1",
    "1_0",
]


def with_field(name, text):
    """Return GOOD as text, `name` replaced by raw `text`."""
    fields = {key: json.dumps(value) for key, value in GOOD.items()}
    if name == "fps":
        del fields["period_ms"]
    fields[name] = text
    return "{" + ", ".join(f'"{key}": {value}' for key, value in fields.items()) + "}"


def post(served, text, path="/v1/streams", content_type="application/json"):
    body = text if isinstance(text, bytes) else text.encode()
    return served.http.post(path, content=body, headers={"content-type": content_type})


@pytest.fixture(autouse=True)
def _no_trace(served):
    before = served.http.get("/v1/streams").json()
    calls = len(served.stand_in.calls)
    yield
    assert served.http.get("/v1/streams").json() == before
    assert len(served.stand_in.calls) == calls, "a bad body reached Triton"


@pytest.mark.parametrize("text", BAD_TIMES, ids=lambda text: text[:12])
@pytest.mark.parametrize("field", ["period_ms", "deadline_ms", "fps"])
def test_times(served, field, text):
    body = with_field(field, text)
    document = problem(post(served, body), 422, "invalid_request")
    assert document["errors"][0].keys() == {"field", "message", "type"}
    problem(post(served, body, "/v1/admission/check"), 422, "invalid_request")


def test_after_all_that_a_good_one_works(served):
    for text in BAD_TIMES:
        post(served, with_field("deadline_ms", text))
    with served.stream():
        pass


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("frames", "0"),
        ("frames", "-1"),
        ("frames", "1.5"),
        ("frames", "true"),
        ("frames", '"3"'),
        ("frames", "1000000001"),
        ("frames", "1" + "0" * 400),
        ("start_in_ms", "-0.1"),
        ("start_in_ms", "NaN"),
        ("start_in_ms", "86400001"),
        ("shape", "[]"),
        ("shape", "null"),
        ("shape", '"8x8x3"'),
        ("shape", "[8, 8, -1]"),
        ("shape", "[8, 8, 0]"),
        ("shape", "[8, 8, 3.0]"),
        ("shape", "[8, 8, true]"),
        ("shape", "[8, 8, 65537]"),
        ("shape", "[8, 8, 1e3]"),
        ("shape", "[1, 1, 1, 1, 1, 1, 1, 1, 1]"),
        ("shape", "[65536, 65536, 3]"),
        ("shape", "[65536, 65536, 65536, 65536, 65536, 65536, 65536, 65536]"),
        ("shape", "[" + "8," * 9_000 + "3]"),
        ("shape", "[8, 8, 1" + "0" * 400 + "]"),
        ("dtype", '"uint8"'),
        ("dtype", '"BYTES"'),
        ("dtype", "null"),
        ("dtype", "8"),
        ("on_late", '"later"'),
        ("on_late", "true"),
        ("service_class", '"background"'),
        ("service_class", '"best_effort", "on_late": "serve"'),
        ("on_excess", '"drop"'),
        ("name", "3"),
        ("name", "null"),
        ("name", '"two\\nlines"'),
        ("name", '"nul\\u0000"'),
        ("name", '"' + "x" * 129 + '"'),
        ("name", '"\\ud800"'),
        ("version", "1"),
        ("version", '""'),
        ("version", '"-1"'),
        ("version", '"01"'),
        ("version", '"1.0"'),
        ("version", '"latest"'),
        ("version", '"' + "9" * 30 + '"'),
        ("version", '"1\\n"'),
        ("version", '"\u0661"'),
        ("burst", "0"),
        ("burst", "1025"),
        ("burst", "2.0"),
        ("burst", "true"),
        ("jitter_ms", "-0.1"),
        ("jitter_ms", "NaN"),
        ("jitter_ms", "86400001"),
        ("jitter_ms", "true"),
        ("swapping", "1"),
        ("swapping", '"true"'),
        ("priority", "1"),
        ("", "1"),
    ],
    ids=lambda text: text[:24],
)
def test_other_fields(served, field, text):
    problem(post(served, with_field(field, text)), 422, "invalid_request")


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/b",
        "%2e%2e%2fx",
        "a\\u0000b",
        ".",
        "..",
        "",
        "x" * 300,
        "\u0435cho",
        "ECHO\u212a",
        "-x",
        "a b",
        "a\\n",
        "echo ",
    ],
)
def test_model_names(served, name):
    for path in ("/v1/streams", "/v1/admission/check"):
        problem(post(served, with_field("model", f'"{name}"'), path), 422, "invalid_request")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "null",
        "[]",
        "3",
        '"x"',
        "{",
        "{}",
        '{"model"}',
        "{'model': 'echo'}",
        "\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        "[" * 10_000,
    ],
    ids=lambda text: repr(text[:10]),
)
def test_bodies_that_are_no_registration(served, text):
    problem(post(served, text), 422, "invalid_request")


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("dedline_ms", "1", "dedline_ms: there is no such field; did you mean deadline_ms?"),
        ("swaping", "true", "swaping: there is no such field; did you mean swapping?"),
        ("priority", "1", "priority: there is no such field"),
        ("fps", '5, "period_ms": 1', "body: give exactly one of period_ms and fps"),
        ("frames", "0", "frames: it must be greater than or equal to 1"),
        ("model", "3", "model: it must be a valid string"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(served, field, text, said):
    assert problem(post(served, with_field(field, text)), 422, "invalid_request")["detail"] == said


def test_a_field_that_is_missing_is_named(served):
    body = '{"model": "m", "fps": 1, "deadline_ms": 1}'
    assert problem(post(served, body), 422, "invalid_request")["detail"] == "shape: it is missing"


def test_exactly_one_rate(served):
    both = json.dumps({**GOOD, "fps": 5})
    neither = json.dumps({key: value for key, value in GOOD.items() if key != "period_ms"})
    for body in (both, neither):
        assert "exactly one" in problem(post(served, body), 422, "invalid_request")["detail"]


def test_each_fault_is_named(served):
    body = json.dumps({"model": "a/b", "shape": [8, 0, 3], "deadline_ms": -1, "colour": "red"})
    document = problem(post(served, body), 422, "invalid_request")
    assert {error["field"] for error in document["errors"]} == {"model", "shape.1", "deadline_ms", "colour"}


def test_many_faults_make_a_small_answer(served):
    body = json.dumps({f"{'k' * 40}{number}": number for number in range(1_000)})
    answer = post(served, body)
    problem(answer, 422, "invalid_request")
    assert len(answer.content) < 10_000


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"]
)
def test_json_must_be_sent_as_json(served, content_type):
    document = problem(post(served, json.dumps(GOOD), content_type=content_type), 415, "unsupported_media_type")
    assert "application/json" in document["detail"]


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_json_with_parameters_is_json(served, content_type):
    answer = post(served, json.dumps({**GOOD, "model": "nosuch"}), content_type=content_type)
    problem(answer, 404, "unknown_model")


@pytest.mark.parametrize(
    ("query", "good"),
    [
        ("", True),
        ("after=-1&timeout_ms=0", True),
        ("after=-2", False),
        ("after=1.5", False),
        ("after=x", False),
        ("after=1" + "0" * 400, False),
        ("after=9223372036854775808", False),
        ("timeout_ms=-1", False),
        ("timeout_ms=nan", False),
        ("timeout_ms=inf", False),
        ("timeout_ms=1e308", False),
        ("timeout=5", False),
    ],
)
def test_the_query_of_a_long_poll(served, query, good):
    with served.stream() as stream:
        url = f"{stream['results_url']}?{query}" if query else f"{stream['results_url']}?timeout_ms=0"
        answer = served.http.get(url)
        if good:
            assert answer.status_code == 200
        else:
            problem(answer, 422, "invalid_request")


@pytest.mark.parametrize("query", ["wait=maybe", "wait=", "wiat=false", "wait=False", "wait=false&x=1", "%ff"])
def test_the_query_of_a_frames_call(served, query):
    with served.stream() as stream:
        problem(served.http.post(f"{stream['frames_url']}?{query}", content=bytes(192)), 422, "invalid_request")
        assert served.http.get(f"/v1/streams/{stream['stream_id']}").json()["accepted"] == 0


def test_paths_and_methods_that_are_not_there(served):
    for path in (
        "/",
        "/v1",
        "/v1/streams/",
        "/v1/nosuch",
        "/v1/streams/a/b/c",
        "//v1/streams",
        "/v1/streams/%2fetc",
        "/redoc",
    ):
        problem(served.http.get(path), 404, "not_found")
    for method, path in (
        ("PUT", "/v1/streams"),
        ("DELETE", "/v1/models"),
        ("GET", "/v1/streams/x/frames"),
        ("POST", "/metrics"),
    ):
        answer = served.http.request(method, path)
        document = problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"]
        assert answer.headers["allow"] in document["detail"]


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/v1/streams", "GET, POST"), ("/v1/streams/x", "DELETE, GET"), ("/v1/admission/check", "POST")],
)
def test_all_methods_of_a_path_are_named(served, path, methods):
    assert served.http.put(path).headers["allow"] == methods


def test_bounds_of_the_schema_are_those_of_the_engine():
    """Whatever the schema lets through, the engine's own types take."""
    for period in ({"period_ms": 0.1}, {"period_ms": 86_400_000}, {"fps": 10_000}, {"fps": 1 / 86_400}):
        for deadline_ms in (0.1, 86_400_000):
            most = {"start_in_ms": 86_400_000, "jitter_ms": 86_400_000, "burst": 1_024}
            request = StreamRequest(model="m", shape=(1,), deadline_ms=deadline_ms, **most, **period)
            assert request.spec().deadline_ns == round(deadline_ms * 1e6)
            assert request.spec().jitter_ns == 86_400 * 10**9


def test_a_fault_of_our_own_is_logged_once_and_told_nobody(served, monkeypatch, caplog):
    def fail():
        raise RuntimeError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(served.gateway, "streams", fail)
        answer = served.http.get("/v1/streams")
    document = problem(answer, 500, "internal")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert set(document) == {"type", "title", "status", "code", "detail"}
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "secret" in str(record.exc_info[1])
