"""Report 19: bodies of the wrong size, between good frames that come back bit for bit."""

import numpy as np
import pytest

from tests.api.served import Served, echo, problem
from tests.field.support import MB, POLICED

SHAPE = (64, 64, 3)
SIZE = 64 * 64 * 3


@pytest.fixture(scope="module")
def served():
    with Served(times={SHAPE: {1: 5.0, 2: 8.0}}, arena={"bytes": 16 * MB}, scheduling=POLICED) as gateway:
        yield gateway


def test_wrong_sizes_between_good_frames(served, length):
    random = np.random.default_rng(19)
    with served.stream(shape=SHAPE, period_ms=1_000, deadline_ms=2_000, burst=64) as stream:
        sent = 0
        for _ in range(length(3, 100)):
            for size in (SIZE - 1, SIZE + 1, 0, 1, 3 * SIZE // 2, 64 * 64):
                for chunked in (False, True):
                    body = bytes(size)
                    answer = served.http.post(stream["frames_url"], content=iter([body]) if chunked else body)
                    document = problem(answer, 400, "frame_size_mismatch")
                    assert (document["expected_bytes"], document["received_bytes"]) == (SIZE, size)
                good = random.bytes(SIZE)
                answer = served.http.post(stream["frames_url"], content=good)
                assert answer.status_code in (200, 429), answer.text
                if answer.status_code == 200:
                    [result] = answer.json()["results"]
                    assert echo(result) == good
                    assert result["seq"] == sent
                    sent += 1
        state = served.http.get(f"/v1/streams/{stream['stream_id']}").json()
        assert (state["state"], state["accepted"]) == ("active", sent)
        assert sent > 2
    assert served.call(lambda: served.gateway.arena.batches) == 0


def test_a_body_of_another_datatype_is_more_frames_than_the_contract_allows(served):
    """FP32 pixels are four times the bytes: four frames at once from a camera that announced one a period."""
    with served.stream(shape=SHAPE, period_ms=1_000, deadline_ms=400, jitter_ms=0) as stream:
        pixels = np.zeros(SHAPE, np.float32).tobytes()
        problem(served.http.post(stream["frames_url"], content=pixels), 429, "frame_surplus")
        state = served.http.get(f"/v1/streams/{stream['stream_id']}").json()
        assert (state["state"], state["accepted"]) == ("active", 0)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"shape": [-1, 64, 3]}, 422, "invalid_request"),
        ({"shape": [0, 64, 3]}, 422, "invalid_request"),
        ({"shape": [65_536, 65_536, 3]}, 422, "invalid_request"),
        ({"shape": [64, 64]}, 422, "shape_mismatch"),
        ({"shape": [3, 64, 64]}, 422, "shape_mismatch"),
        ({"dtype": "FP32"}, 422, "dtype_mismatch"),
        ({"dtype": "INT8"}, 422, "dtype_mismatch"),
    ],
)
def test_a_shape_or_type_that_is_none_is_refused_at_the_registration(served, fields, status, code):
    problem(served.register(**{"shape": SHAPE, **fields}), status, code)
    assert served.http.get("/v1/streams").json()["streams"] == []
