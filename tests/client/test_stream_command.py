"""`framegate stream` as a person runs it: a process, a real server on a socket, a clip."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time

import av
import numpy as np
import pytest
import typer
import uvicorn
from stub_gateway import StubGateway, problem

from gateway.client.address import parse_url
from gateway.client.agent import explain_refusal, flag_of
from gateway.client.command import EXIT_REFUSED, parse_shape
from gateway.client.types import CounterOffer, Evidence

RUN = "import typer; from gateway.client.command import stream; typer.run(stream)"


@pytest.fixture
def clip(tmp_path):
    path = tmp_path / "clip.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=20)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(20):
            image = np.full((48, 64, 3), 10 * index, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return path


@pytest.fixture
def served():
    """A stub gateway on a free port; `served(stub)` returns its URL, `served.stop()` ends it."""
    servers = []

    def serve(stub, port=0):
        server = uvicorn.Server(uvicorn.Config(stub.app(), port=port, log_config=None, log_level="error"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
        thread.start()
        servers.append((server, thread))
        until = time.monotonic() + 10
        while not server.started and time.monotonic() < until:
            time.sleep(0.01)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    def stop():
        for server, thread in servers:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()
        servers.clear()

    serve.stop = stop
    yield serve
    stop()


def command(clip, url, *options):
    required = ["--model", "m", "--fps", "20", "--deadline-ms", "100", "--url", url]
    return [sys.executable, "-c", RUN, str(clip), *required, *options]


def run(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60)


WAYS = pytest.mark.parametrize("way", [(), ("--http",)], ids=["websocket", "http"])


@WAYS
def test_a_clip_is_sent_once_at_its_rate_and_the_stream_is_closed(clip, served, way):
    stub = StubGateway()
    began = time.monotonic()
    done = run(clip, served(stub), "--shape", "24x32", "--name", "door", "--json", *way)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    # a stalled machine skips ticks and leaves their frames out; it never repeats or loses one
    assert summary["frames"] + summary["skipped"] >= 20
    assert summary["met"] == summary["frames"] == stub.streams["s0"]["accepted"] > 0
    assert (summary["lost"], summary["refused_frames"], summary["stopped_by"]) == (0, 0, "end")
    assert time.monotonic() - began > 19 / 20
    assert stub.sockets == (0 if way else 1)
    asked = {"model": "m", "shape": [24, 32, 3], "deadline_ms": 100.0, "fps": 20.0, "name": "door"}
    assert stub.bodies == [{**asked, "jitter_ms": 12.5}], "a tick is sent up to a quarter of a period late"
    assert "predicted worst latency 61.0 ms of 100 ms (sporadic test)" in done.stderr
    assert stub.streams["s0"]["state"] == "closed"


def test_a_loop_ends_after_its_number_of_frames(clip, served):
    stub = StubGateway()
    done = run(clip, served(stub), "--loop", "--frames", "25", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["frames"] + summary["skipped"] == 25
    assert stub.bodies[0]["frames"] == 25
    assert stub.bodies[0]["shape"] == [48, 64, 3]


def test_groups_and_jitter_are_asked_for_and_sent(clip, served):
    stub = StubGateway()
    done = run(clip, served(stub), "--burst", "4", "--jitter-ms", "7.5", "--frames", "8", "--json")
    assert done.returncode == 0, done.stderr
    asked = {"model": "m", "shape": [48, 64, 3], "deadline_ms": 100.0}
    assert stub.bodies == [{**asked, "period_ms": 200.0, "burst": 4, "jitter_ms": 7.5, "frames": 8}]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["frames"] == summary["met"]
    assert summary["frames"] + summary["skipped"] == 8


def test_class_and_what_becomes_of_surplus_and_late_frames_are_asked_for(clip, served):
    stub = StubGateway()
    done = run(
        clip, served(stub), "--frames", "2", "--best-effort", "--on-late", "newest", "--on-excess", "best_effort"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (asked,) = stub.bodies
    assert (asked["service_class"], asked["on_late"], asked["on_excess"]) == ("best_effort", "newest", "best_effort")
    assert "swapping" not in asked
    done = run(clip, "http://127.0.0.1:1", "--on-late", "never")
    assert done.returncode == 2
    assert all(word in done.stderr for word in ("drop", "serve", "newest"))


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://localhost:8000", "http:///"])
def test_an_address_without_http_is_refused_with_the_right_one(url):
    with pytest.raises(typer.BadParameter, match=r"no address of a gateway; did you mean http://"):
        parse_url(url)
    assert parse_url("https://box/") == "https://box/"


def test_a_refusal_is_explained_and_exits_with_3(clip, served):
    done = run(clip, served(StubGateway(refuse=True)))
    assert done.returncode == EXIT_REFUSED
    assert "refused: it does not fit" in done.stdout
    assert "in the worst case of arrivals that the contracts allow:" in done.stdout
    assert "25.5 ms late (of door, yard)" in done.stdout
    offers = [line.partition("at that moment: ")[2] for line in done.stdout.splitlines() if "would have been" in line]
    assert offers == ["--fps 4", "--deadline-ms 480", "--shape 72x88"]
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_what_no_test_was_made_for_is_told_without_one():
    found = {"phase": 0, "reason": "deadline_infeasible", "test": "sporadic", "utilization": 0.0}
    assert explain_refusal(Evidence.from_json(found), ()) == ["reason deadline_infeasible"]


def test_a_refusal_for_memory_says_who_holds_it():
    memory = {"unit": "models", "needed": 1, "budget": 2, "free": 0, "held": {"face": 1, "plate": 1}, "lost": 0}
    found = {"phase": 0, "reason": "memory", "test": "sporadic", "memory": memory}
    assert explain_refusal(Evidence.from_json(found), ()) == [
        "reason memory",
        "memory: needs 1 of 2 models, 0 free",
        "  what has to stay: face 1, plate 1",
    ]


def test_a_refusal_of_turns_says_how_long_they_are():
    swap = {"models": ["face", "plate"], "region": 1, "utilization": 0.9, "longest_turn_ms": 2140.2, "late_ms": 30.0}
    lines = explain_refusal(Evidence.from_json({"phase": 2, "reason": "swap", "test": "sporadic", "swap": swap}), ())
    assert lines[-1] == "turns in memory of face, plate: up to 2140 ms each"


@pytest.mark.parametrize(
    ("name", "value", "flag"),
    [
        ("period_ms", 333.4, "--fps 2.999"),
        ("deadline_ms", 148.71, "--deadline-ms 148.8"),
        ("shape", (1, 2, 3), "--shape 1x2"),
        ("swapping", True, "--swapping"),
    ],
)
def test_an_offer_names_the_flag_that_takes_it_up_rounded_to_the_safe_side(name, value, flag):
    assert flag_of(CounterOffer(name, value)) == flag


def test_an_offered_period_of_groups_becomes_a_rate_of_frames():
    assert flag_of(CounterOffer("period_ms", 400.0), burst=8) == "--fps 20"


@pytest.mark.parametrize(("ending", "way"), [(signal.SIGINT, ()), (signal.SIGTERM, ()), (signal.SIGTERM, ("--http",))])
def test_being_interrupted_closes_the_stream_and_tells_the_figures(clip, served, ending, way):
    stub = StubGateway()
    process = subprocess.Popen(
        command(clip, served(stub), "--loop", "--json", *way), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 30
    while time.monotonic() < until and stub.streams.get("s0", {}).get("accepted", 0) < 5:
        time.sleep(0.02)
    os.kill(process.pid, ending)
    stdout, stderr = process.communicate(timeout=20)
    assert process.returncode == 0, stderr
    summary = json.loads(stdout.splitlines()[-1])
    assert summary["stopped_by"] == "interrupt"
    assert summary["frames"] == summary["met"] == stub.streams["s0"]["accepted"] >= 5
    assert stub.streams["s0"]["state"] == "closed"


def wait_for(condition, limit_s=30):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


@WAYS
def test_a_gateway_that_is_restarted_gets_the_stream_again_and_the_loss_is_told(clip, served, way):
    first, second = StubGateway(), StubGateway(prefix="t")
    url = served(first)
    arguments = command(clip, url, "--loop", "--frames", "100", *way)
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: first.streams.get("s0", {}).get("accepted", 0) >= 5)
    served.stop()
    time.sleep(0.6)
    served(second, port=int(url.rpartition(":")[2]))
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 1, stdout + stderr
    assert stdout.count("gateway unreachable since") == 1
    assert stdout.count("gateway reachable again") == 1
    assert "registering again" in stdout
    assert "registered again as stream t0" in stdout
    [error] = [line for line in stdout.splitlines() if line.startswith("error:")]
    assert "frames were lost; the last reason: " + ("POST http" if way else "ws://") in error
    assert second.streams["t0"]["accepted"] >= 5
    assert second.streams["t0"]["state"] == "closed"
    assert 0 < second.bodies[0]["frames"] < 100
    assert "Traceback" not in stderr


@WAYS
def test_a_stream_that_somebody_closes_is_not_registered_again(clip, served, way):
    stub = StubGateway()
    arguments = command(clip, served(stub), "--loop", "--json", *way)
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: stub.streams.get("s0", {}).get("accepted", 0) >= 2)
    stub.streams["s0"]["state"] = "closed"
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 1, stderr
    summary = json.loads(stdout.splitlines()[-1])
    assert (summary["stopped_by"], list(stub.streams)) == ("stream_closed", ["s0"])
    assert "error: stopped by 410 stream_closed" in stderr


@WAYS
def test_surplus_is_counted_and_the_remedy_is_told(clip, served, way):
    """Once while it runs, and with the figures at the end; it is no failure of the camera."""
    surplus = problem(429, "frame_surplus", "too early", {"retry-after": "1"}, retry_after_ms=12.5)
    stub = StubGateway(frame_answers=[surplus] * 3)
    done = run(clip, served(stub), *way)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("raise --jitter-ms") == 2
    assert "refused_frames 3 (the gateway did not accept them)" in done.stdout
    assert "3 of them came earlier than the stream's contract allows" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert stub.streams["s0"]["accepted"] > 10


def test_what_cannot_work_says_so_and_exits_with_1(clip, tmp_path):
    away = run(clip, "http://127.0.0.1:1")
    assert (away.returncode, "is `framegate serve` running at http://127.0.0.1:1?" in away.stdout) == (1, True)
    missing = run(tmp_path / "none.mp4", "http://127.0.0.1:1")
    assert (missing.returncode, "there is no file" in missing.stdout) == (1, True)
    assert "Traceback" not in away.stderr + missing.stderr


@pytest.mark.parametrize("text", ["144", "0x10", "axb", "10x-3", "1x2x3", ""])
def test_a_shape_that_is_none_is_refused(text):
    with pytest.raises(typer.BadParameter):
        parse_shape(text)


def test_a_shape_is_height_by_width():
    assert parse_shape("144x176") == (144, 176)
    assert parse_shape(" 48X64 ") == (48, 64)
