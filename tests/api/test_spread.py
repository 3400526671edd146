"""One body whose frames end up in more batches than they would fill: best effort goes in small jobs beside a camera."""

import json

import pytest

from tests.api.served import FRAME, SMALL, Served

#: Batches of four take more than may hold up a camera's job of one frame.
TIMES = {SMALL: {1: 10.0, 2: 14.0, 4: 24.0}}
ROWS = 16


def numbered(rows):
    return b"".join(bytes([row]) * len(FRAME) for row in range(rows))


@pytest.fixture
def served():
    with Served(times=TIMES, scheduling={"policing": True, "default_jitter_ms": 0}) as served:
        assert served.register(period_ms=200, deadline_ms=200).status_code == 201
        yield served
        assert served.http.get("/v2/health/live").status_code == 200
        assert served.call(lambda: served.gateway.arena.batches) == 0


@pytest.mark.parametrize(
    "fields",
    [{"service_class": "best_effort"}, {"on_excess": "best_effort", "period_ms": 1000}],
    ids=["class", "surplus"],
)
def test_a_body_of_a_stream(served, fields):
    with served.stream(**{"deadline_ms": 5000, "period_ms": 200} | fields) as stream:
        results = served.http.post(stream["frames_url"], content=numbered(ROWS)).json()["results"]
    assert [result["outputs"]["stamp"]["data"][0] for result in results] == list(range(ROWS))
    assert {result["outcome"] for result in results} == {"met"}


def test_a_call_of_several_rows(served):
    data = numbered(ROWS)
    tensor = {
        "name": "frames",
        "datatype": "UINT8",
        "shape": [ROWS, *SMALL],
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"inputs": [tensor], "outputs": [{"name": "stamp"}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = served.http.post("/v2/models/echo/infer", content=head + data, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][0]["data"][::3] == list(range(ROWS))
