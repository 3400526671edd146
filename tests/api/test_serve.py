"""``framegate serve`` as a process: it comes up, says where, ends on a signal, explains what is wrong."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from gateway.core.profile import ModelEntry
from gateway.runtime.profile_file import write_profile
from tests.api.served import FRAME, profile, wait_until
from tests.stand_in import StandIn

SERVE = [sys.executable, "-c", "import typer; from gateway.api.command import serve; typer.run(serve)", "--port", "0"]


@pytest.fixture(scope="module")
def triton():
    """A stand-in on a loop of a thread of its own."""
    stand_in, started, stop = StandIn(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve():
        async with stand_in:
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(10)
    yield stand_in
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)
    loop.close()


@pytest.fixture
def profile_file(tmp_path):
    path = tmp_path / "profile.json"
    write_profile(path, profile())
    return path


def environment(**extra):
    return {k: v for k, v in os.environ.items() if not k.startswith("FRAMEGATE_")} | {"PYTHONUNBUFFERED": "1", **extra}


@contextmanager
def serving(*options, **extra):
    process = subprocess.Popen(
        [*SERVE, *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**extra),
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=20)


def url_of(process):
    line = process.stdout.readline()
    assert line.startswith("ready at http://127.0.0.1:"), line + process.stderr.read()
    return line.split()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal(triton, profile_file, tmp_path, number):
    log = tmp_path / "decisions.jsonl"
    options = ("--triton", triton.url, "--profile", profile_file, "--arena-mb", 1, "--decision-log", log)
    with serving(*options) as process:
        url = url_of(process)
        body = {"model": "echo", "shape": [8, 8, 3], "fps": 5, "burst": 2, "deadline_ms": 400}
        stream = httpx.post(f"{url}/v1/streams", json=body).json()
        frames = httpx.post(url + stream["frames_url"], content=FRAME * 2)
        assert [result["outcome"] for result in frames.json()["results"]] == ["met", "met"]
        began = time.monotonic()
        process.send_signal(number)
        out, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
        assert time.monotonic() - began < 4
    assert out == ""
    assert "Traceback" not in errors
    assert "ERROR" not in errors
    assert not list(Path("/dev/shm").glob(f"framegate-{process.pid}-*"))
    assert [part in log.read_text() for part in ('"admitted"', '"deliver_frames"', '"stream_ended"')] == [True] * 3


def test_the_environment_configures_it(triton, profile_file):
    settings = {
        "FRAMEGATE_TRITON__URL": triton.url,
        "FRAMEGATE_PROFILE": str(profile_file),
        "FRAMEGATE_ARENA__BYTES": "65536",
    }
    with serving(**settings) as process:
        assert "framegate_arena_bytes 65536.0" in httpx.get(f"{url_of(process)}/metrics").text


def figures(url):
    """Return the metrics without labels, by name."""
    lines = [line.split() for line in httpx.get(f"{url}/metrics").text.splitlines()]
    return {line[0]: float(line[1]) for line in lines if len(line) == 2}


def test_the_event_loop_is_watched_and_the_arena_described(triton, profile_file):
    options = ("--triton", triton.url, "--profile", profile_file, "--arena-mb", 1)
    with serving(*options, FRAMEGATE_ARENA__LOCK="off") as process:
        url = url_of(process)
        body = {"model": "echo", "shape": [8, 8, 3], "fps": 5, "burst": 9, "deadline_ms": 400}
        stream = httpx.post(f"{url}/v1/streams", json=body).json()
        assert httpx.post(url + stream["frames_url"], content=FRAME * 9).status_code == 200
        wait_until(lambda: figures(url)["framegate_event_loop_lag_seconds_count"] >= 3, "the loop is not watched")
        found = figures(url)
        assert (found["framegate_arena_locked"], found["framegate_log_lines_dropped"]) == (0, 0)
        assert "framegate_timer_late_seconds_count" in found
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert "frame arena: 1.0 MiB of shared memory, not locked" in errors


def test_a_terminal_that_nobody_reads_holds_up_nobody(triton, profile_file):
    """A pipe takes 64 KiB; then whoever writes to it stands still, and that is not the event loop."""
    options = ("--triton", triton.url, "--profile", profile_file, "--arena-mb", 1)
    settings = {"FRAMEGATE_SERVER__ACCESS_LOG": "true", "FRAMEGATE_TELEMETRY__LOG_QUEUE": "10"}
    with serving(*options, **settings) as process:
        with httpx.Client(base_url=url_of(process), timeout=10) as client:
            for _ in range(1_200):
                assert client.get("/v2/health/live").status_code == 200
        url = str(client.base_url)
        assert figures(url)["framegate_log_lines_dropped"] > 0
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert "GET /v2/health/live HTTP/1.1" in errors
    assert "lines are missing here" in errors
    assert process.returncode == 0


def failure(*options, **extra):
    done = subprocess.run(
        [*SERVE, *map(str, options)], capture_output=True, text=True, env=environment(**extra), timeout=30
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("framegate serve: ")
    return last


def test_without_a_profile_it_says_how_to_get_one():
    assert "framegate profile --quick" in failure()


def test_a_profile_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "broken.json"
    assert str(path) in failure("--profile", path)
    path.write_text("{")
    assert str(path) in failure("--profile", path)


def test_a_setting_out_of_bounds_is_named(profile_file):
    assert "server.port" in failure("--profile", profile_file, "--port", 70_000)
    assert "triton.call_timeout_ms" in failure("--profile", profile_file, FRAMEGATE_TRITON__CALL_TIMEOUT_MS="nan")


def test_a_memory_budget_is_given_once_and_makes_sense(profile_file):
    assert "residency.max_models" in failure("--profile", profile_file, "--max-models", 0)
    both = failure("--profile", profile_file, "--max-models", 2, "--memory-budget", "2GiB")
    assert both == "framegate serve: setting residency: give budget_bytes or max_models, not both"
    done = subprocess.run([*SERVE, "--memory-budget", "lots"], capture_output=True, text=True, env=environment())
    assert done.returncode == 2
    assert "'lots' is no size" in done.stderr


def test_memory_budgets_reach_the_gateway(triton, profile_file):
    # With a budget in bytes a model without a size is never loaded, so that nothing is served and none gets ready.
    write_profile(profile_file, replace(profile(), models=(ModelEntry("echo", "1", 1.0, 1.0, 1 << 20),)))
    options = ("--triton", triton.url, "--profile", profile_file, "--arena-mb", 1)
    with serving(*options, "--max-models", 3) as process:
        memory = httpx.get(f"{url_of(process)}/v1/models").json()["memory"]
        assert (memory["unit"], memory["budget"]) == ("models", 3)
    with serving(*options, "--memory-budget", "1.5GiB") as process:
        memory = httpx.get(f"{url_of(process)}/v1/models").json()["memory"]
        assert (memory["unit"], memory["budget"]) == ("bytes", 3 << 29)


def test_a_group_that_is_no_json_is_named(profile_file):
    assert "server" in failure("--profile", profile_file, FRAMEGATE_SERVER="{")


@pytest.mark.parametrize("url", ["127.0.0.1:99999", "http://127.0.0.1:8001"])
def test_what_is_no_address_of_triton_is_refused(profile_file, url):
    assert "triton.url" in failure("--profile", profile_file, "--triton", url)


def test_a_port_that_is_taken_is_named_with_the_option(profile_file):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = failure("--profile", profile_file, "--port", port)
    assert said == (
        f"framegate serve: port {port} of 127.0.0.1 is in use by another program; choose another with --port or "
        "FRAMEGATE_SERVER__PORT; 0 takes a free one."
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "x" * 70, "a..b"])
def test_a_host_that_cannot_be_listened_at_is_named(profile_file, host):
    said = failure("--profile", profile_file, "--host", host)
    assert host in said
    assert "FRAMEGATE_SERVER__HOST" in said


def test_a_variable_that_is_no_setting_is_warned_about(triton, profile_file):
    options = ("--triton", triton.url, "--profile", profile_file, "--arena-mb", 1)
    with serving(*options, FRAMEGATE_SEVER__PORT="1") as process:
        url_of(process)
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert "warning: FRAMEGATE_SEVER__PORT is no setting and is ignored. Is it FRAMEGATE_SERVER__PORT?" in errors


def test_who_presses_ctrl_c_twice_sees_no_traceback(triton, profile_file):
    options = ("--triton", triton.url, "--profile", profile_file, "--arena-mb", 1)
    with serving(*options) as process:
        url = url_of(process)
        body = {"model": "echo", "shape": [8, 8, 3], "fps": 5, "deadline_ms": 400}
        stream = httpx.post(f"{url}/v1/streams", json=body).json()
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            head = f"POST {stream['frames_url']} HTTP/1.1\r\nHost: x\r\nContent-Length: 192\r\n\r\n"
            connection.sendall(head.encode() + FRAME[:100])
            wait_until(lambda: "framegate_upload_bytes 192.0" in httpx.get(f"{url}/metrics").text, "it did not come in")
            began = time.monotonic()
            for _ in range(2):
                process.send_signal(signal.SIGINT)
                time.sleep(0.3)
            _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert time.monotonic() - began < 4
    assert "Traceback" not in errors
    assert "ERROR" not in errors


def test_an_arena_that_does_not_fit_is_explained(profile_file):
    text = failure("--profile", profile_file, "--arena-mb", 1 << 20)
    assert "arena" in text


def test_an_address_of_other_machines_is_warned_about(triton, profile_file):
    with serving("--triton", triton.url, "--profile", profile_file, "--host", "0.0.0.0", "--arena-mb", 1) as process:
        assert process.stdout.readline().startswith("ready at http://0.0.0.0:")
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert "no authentication" in errors
