"""Ingest processes in front of a real Triton: frames of both kinds of calls, a process that is killed, and the end."""

import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import numpy as np
import pytest
from websockets.sync.client import connect

from tests.e2e.test_serve_embedded import SHAPE, gone, options, regions, send_a_frame, serving, tritons  # noqa: F401

pytestmark = pytest.mark.e2e


def workers(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"gateway.ingest.process" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return sorted(found)


def listening(url: str) -> int:
    try:
        page = httpx.get(f"{url}/metrics").text
    except httpx.TransportError:  # of the one that was killed
        return 0
    return sum(line.startswith("framegate_ingest_listening{") and line.endswith(" 1.0") for line in page.splitlines())


def over_a_websocket(url: str) -> None:
    body = {"model": "centerface", "shape": SHAPE, "fps": 2, "burst": 2, "deadline_ms": 5_000}
    stream = httpx.post(f"{url}/v1/streams", json=body).raise_for_status().json()
    with connect(url.replace("http", "ws") + stream["ws_url"]) as socket:
        socket.send(np.zeros(SHAPE, np.uint8).tobytes() * 2)
        results = [json.loads(socket.recv(20)) for _ in range(2)]
    httpx.delete(f"{url}/v1/streams/{stream['stream_id']}").raise_for_status()
    assert [(result["outcome"], result["seq"]) for result in results] == [("met", 0), ("met", 1)]
    assert all(result["outputs"] for result in results)


def test_frames_go_through_ingest_processes_to_triton_and_all_end(
    options: list[str],  # noqa: F811
    tmp_path: Path,
) -> None:
    with serving([*options, "--ingest-workers", "2"], stderr=subprocess.PIPE) as (process, url):
        before = workers(process.pid)
        assert len(before) == 2
        for _ in range(4):  # connections go to either
            send_a_frame(url)
            over_a_websocket(url)
        os.kill(before[0], signal.SIGKILL)
        gone(lambda: len(set(workers(process.pid)) - {before[0]}) < 2)
        gone(lambda: listening(url) < 2)
        for _ in range(4):
            send_a_frame(url)
            over_a_websocket(url)
        metrics = httpx.get(f"{url}/metrics").text
        restarts = [f'framegate_ingest_restarts_total{{process="{number}"}} 1.0' in metrics for number in (0, 1)]
        assert sorted(restarts) == [False, True]
        after = workers(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        errors = process.stderr.read()
    assert "Traceback" not in errors
    assert "ended by itself (signal 9)" in errors
    gone(lambda: any(Path(f"/proc/{pid}").exists() for pid in after))
    assert not tritons(tmp_path)
    assert not regions(process.pid)
