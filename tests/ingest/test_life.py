"""Processes that come and go: what a killed one takes with it, and that nobody is left behind."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import httpx
import pytest

from gateway.ingest import wire, worker
from tests.api.served import FRAME, Served, books, wait_until
from tests.api.sockets import answer, code_of_close, socket_of
from tests.api.test_serve import (  # noqa: F401 - fixtures among them
    environment,
    failure,
    profile_file,
    serving,
    triton,
    url_of,
)

CONNECTIONS = 16


def staging_areas():
    """Return how many staging areas this process holds: of each the descriptor, and the mapping's own."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(entry))
    return sum("framegate-staging" in link for link in links) / 2


def children(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return [int(each) for each in found]


class Camera(threading.Thread):
    """Sends one frame after the other over one connection, until it is told to stop or the connection is lost."""

    def __init__(self, served, stream):
        super().__init__()
        self.served, self.stream = served, stream
        self.answered, self.lost, self.stopping = 0, False, False
        self.faults = []

    def run(self):
        head = f"POST {self.stream['frames_url']} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(FRAME)}\r\n\r\n".encode()
        with self.served.connect() as peer:
            try:
                while not self.stopping:
                    peer.sendall(head + FRAME)
                    received = b""
                    while b"\r\n\r\n" not in received or not received.endswith(b"}"):
                        part = peer.recv(1 << 16)
                        if not part:
                            raise ConnectionError
                        received += part
                    self.answered += 1
                    if not received.startswith(b"HTTP/1.1 200 "):
                        self.faults.append(received)
            except ConnectionError:
                self.lost = True


def test_a_killed_process_loses_its_own_connections_and_is_started_again():
    with Served(server={"ingest_workers": 2}) as served:
        served.stand_in.delay_s = lambda call: 0.02
        with served.stream(burst=CONNECTIONS, period_ms=2_000, deadline_ms=2_000) as stream:
            cameras = [Camera(served, stream) for _ in range(CONNECTIONS)]
            for camera in cameras:
                camera.start()
            wait_until(lambda: all(camera.answered for camera in cameras), "not all are served")
            victim = served.server.workers[0]
            os.kill(victim.pid, signal.SIGKILL)
            killed = time.monotonic()
            before = [camera.answered for camera in cameras]

            def gone_or_going_on():
                return all(now.lost or now.answered > then + 3 for now, then in zip(cameras, before, strict=True))

            wait_until(gone_or_going_on, "those of the other process do not go on")
            survivors = [camera for camera in cameras if not camera.lost]
            wait_until(lambda: victim.figures.starts == 2 and victim.listening, "it was not started again")
            assert time.monotonic() - killed < 8
            assert 0 < len(survivors) < CONNECTIONS
            for camera in cameras:
                camera.stopping = True
            for camera in cameras:
                camera.join(10)
            assert [camera.faults for camera in cameras] == [[]] * CONNECTIONS
            assert not any(camera.lost for camera in survivors)
            wait_until(lambda: books(served, stream)["in_flight"] == 0, "frames are left")
            state = books(served, stream)
            answered = sum(camera.answered for camera in cameras)
            lost = CONNECTIONS - len(survivors)
            assert answered <= state["accepted"] <= answered + lost
            assert state["outcomes"]["met"] >= answered
            counters = served.counters()
            assert counters["framegate_ingest_restarts_total", "0"] == 1
            assert counters["framegate_ingest_restarts_total", "1"] == 0
            frames = sum(counters["framegate_ingest_frames_total", number] for number in "01")
            assert frames == state["accepted"]
            assert served.gateway.arena.free_bytes == served.gateway.arena.region.size
            assert staging_areas() == 2
            for _ in range(8):  # some of them at the new one
                with served.connect() as peer:
                    peer.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert peer.recv(100).startswith(b"HTTP/1.1 200 ")
    assert staging_areas() == 0


def test_frames_of_a_killed_process_are_cancelled_as_those_of_clients_that_go_away():
    with Served(server={"ingest_workers": 1}) as served:
        served.stand_in.delay_s = lambda call: 0.5
        with (
            served.stream(burst=4, period_ms=20_000, deadline_ms=20_000) as stream,
            socket_of(served, stream) as opened,
        ):
            opened.send(FRAME)
            served.wait_until_running()
            for _ in range(3):
                opened.send(FRAME)
            wait_until(lambda: books(served, stream)["accepted"] == 4, "they did not come in")
            os.kill(served.server.workers[0].pid, signal.SIGKILL)

            def cancelled():
                return served.call(lambda: dict(served.gateway.stream(stream["stream_id"]).outcomes))

            wait_until(lambda: cancelled().get("cancelled") == 3, "they were not cancelled")
            wait_until(lambda: served.server.workers[0].listening, "it was not started again")
            wait_until(lambda: books(served, stream)["in_flight"] == 0, "the first did not end")
            assert books(served, stream)["outcomes"]["met"] == 1
            assert served.counters()["framegate_websockets",] == 0
            assert served.gateway.arena.free_bytes == served.gateway.arena.region.size
            with socket_of(served, stream) as again:
                again.send(FRAME)
                assert answer(again)["outcome"] == "met"


def test_one_that_cannot_start_is_said_at_once(monkeypatch):
    def spawn(channel, staging):
        return subprocess.Popen(["/bin/false"])

    monkeypatch.setattr(worker, "_spawn", spawn)
    served = Served(server={"ingest_workers": 2})
    with pytest.raises(AssertionError, match="ended before it listened"):
        served.start()
    served._thread.join(20)
    assert not served._thread.is_alive()
    assert staging_areas() == 0


def test_one_that_stands_still_is_ended_and_started_again(monkeypatch):
    with Served(server={"ingest_workers": 1}) as served:
        victim = served.server.workers[0]
        monkeypatch.setattr(worker, "SILENCE_S", 2.0)
        served.call(victim._link.abort)  # so that the next one is watched with the shorter time
        wait_until(lambda: victim.figures.starts == 2 and victim.listening, "it was not started again")
        os.kill(victim.pid, signal.SIGSTOP)
        wait_until(lambda: victim.figures.starts == 3 and victim.listening, "it was not started again")
        with served.stream() as stream:
            assert served.http.post(stream["frames_url"], content=FRAME).status_code == 200


def refuse(*_arguments):
    raise OSError(errno.EMFILE, "Too many open files")


def test_a_system_that_refuses_memory_at_the_start_is_said_at_once(monkeypatch):
    monkeypatch.setattr(worker.Staging, "create", refuse)
    served = Served(server={"ingest_workers": 2})
    with pytest.raises(AssertionError, match="ended before it listened"):
        served.start()
    served._thread.join(20)
    assert not served._thread.is_alive()


def test_one_that_cannot_be_started_again_is_tried_until_it_can(monkeypatch):
    with Served(server={"ingest_workers": 1}) as served:
        victim = served.server.workers[0]
        tried = []
        with monkeypatch.context() as refusing:
            refusing.setattr(worker.Staging, "create", lambda size: refuse(tried.append(size)))
            os.kill(victim.pid, signal.SIGKILL)
            wait_until(lambda: len(tried) >= 2, "it was given up")
        wait_until(lambda: victim.listening, "it was not started again")
        with served.stream() as stream:
            assert served.http.post(stream["frames_url"], content=FRAME).status_code == 200
    assert staging_areas() == 0


def test_one_that_is_ended_while_it_is_started_is_not_waited_for(monkeypatch):
    with Served(server={"ingest_workers": 1}) as served:
        victim = served.server.workers[0]
        may_start, starting, stuck = threading.Event(), threading.Event(), []

        def spawn(channel, staging):
            starting.set()
            may_start.wait(10)
            stuck.append(subprocess.Popen(["/bin/sleep", "60"]))
            return stuck[0]

        monkeypatch.setattr(worker, "_spawn", spawn)
        os.kill(victim.pid, signal.SIGKILL)
        assert starting.wait(10)
        served.call(victim.kill)
        may_start.set()
        served.run(asyncio.wait_for(victim.ended(), 5))
        assert stuck[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize("what", ["cancel", "result_parts"])
def test_a_fault_of_ours_costs_the_connection_and_nothing_waits_for_ever(monkeypatch, what):
    """The engine fails while frames are cancelled; a result cannot be said."""

    def fail(*_arguments):
        raise RuntimeError("on purpose")

    with Served(server={"ingest_workers": 1}) as served:
        victim = served.server.workers[0]
        served.stand_in.delay_s = lambda call: 0.3
        with served.stream(burst=2, period_ms=5_000, deadline_ms=5_000) as stream, monkeypatch.context() as failing:
            with socket_of(served, stream) as opened:
                opened.send(FRAME * 2)
                wait_until(lambda: books(served, stream)["accepted"] == 2, "they did not come in")
                if what == "cancel":
                    failing.setattr(served.gateway, "cancel", fail)
                    os.kill(victim.pid, signal.SIGKILL)
                else:
                    failing.setattr(wire, "result_parts", fail)
                assert code_of_close(opened)[0] == 1006
            wait_until(lambda: victim.figures.starts == 2 and victim.listening, "it was not started again")
            failing.undo()
            assert served.http.get("/v2/health/live").status_code == 200


def test_a_process_that_says_too_much_at_once_is_ended():
    with Served(server={"ingest_workers": 1}) as served:
        victim = served.server.workers[0]
        served.call(victim._link.data_received, b"\xff\xff\xff\x7f\x01")
        wait_until(lambda: victim.figures.starts == 2 and victim.listening, "it was not started again")


def test_a_folder_whose_name_is_too_long_for_a_socket_is_named(triton, profile_file, tmp_path):  # noqa: F811
    folder = tmp_path / ("f" * 100)
    folder.mkdir()
    said = failure("--triton", triton.url, "--profile", profile_file, *OPTIONS, TMPDIR=str(folder))
    assert "set TMPDIR to a folder with a shorter name" in said
    assert not list(folder.iterdir())


OPTIONS = ("--ingest-workers", 2, "--arena-mb", 8)
STREAM = {"model": "echo", "shape": [8, 8, 3], "fps": 5, "burst": 2, "deadline_ms": 2_000}


def ended(pids):
    return all(not Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("everybody", [False, True], ids=["the scheduler", "all processes"])
def test_a_signal_lets_calls_end_and_leaves_nothing(triton, profile_file, everybody):  # noqa: F811
    """A service manager or a terminal sends its signal to all processes: that is the same."""
    answers = []
    try:
        with serving("--triton", triton.url, "--profile", profile_file, *OPTIONS) as process:
            url = url_of(process)
            workers = children(process.pid)
            triton.delay_s = lambda call: 0.4
            stream = httpx.post(f"{url}/v1/streams", json=STREAM).json()
            call = threading.Thread(
                target=lambda: answers.append(httpx.post(url + stream["frames_url"], content=FRAME, timeout=20))
            )
            call.start()
            wait_until(lambda: httpx.get(url + f"/v1/streams/{stream['stream_id']}").json()["in_flight"] == 1, "no")
            began = time.monotonic()
            for pid in (process.pid, *(workers if everybody else ())):
                os.kill(pid, signal.SIGTERM)
            call.join(10)
            _, errors = process.communicate(timeout=20)
            assert time.monotonic() - began < 4
            assert process.returncode == 0, errors
    finally:
        triton.delay_s = lambda call: 0.0
    assert [each.json()["results"][0]["outcome"] for each in answers] == ["met"]
    assert "Traceback" not in errors
    assert "ERROR" not in errors
    assert ended(workers)
    assert not list(Path("/dev/shm").glob(f"framegate-{process.pid}-*"))


def test_without_a_scheduler_ingest_processes_end(triton, profile_file):  # noqa: F811
    with serving("--triton", triton.url, "--profile", profile_file, *OPTIONS) as process:
        url = url_of(process)
        port = int(url.rpartition(":")[2])
        workers = [pid for pid in children(process.pid) if b"gateway.ingest.process" in command_of(pid)]
        assert len(workers) == 2
        folders = scheduler_folders()
        process.kill()
        process.wait(10)
        wait_until(lambda: ended(workers), "they are still there")
        assert len(folders - scheduler_folders()) >= 1, "its socket is left"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def scheduler_folders():
    return {path.parent for path in Path(tempfile.gettempdir()).glob("framegate-*/scheduler")}


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_who_presses_ctrl_c_twice_does_not_wait_for_clients(triton, profile_file):  # noqa: F811
    try:
        with serving("--triton", triton.url, "--profile", profile_file, *OPTIONS) as process:
            url = url_of(process)
            triton.delay_s = lambda call: 3.0
            workers = children(process.pid)
            stream = httpx.post(f"{url}/v1/streams", json={**STREAM, "deadline_ms": 9_000}).json()
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as peer:
                head = f"POST {stream['frames_url']} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(FRAME)}\r\n\r\n"
                peer.sendall(head.encode() + FRAME)
                path = f"{url}/v1/streams/{stream['stream_id']}"
                wait_until(lambda: httpx.get(path).json()["in_flight"] == 1, "it did not come in")
                for _ in range(2):
                    process.send_signal(signal.SIGINT)
                    time.sleep(0.3)
                _, errors = process.communicate(timeout=20)
    finally:
        triton.delay_s = lambda call: 0.0
    assert "Traceback" not in errors
    assert ended(workers)


def test_a_port_that_is_taken_is_named(triton, profile_file):  # noqa: F811
    """Also by another gateway, which shares it with its own processes."""
    with serving("--triton", triton.url, "--profile", profile_file, *OPTIONS) as process:
        port = url_of(process).rpartition(":")[2]
        said = failure("--triton", triton.url, "--profile", profile_file, *OPTIONS, "--port", port)
        assert f"port {port} of 127.0.0.1 is in use" in said
