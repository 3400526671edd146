"""The Open Inference Protocol, on the real gateway in front of the stand-in."""

import contextlib
import json
import socket
import threading
import time

import numpy as np
import pytest

from gateway.api.v2 import parsing
from gateway.core.types import Outcome
from tests.api.served import FRAME, LARGE, SMALL, Served, v2_error, wait_until
from tests.api.v2_support import HEADER, binary, infer, outputs_of, tensor
from tests.stand_in import Model


def frames(*values):
    return b"".join(bytes([value]) * len(FRAME) for value in values)


def small(rows, **fields):
    return tensor([rows, *SMALL], size=rows * len(FRAME), **fields)


def calls(served):
    return served.stand_in.log("infer")


# ---------------------------------------------------------------- answers


def test_binary_rows_come_back_with_the_id(served):
    answer = infer(served, binary([small(3)], frames(1, 2, 3), identifier="abc"))
    document, outputs = outputs_of(answer)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert (document["id"], document["model_name"], document["model_version"]) == ("abc", "echo", "1")
    assert "parameters" not in document
    assert outputs["echo"] == frames(1, 2, 3)
    assert [output["shape"] for output in document["outputs"]] == [[3, *SMALL], [3, 3]]


def test_json_both_ways_is_flat(served):
    call = {"json": {"inputs": [tensor([1, *SMALL], np.full(SMALL, 9).tolist())], "outputs": [{"name": "stamp"}]}}
    answer = infer(served, call)
    document, outputs = outputs_of(answer)
    assert answer.headers["content-type"] == "application/json"
    assert HEADER not in answer.headers
    assert "id" not in document
    assert list(outputs) == ["stamp"]
    assert outputs["stamp"][:2] == [9, 1]


def test_each_output_has_the_form_that_was_asked_for(served):
    wanted = [{"name": "stamp", "parameters": {"binary_data": False}}, {"name": "echo"}]
    _, outputs = outputs_of(infer(served, binary([small(1)], frames(4), outputs=wanted)))
    assert outputs["stamp"][0] == 4
    assert outputs["echo"] == frames(4)
    call = {"json": {"inputs": [tensor([1, *SMALL], [5] * 192)]}}
    call["json"]["outputs"] = [{"name": "echo", "parameters": {"binary_data": True}}, {"name": "stamp"}]
    _, outputs = outputs_of(infer(served, call))
    assert outputs["echo"] == frames(5)
    assert outputs["stamp"][0] == 5


def test_more_rows_than_a_batch_holds_are_several_jobs(served):
    before = len(calls(served))
    _, outputs = outputs_of(infer(served, binary([small(20)], frames(*range(20)))))
    assert outputs["echo"] == frames(*range(20))
    assert [call.rows for call in calls(served)[before:]] == [8, 8, 4]


def test_calls_share_batches(served):
    served.stand_in.delay_s = lambda call: 0.2
    answers = {}

    def one(value):
        answers[value] = infer(served, binary([small(1)], frames(value)))

    before = len(calls(served))
    threads = [threading.Thread(target=one, args=(value,)) for value in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(outputs_of(answers[value])[1]["echo"] == frames(value) for value in range(6))
    assert len(calls(served)) - before <= 3


def test_what_is_not_profiled_goes_through_as_it_came(served):
    shape = [1, 5, 7, 3]
    before = len(calls(served))
    call = binary([tensor(shape, size=105)], bytes(105), outputs=[{"name": "echo"}])
    document, outputs = outputs_of(infer(served, call))
    assert document["outputs"][0]["shape"] == shape
    assert outputs["echo"] == bytes(105)
    [job] = calls(served)[before:]
    assert (job.shape, job.way) == (tuple(shape), "message")
    assert len(served.gateway._parts.inference.opaque) == 0


def test_parameters_of_ones_own_go_to_the_model(served):
    _, outputs = outputs_of(infer(served, binary([small(2)], frames(1, 2), threshold=7)))
    assert outputs["echo"] == frames(1, 2)
    assert calls(served)[-1].parameters == {"threshold": 7}
    assert calls(served)[-1].way == "message"


def test_what_triton_refuses_of_an_opaque_call_is_said_in_its_words(served):
    served.stand_in.error = lambda call: "this model is not in the mood"
    answer = infer(served, binary([tensor([1, 5, 7, 3], size=105)], bytes(105)))
    assert "not in the mood" in v2_error(answer, 502, "frame_failed")["error"]


def test_hidden_streams_are_not_listed_but_counted(served):
    before = served.counters()["framegate_frames_accepted_total", "echo"]
    outputs_of(infer(served, binary([small(2)], frames(1, 2))))
    counters = served.counters()
    assert counters["framegate_frames_accepted_total", "echo"] == before + 2
    assert served.http.get("/v1/streams").json()["streams"] == []
    assert not [key for key in counters if key[0].startswith("framegate_stream_")]
    hidden = list(served.gateway._parts.delivery.streams)
    assert hidden
    assert served.http.get(f"/v1/streams/{hidden[0]}").status_code == 404


# ---------------------------------------------------------------- real time


def test_a_deadline_makes_it_real_time(served):
    document, outputs = outputs_of(infer(served, binary([small(2)], frames(1, 2), deadline_ms=500)))
    assert outputs["echo"] == frames(1, 2)
    said = document["parameters"]
    assert said["outcome"] == "met"
    assert 0 < said["latency_ms"] < 500
    assert said["batch"] == 2


def test_a_deadline_that_cannot_be_kept_is_refused_with_evidence(served):
    document = v2_error(infer(served, binary([small(1)], FRAME, deadline_ms=5)), 422, "deadline_infeasible")
    assert document["evidence"]["reason"] == "deadline_infeasible"
    with served.stream(shape=LARGE, period_ms=60, deadline_ms=130, frames=50):
        document = v2_error(infer(served, binary([small(8)], FRAME * 8, deadline_ms=25)), 409, "not_schedulable")
        assert document["evidence"]["phase"] >= 1
    assert served.counters()["framegate_refused_total", "not_admitted"] >= 2


def test_nothing_is_promised_to_what_is_not_profiled(served):
    call = binary([tensor([1, 5, 7, 3], size=105)], bytes(105), deadline_ms=500)
    assert "framegate profile" in v2_error(infer(served, call), 409, "not_profiled")["error"]


def test_an_opaque_call_is_refused_while_promises_could_not_bear_it(served):
    call = binary([tensor([1, 5, 7, 3], size=105)], bytes(105))
    with served.stream():
        before = len(calls(served))
        document = v2_error(infer(served, call), 409, "not_profiled")
        assert document["may_block_ms"] < 1_000
        assert "UNPROFILED_MS" in document["error"]
        assert len(calls(served)) == before
    wait_until(lambda: infer(served, call).status_code == 200, "it is not served when the stream has gone")


def test_calls_do_not_stand_in_the_way_of_streams(served):
    outputs_of(infer(served, binary([tensor([1, 5, 7, 3], size=105)], bytes(105))))
    outputs_of(infer(served, binary([tensor([1, *LARGE], size=768)], bytes(768))))
    # Its job may be held up by 40 ms by neither: no test counts the calls' streams.
    with served.stream(period_ms=30, deadline_ms=60) as stream:
        assert stream["admission"]["test"] == "sporadic"


# ---------------------------------------------------------------- time-outs and callers that go


def test_a_time_out_is_answered_on_time(served):
    served.stand_in.delay_s = lambda call: 0.6
    first = threading.Thread(target=lambda: infer(served, binary([small(1)], FRAME)))
    first.start()
    served.wait_until_running()
    began = time.monotonic()
    document = v2_error(infer(served, binary([small(1)], FRAME, timeout=100_000)), 504, "frame_expired")
    took = time.monotonic() - began
    first.join()
    assert 0.1 <= took < 0.4
    assert document["outcome"] == "expired"


@pytest.mark.parametrize("opaque", [False, True])
def test_a_caller_that_goes_leaves_the_queue(served, opaque):
    shape = [1, 5, 7, 3] if opaque else [1, *SMALL]
    size = int(np.prod(shape))
    served.stand_in.delay_s = lambda call: 0.4
    before = len(calls(served))
    cancelled = served.counters()["framegate_frames_total", "echo", "cancelled"]
    first = threading.Thread(target=lambda: infer(served, binary([small(1)], FRAME)))
    first.start()
    served.wait_until_running()
    call = binary([tensor(shape, size=size)], bytes(size))
    with contextlib.closing(served.connect()) as connection:
        head = f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(call['content'])}\r\n"
        connection.sendall((head + f"{HEADER}: {call['headers'][HEADER]}\r\n\r\n").encode() + call["content"])
        wait_until(lambda: served.view().models["echo"].in_flight == 2, "the second does not wait")
        connection.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: served.view().models["echo"].in_flight == 1, "the second still waits")
    first.join()
    assert len(calls(served)) == before + 1
    assert served.counters()["framegate_frames_total", "echo", Outcome.CANCELLED] == cancelled + 1
    assert served.call(lambda: len(served.gateway._parts.inference.opaque)) == 0


def test_calls_that_wait_are_bounded():
    with Served(best_effort={"max_waiting": 3}) as served:
        served.stand_in.delay_s = lambda call: 0.5
        threads = [threading.Thread(target=infer, args=(served, binary([small(1)], FRAME))) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(served.gateway._parts.delivery.tickets) == 4, "they do not wait")
        answer = infer(served, binary([small(1)], FRAME))
        said = v2_error(answer, 503, "best_effort_full")["error"]
        assert "3" in said
        assert "FRAMEGATE_BEST_EFFORT__MAX_WAITING" in said
        assert int(answer.headers["retry-after"]) >= 1
        for thread in threads:
            thread.join()


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"parameters": {"priority": 1}}, "deadline_ms"),
        ({"parameters": {"sequence_id": 7, "sequence_start": True}}, "sequences"),
        ({"parameters": {"sequence_id": "a"}}, "sequences"),
        ({"parameters": {"framegate_delay_ms": 7}}, "reserved"),
        ({"outputs": [{"name": "echo", "parameters": {"classification": 2}}]}, "classification"),
        ({"outputs": [{"name": "echo", "parameters": {"shared_memory_region": "x"}}]}, "shared memory"),
    ],
)
def test_what_is_not_supported_is_refused_with_a_reason(served, fields, word):
    before = len(calls(served))
    call = {"json": {"inputs": [tensor([1, *SMALL], [0] * 192)], **fields}}
    assert word in v2_error(infer(served, call), 400, "not_supported")["error"]
    assert len(calls(served)) == before


def test_client_shared_memory_is_refused(served):
    call = {"json": {"inputs": [tensor([1, *SMALL], shared_memory_region="x", shared_memory_byte_size=192)]}}
    assert "binary data" in v2_error(infer(served, call), 400, "not_supported")["error"]


def test_parameters_that_say_nothing_are_as_if_they_were_not_there(served):
    nothing = {"priority": 0, "sequence_id": 0, "sequence_start": False, "sequence_end": False, "timeout": 0}
    outputs_of(infer(served, {"json": {"inputs": [tensor([1, *SMALL], [0] * 192)], "parameters": nothing}}))


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"inputs": []},
        {"inputs": {}},
        {"inputs": [1]},
        {"inputs": [tensor([1, *SMALL], [0] * 192, name="frame")]},
        {"inputs": [tensor([1, *SMALL], [0] * 192, name="")]},
        {"inputs": [tensor([1, *SMALL], [0] * 192, name="f" * 300)]},
        {"inputs": [tensor([1, *SMALL], [0] * 192), tensor([1, *SMALL], [0] * 192)]},
        {"inputs": [tensor([1, *SMALL], [0] * 192, datatype="INT8")]},
        {"inputs": [tensor([1, *SMALL], [0] * 192, datatype="UINT9")]},
        {"inputs": [tensor([1, *SMALL], [0] * 192, datatype=["UINT8"])]},
        {"inputs": [tensor([8, 8, 3], [0] * 192)]},
        {"inputs": [tensor([1, 8, 6, 4], [0] * 192)]},
        {"inputs": [tensor([-1, *SMALL], [0] * 192)]},
        {"inputs": [tensor([1.0, *SMALL], [0] * 192)]},
        {"inputs": [tensor([1, *SMALL], [0] * 191)]},
        {"inputs": [tensor([1, *SMALL], [0] * 191 + [256])]},
        {"inputs": [tensor([1, *SMALL], [0] * 191 + [-1])]},
        {"inputs": [tensor([1, *SMALL], [0] * 191 + [0.5])]},
        {"inputs": [tensor([1, *SMALL], [0] * 191 + [None])]},
        {"inputs": [tensor([1, *SMALL], [0] * 191 + ["0"])]},
        {"inputs": [tensor([1, *SMALL], [[0] * 96, 96])]},
        {"inputs": [tensor([1, *SMALL], 0)]},
        {"inputs": [tensor([1, *SMALL])]},
        {"inputs": [tensor([1, *SMALL], [0] * 192, unknown=1)]},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "outputs": [{"name": "nothing"}]},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "outputs": [{"name": "echo"}, {"name": "echo"}]},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "outputs": [{"name": "echo", "parameters": {"binary_data": 1}}]},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "id": ["x"]},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "id": "x" * 2_000},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "parameters": []},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "parameters": {"deadline_ms": 0}},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "parameters": {"deadline_ms": "33"}},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "parameters": {"deadline_ms": True}},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "parameters": {"deadline_ms": 1e300}},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "parameters": {"timeout": -1}},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "parameters": {"timeout": 1e6, "deadline_ms": 50}},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "parameters": {"own": []}},
        {"inputs": [tensor([1, *SMALL], [0] * 192)], "parameters": {"own": 2**63}},
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused_before_it_is_run(served, document):
    before = len(calls(served))
    v2_error(infer(served, {"content": json.dumps(document).encode()}), 400, "invalid_inference")
    assert len(calls(served)) == before


@pytest.mark.parametrize("text", [b"", b"nonsense", b"[" * 2_000, b'{"inputs": NaN}', b'{"id": "\xff"}'])
def test_what_is_not_json_is_refused(served, text):
    v2_error(infer(served, {"content": text}), 400, "invalid_inference")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity, gzip", "br"])
def test_compressed_bodies_are_refused(served, encoding):
    answer = infer(served, {"content": b"x", "headers": {"Content-Encoding": encoding}})
    v2_error(answer, 415, "unsupported_media_type")


def test_rows_beyond_what_may_be_sent_at_once_are_too_many(served):
    call = binary([small(2_000)], FRAME * 2_000)
    v2_error(infer(served, call), 413, "body_too_large")


def test_a_broken_model_is_an_error_in_tritons_form(served):
    served.stand_in.error = lambda call: "out of luck" if call.rows else ""
    answer = infer(served, binary([small(1)], FRAME))
    served.stand_in.error = lambda call: ""
    assert v2_error(answer, 502, "frame_failed")["reason"]
    wait_until(lambda: infer(served, binary([small(1)], FRAME)).status_code == 200, "it is not repaired")


@pytest.mark.parametrize("shape", [SMALL, (5, 7, 3)], ids=["frames", "opaque"])
def test_a_triton_that_goes_under_a_call_is_not_there(shape):
    with Served() as served:
        served.stand_in.delay_s = lambda call: 20.0
        size = int(np.prod(shape))
        answers = []
        call = binary([tensor([1, *shape], size=size)], bytes(size))
        waiting = threading.Thread(target=lambda: answers.append(infer(served, call)))
        waiting.start()
        served.wait_until_running()
        served.run(served.stand_in.stop())
        waiting.join()
        v2_error(answers[0], 503, "triton_unavailable")
        assert int(answers[0].headers["retry-after"]) >= 1


def test_streams_of_calls_are_not_counted_as_registered():
    with Served(limits={"max_streams": 1}) as served:
        outputs_of(infer(served, binary([small(1)], FRAME)))
        outputs_of(infer(served, binary([tensor([1, 5, 7, 3], size=105)], bytes(105))))
        with served.stream(period_ms=1_000, deadline_ms=900):
            outputs_of(infer(served, binary([small(1)], FRAME, deadline_ms=500)))
            v2_error(served.http.get("/v2/none"), 404, "not_found")
            assert served.register().json()["code"] == "too_many_streams"


def test_other_methods_and_paths(served):
    answer = served.http.get("/v2/models/echo/infer")
    v2_error(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
    v2_error(served.http.get("/v2/nothing"), 404, "not_found")
    v2_error(served.http.post("/v2/models/echo", json={}), 405, "method_not_allowed")
    for path in ("repository/index", "repository/models/echo/load", "systemsharedmemory/status", "trace/setting"):
        v2_error(served.http.post(f"/v2/{path}", json={}), 400, "not_supported")
    v2_error(served.http.get("/v2/cudasharedmemory/region/x/status"), 400, "not_supported")


# ---------------------------------------------------------------- what is said of server and models


def test_the_server_says_what_it_can(served):
    said = served.http.get("/v2").json()
    assert said["name"] == "framegate"
    assert "binary_tensor_data" in said["extensions"]
    assert "system_shared_memory" not in said["extensions"]


def test_metadata_config_and_statistics():
    with Served(Model("echo", versions=("1", "3"))) as served:
        said = served.http.get("/v2/models/echo").json()
        assert said["versions"] == ["1", "3"]
        assert said["inputs"] == [{"name": "frames", "datatype": "UINT8", "shape": [-1, -1, -1, 3]}]
        assert served.http.get("/v2/models/echo/versions/1").json()["versions"] == ["1"]
        config = served.http.get("/v2/models/echo/versions/3/config").json()
        assert (config["name"], config["max_batch_size"]) == ("echo", 64)
        assert outputs_of(infer(served, binary([small(1)], FRAME)))[0]["model_version"] == "3"
        assert outputs_of(infer(served, binary([small(1)], FRAME), version=1))[0]["model_version"] == "1"
        for path in ("/v2/models/stats", "/v2/models/echo/stats", "/v2/models/echo/versions/1/stats"):
            [stats] = served.http.get(path).json()["model_stats"]
            assert (stats["name"], type(stats["inference_count"])) == ("echo", int)
        for path in ("/v2/models/echo/ready", "/v2/models/echo/versions/3/ready"):
            assert served.http.get(path).status_code == 200
        v2_error(served.http.get("/v2/models/echo/versions/2/ready"), 404, "unknown_model")


def test_without_triton_it_says_so():
    served = Served(with_triton=False).start(ready=False)
    try:
        for path in ("/v2/models/echo", "/v2/models/echo/ready", "/v2/models/stats"):
            v2_error(served.http.get(path), 503, "triton_unavailable")
        answer = infer(served, binary([small(1)], FRAME))
        v2_error(answer, 503, "triton_unavailable")
        assert "retry-after" in answer.headers
        assert served.http.get("/v2").status_code == 200
    finally:
        served.stop()


def test_a_model_that_is_not_served_is_not_loaded():
    with Served(Model("echo"), Model("other", loaded=False), served=("echo",)) as served:
        v2_error(served.http.get("/v2/models/other/ready"), 409, "model_not_loaded")
        v2_error(infer(served, binary([small(1)], FRAME), model="other"), 409, "model_not_loaded")


# ---------------------------------------------------------------- models without a batch axis


def test_without_a_batch_axis_the_tensor_is_the_frame():
    with Served(Model("echo", max_batch_size=0), times={SMALL: {1: 10.0}}) as served:
        document, outputs = outputs_of(infer(served, binary([tensor(SMALL, size=192)], frames(3))))
        assert document["outputs"][0]["shape"] == list(SMALL)
        assert outputs["echo"] == frames(3)
        v2_error(infer(served, binary([small(1)], frames(3))), 400, "invalid_inference")
        document, outputs = outputs_of(infer(served, binary([tensor([5, 7, 3], size=105)], bytes(105))))
        assert document["outputs"][0]["shape"] == [5, 7, 3]


# ---------------------------------------------------------------- large JSON


def test_large_json_is_parsed_elsewhere(served):
    shape = [8, 64, 64, 3]
    pixels = np.arange(np.prod(shape)) % 251
    call = {"json": {"inputs": [tensor(shape, pixels.tolist())], "outputs": [{"name": "echo"}]}}
    assert len(json.dumps(call["json"])) > parsing.AT_ONCE_BYTES
    answer = infer(served, call)
    assert "content-length" not in answer.headers, "a large answer is sent in pieces"
    _, outputs = outputs_of(answer)
    assert outputs["echo"] == pixels.tolist()
    call["json"]["inputs"][0]["data"][-1] = 256
    v2_error(infer(served, call), 400, "invalid_inference")


def test_the_process_for_large_json_may_die(served):
    call = {"json": {"inputs": [tensor([8, 64, 64, 3], [7] * (8 * 64 * 64 * 3))], "outputs": [{"name": "stamp"}]}}
    outputs_of(infer(served, call))
    process = served.app.state.api.parser.child.process
    process.kill()
    process.wait()
    outputs_of(infer(served, call))
    assert served.app.state.api.parser.child.process.pid != process.pid


def test_json_over_the_limit_is_refused_unread():
    with Served(limits={"max_tensor_json_bytes": 100_000}) as served:
        answer = infer(served, {"content": b"[" + b"0," * 100_000})
        assert v2_error(answer, 413, "body_too_large")["limit_bytes"] == 100_000
        # Binary data do not count.
        outputs_of(infer(served, binary([small(600)], FRAME * 600)))
        head = b" " * 100_001
        answer = infer(served, {"content": head + b"x", "headers": {HEADER: str(len(head))}})
        assert "binary data" in v2_error(answer, 413, "body_too_large")["error"]
