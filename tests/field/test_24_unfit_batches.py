"""Report 24: models without a batch axis, and models whose batches fail although their configuration promises them."""

import time

import pytest

from tests.api.served import SMALL, Served, echo
from tests.field.support import send_together
from tests.stand_in import Model

#: A picture in a layout with an axis of its own for the one picture that it is.
WHOLE = (1, 3, 8, 8)
TIMES = {SMALL: {1: 3.0, 2: 4.0, 4: 5.0, 8: 6.0}}


def register(served, count, **fields):
    urls = []
    for _ in range(count):
        answer = served.register(**({"period_ms": 150, "deadline_ms": 400, "jitter_ms": 75} | fields))
        assert answer.status_code == 201, answer.text
        urls.append(answer.json()["frames_url"])
    return urls


def pictures(answers):
    """What came back, from each answer."""
    for answer in answers:
        assert answer.status_code == 200, answer.text
    return [echo(answer.json()["results"][0])[0] for answer in answers]


def test_without_a_batch_axis_each_frame_is_a_call_of_its_own():
    model = Model("echo", max_batch_size=0, dims=WHOLE)
    with Served(model, times={WHOLE: {1: 3.0}}, scheduling={"early_dispatch": False}) as served:
        urls = register(served, 4, shape=WHOLE)
        served.call(served.stand_in.calls.clear)
        assert pictures(send_together(served, urls, [1, 2, 3, 4])) == [1, 2, 3, 4]
        assert [call.shape for call in served.stand_in.log("infer")] == [WHOLE] * 4


@pytest.mark.parametrize("fault", ["error above one row", "one row for four"])
def test_a_model_whose_batches_fail_falls_back_to_single_calls(fault):
    with Served(Model("echo", max_batch_size=8), times=TIMES, scheduling={"early_dispatch": False}) as served:
        urls = register(served, 4)
        if fault == "error above one row":
            served.call(setattr, served.stand_in, "error", lambda call: "Got invalid dims" if call.rows > 1 else "")
        else:
            served.call(setattr, served.stand_in, "reply_rows", lambda rows: 1)
        for number in range(6):
            values = [10 * number + n for n in range(4)]
            assert pictures(send_together(served, urls, values)) == values
            time.sleep(0.15)
        [model] = served.http.get("/v1/models").json()["models"]
        assert model["versions"][0]["single_frame_shapes"] == [list(SMALL)]
        assert served.counters()["framegate_single_frame_shapes", "echo"] == 1
        served.call(served.stand_in.calls.clear)
        assert pictures(send_together(served, urls, [1, 2, 3, 4])) == [1, 2, 3, 4]
        assert [call.rows for call in served.stand_in.log("infer")] == [1] * 4
        states = served.http.get("/v1/streams").json()["streams"]
        assert {state["promise"] for state in states} == {"kept"}, "four single calls still fit"
        assert not any(state["suspect"] for state in states)


def test_admission_counts_on_single_calls_from_then_on():
    """Batches of four take as long as one frame. One by one, four cameras at 20 fps ask for 1.2 of the device."""
    times = {SMALL: dict.fromkeys((1, 2, 3, 4), 15.0)}
    with Served(Model("echo", max_batch_size=8), times=times, scheduling={"early_dispatch": False}) as served:
        contract = {"period_ms": 50, "deadline_ms": 400, "jitter_ms": 0}
        urls = register(served, 4, **contract)
        served.call(setattr, served.stand_in, "error", lambda call: "Got invalid dims" if call.rows > 1 else "")
        for number in range(4):
            answers = send_together(served, urls, [10 * number + n for n in range(4)])
            assert {answer.status_code for answer in answers} == {200}
            time.sleep(0.1)
        states = served.http.get("/v1/streams").json()["streams"]
        assert {state["promise"] for state in states} == {"broken"}
        assert all(state["promise_evidence"]["reason"] for state in states)
        assert served.counters()["framegate_promise_broken",] == 1
        refused = served.register(**contract)
        assert refused.status_code == 409, refused.text
        for state in states[1:]:
            served.http.delete(f"/v1/streams/{state['stream_id']}")
        deadline = time.monotonic() + 5
        while served.counters()["framegate_promise_broken",]:
            assert time.monotonic() < deadline, "what is left fits, and is promised again"
            time.sleep(0.02)
        [left] = served.http.get("/v1/streams").json()["streams"]
        assert (left["promise"], left["promise_evidence"]) == ("kept", None)
