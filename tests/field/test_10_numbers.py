"""Report 10: numbers that are none, in every field that takes one, whatever fields there are."""

import json

import pytest

from gateway.api.requests import StreamRequest
from tests.api.served import Served, problem
from tests.api.test_validation import BAD_TIMES

GOOD = {"model": "echo", "shape": [8, 8, 3], "period_ms": 200, "deadline_ms": 400}
#: No number at all, in any field. Zero and what may be absent are each field's own affair.
NEVER = [text for text in BAD_TIMES if text not in {"0", "-0.0", "null", "1e-12", "1e-5", "1e308", "86400000.1"}]


def numeric_fields():
    """Return the fields that take a number, with the most that each takes."""
    found = {}
    for name, schema in StreamRequest.model_json_schema()["properties"].items():
        for option in schema.get("anyOf", [schema]):
            if option.get("type") in {"number", "integer"}:
                found[name] = option["maximum"]  # each has one
    return found


@pytest.fixture(scope="module")
def served():
    with Served() as gateway:
        yield gateway


def post(served, field, text):
    fields = {name: json.dumps(value) for name, value in GOOD.items()}
    if field == "fps":
        del fields["period_ms"]
    body = "{" + ", ".join(f'"{name}": {value}' for name, value in {**fields, field: text}.items()) + "}"
    return served.http.post("/v1/streams", content=body, headers={"content-type": "application/json"})


def test_every_number_of_a_registration_is_finite_and_bounded(served):
    fields = numeric_fields()
    assert {"period_ms", "deadline_ms", "fps", "frames", "burst", "jitter_ms", "start_in_ms"} <= set(fields)
    before = served.http.get("/v1/streams").json()
    served.stand_in.calls.clear()
    for field, most in fields.items():
        for text in [*NEVER, "1e309", "-1e-300", str(2 * most + 1), "1e308"]:
            document = problem(post(served, field, text), 422, "invalid_request")
            json.dumps(document, allow_nan=False)
    assert served.http.get("/v1/streams").json() == before
    assert served.stand_in.calls == []
    with served.stream():
        pass
