"""Start, readiness and the end of a server. Each test has a gateway of its own, one after the other."""

import os
import signal
import threading
import time
from pathlib import Path

from gateway.api.server import WRITE_S
from tests.api.served import FRAME, SMALL, Served, books, problem, wait_until
from tests.api.test_bad_clients import head, read_answer
from tests.api.test_impatience import keep_results
from tests.stand_in import Model


def shm_files():
    """Return this process's regions."""
    return [path.name for path in Path("/dev/shm").glob(f"framegate-{os.getpid()}-*")]


def test_without_triton_it_lives_and_says_why_it_is_not_ready():
    """Nothing listens at Triton's address; then something does, and it becomes ready by itself."""
    served = Served(with_triton=False).start(ready=False)
    try:
        assert served.http.get("/v2/health/live").status_code == 200
        answer = served.http.get("/v2/health/ready")
        problem(answer, 503, "triton_unavailable")
        assert answer.headers["retry-after"]
        problem(served.register(), 503, "triton_unavailable")
        assert served.http.get("/v1/profile").status_code == 200
        assert served.http.get("/v1/models").json()["models"] == []
        assert served.counters()["framegate_triton_up",] == 0
        served.run(served.stand_in.start())
        wait_until(lambda: served.http.get("/v2/health/ready").status_code == 200, "it does not become ready")
        assert served.counters()["framegate_ready",] == 1
        with served.stream() as stream:
            assert served.http.post(stream["frames_url"], content=FRAME).status_code == 200
    finally:
        served.stop()


def test_ready_does_not_follow_a_model_that_loads():
    slow = Model("slow", loaded=False, load_delay_s=1.0)
    with Served(Model("echo"), slow, served=("echo",)) as served:
        served.stand_in.live = True
        load = threading.Thread(target=lambda: served.run(served.gateway._parts.client.load("slow", 10)))
        load.start()
        while load.is_alive():
            assert served.http.get("/v2/health/live").status_code == 200
            assert served.http.get("/v2/health/ready").status_code == 200
        load.join()


def test_models_say_what_can_be_admitted():
    broken = Model("broken", loaded=False, load_error="it is broken")
    with Served(Model("echo"), broken, Model("other", loaded=False)) as served:
        models = {model["name"]: model for model in served.http.get("/v1/models").json()["models"]}
    assert models["echo"]["state"] == "resident"
    [version] = models["echo"]["versions"]
    assert (version["version"], version["state"]) == ("1", "ready")
    assert version["profiled_shapes"] == [[8, 8, 3], [16, 16, 3]]
    assert models["broken"]["state"] == "failed"
    assert "it is broken" in models["broken"]["reason"]


def test_a_model_that_is_not_loaded():
    with Served(Model("echo"), Model("other", loaded=False), served=("echo",)) as served:
        problem(served.register(model="other"), 409, "model_not_loaded")


def test_there_can_be_too_many_streams():
    with Served(limits={"max_streams": 1}) as served, served.stream():
        answer = served.register()
        problem(answer, 503, "too_many_streams")
        assert answer.headers["retry-after"]


def test_a_batch_larger_than_the_arena_is_refused_at_registration():
    with Served(arena={"bytes": 4096}, times={SMALL: {1: 5.0}, (64, 64, 3): {1: 5.0}}) as served:
        document = problem(served.register(shape=[64, 64, 3]), 507, "arena_too_small")
        assert (document["needed_bytes"], document["arena_bytes"]) == (64 * 64 * 3, 4096)


def test_a_stop_answers_everybody_and_leaves_nothing():
    """The end comes while a call waits for frames, a long poll is open and the device is slow."""
    served = Served(server={"shutdown_grace_s": 1}).start()
    assert shm_files()
    answers = {}

    def ask(name, *arguments, **options):
        answers[name] = served.http.request(*arguments, **options)

    try:
        stream = served.register(deadline_ms=60_000, period_ms=30_000).json()
        served.stand_in.delay_s = lambda call: 1.5
        busy = threading.Thread(target=ask, args=("busy", "POST", stream["frames_url"]), kwargs={"content": FRAME})
        busy.start()
        served.wait_until_running()
        frames = threading.Thread(target=ask, args=("frames", "POST", stream["frames_url"]), kwargs={"content": FRAME})
        poll = threading.Thread(
            target=ask, args=("poll", "GET", stream["results_url"]), kwargs={"params": {"timeout_ms": 20_000}}
        )
        for thread in (frames, poll):
            thread.start()
        wait_until(lambda: books(served, stream)["accepted"] == 2, "the frame did not come in")
        ring = served.gateway.stream(stream["stream_id"]).ring
        wait_until(lambda: ring._waiters, "the poll did not come in")
        began = time.monotonic()
    finally:
        served.stop()
        for thread in (busy, frames, poll):
            thread.join(10)
    assert time.monotonic() - began < 5
    assert answers["poll"].status_code == 200
    assert answers["busy"].json()["results"][0]["outcome"] == "met"
    problem(answers["frames"], 503, "frame_cancelled")
    assert not shm_files()


def test_half_bodies_do_not_hold_up_a_stop(caplog):
    """Neither those that are being read, nor half headers, nor an answer that nobody takes."""
    served = Served(server={"shutdown_grace_s": 1}).start()
    connections = [served.connect() for _ in range(4)]
    try:
        stream = served.register().json()
        connections[0].sendall(head("POST", stream["frames_url"], "Content-Length: 192") + FRAME[:-1])
        connections[1].sendall(head("POST", "/v1/streams", "Transfer-Encoding: chunked") + b"1\r\n{\r\n")
        connections[2].sendall(b"GET /v2/health")
        served.http.post(stream["frames_url"], content=FRAME)
        keep_results(served, stream, 100, 1 << 18)
        connections[3].sendall(head("GET", stream["results_url"]))
        assert connections[3].recv(100).startswith(b"HTTP/1.1 200")
        wait_until(lambda: served.call(lambda: served.app.state.api.uploads.held_bytes) == 193, "they did not come in")
        began = time.monotonic()
    finally:
        served.stop()
    assert time.monotonic() - began < 1 + WRITE_S + 2
    for connection in connections[:2]:
        status, headers, document = read_answer(connection)
        assert (status, document["code"], headers["connection"]) == (503, "stopping", "close")
    for connection in connections:
        connection.close()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_an_impatient_stop_cuts_the_grace_short(caplog):
    """Two signals, as of one who presses Ctrl-C twice, while a call waits for its frames."""
    served = Served(server={"shutdown_grace_s": 30}).start()
    answers = []
    stream = served.register(deadline_ms=60_000, period_ms=30_000).json()
    served.stand_in.delay_s = lambda call: 1.0

    def send():
        answers.append(served.http.post(stream["frames_url"], content=FRAME * 2))

    busy = threading.Thread(target=send)
    busy.start()
    served.wait_until_running()
    waiting = threading.Thread(target=send)
    waiting.start()
    wait_until(lambda: books(served, stream)["accepted"] == 4, "the frames did not come in")
    began = time.monotonic()
    served.call(served.server.handle_exit, signal.SIGINT, None)
    time.sleep(0.3)
    served.call(served.server.handle_exit, signal.SIGINT, None)
    for thread in (busy, waiting):
        thread.join(10)
    served.stop()
    assert time.monotonic() - began < 5
    outcomes = [[result["outcome"] for result in answer.json()["results"]] for answer in answers]
    assert sorted(outcomes) == [["cancelled"] * 2, ["met"] * 2]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_while_it_stops_nothing_new_is_taken():
    with Served() as served, served.stream() as stream:
        served.call(served.app.state.api.draining.set)
        problem(served.register(), 503, "stopping")
        problem(served.http.post(stream["frames_url"], content=FRAME), 503, "stopping")
        problem(served.http.get("/v2/health/ready"), 503, "stopping")
        assert served.http.get("/v2/health/live").status_code == 200


def test_health_can_be_asked_without_a_body():
    with Served() as served:
        for name in ("live", "ready"):
            answer = served.http.head(f"/v2/health/{name}")
            assert (answer.status_code, answer.content) == (200, b"")
        served.call(served.app.state.api.draining.set)
        assert served.http.head("/v2/health/ready").status_code == 503


def test_a_gateway_that_cannot_start_says_so_without_a_traceback(caplog):
    served = Served(arena={"bytes": 1 << 40})
    served._thread.start()
    served._thread.join(20)
    assert served._failure.code == "arena_too_small"
    assert "Traceback" not in caplog.text
