"""``framegate serve --embedded``: one command, a real Triton, and nothing left of either when it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from gateway.core.profile import Profile, ProfileEntry
from gateway.runtime.profile_file import write_profile

pytestmark = pytest.mark.e2e

SHAPE = (96, 128, 3)
SERVE = [sys.executable, "-c", "import typer; from gateway.api.command import serve; typer.run(serve)"]


@pytest.fixture
def options(built_models: Callable[..., Path], tmp_path: Path) -> list[str]:
    """Command-line options; the model repository has a path of its own, so that its Triton can be told apart."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "centerface").symlink_to((built_models("centerface") / "centerface").resolve())
    entries = tuple(ProfileEntry("centerface", "1", SHAPE, "UINT8", n, 100, 40.0, 40.0, 40.0) for n in (1, 2))
    write_profile(tmp_path / "profile.json", Profile(entries=entries))
    return [
        "--embedded", "--port", "0", "--arena-mb", "4",
        "--model-repository", str(repository),
        "--profile", str(tmp_path / "profile.json"),
        "--triton-log", str(tmp_path / "triton.log"),
    ]  # fmt: skip


def tritons(tmp_path: Path) -> list[int]:
    """Return the processes that serve this test's repository."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"--model-repository={tmp_path}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue  # it ended just now
    return found


def tritonserver(tmp_path: Path) -> int:
    """Return the pid of `tritonserver` itself, not of its supervisor."""
    [pid] = [pid for pid in tritons(tmp_path) if Path(f"/proc/{pid}/comm").read_text().startswith("tritonserver")]
    return pid


def regions(pid: int) -> list[Path]:
    return list(Path("/dev/shm").glob(f"framegate-{pid}-*"))


@contextmanager
def serving(options: list[str], stderr: int | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEGATE_")}
    process = subprocess.Popen([*SERVE, *options], stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
    try:
        line = process.stdout.readline()
        assert line.startswith("ready at "), line
        yield process, line.split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def send_a_frame(url: str) -> None:
    body = {"model": "centerface", "shape": SHAPE, "fps": 2, "deadline_ms": 5_000}
    stream = httpx.post(f"{url}/v1/streams", json=body).raise_for_status().json()
    frame = np.zeros(SHAPE, np.uint8).tobytes()
    answer = httpx.post(url + stream["frames_url"], content=frame, timeout=30)
    httpx.delete(f"{url}/v1/streams/{stream['stream_id']}").raise_for_status()
    [result] = answer.raise_for_status().json()["results"]
    assert result["outcome"] == "met"
    assert result["outputs"]


def gone(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while condition():
        assert time.monotonic() < deadline, "something is left after 10 s"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_real_frames_and_ends_with_its_triton(options: list[str], tmp_path: Path, number: int) -> None:
    with serving(options, stderr=subprocess.PIPE) as (process, url):
        send_a_frame(url)
        assert tritons(tmp_path)
        process.send_signal(number)
        assert process.wait(20) == 0
        assert "jobs go to Triton's HTTP endpoint" in process.stderr.read()
        assert not tritons(tmp_path)
        assert not regions(process.pid)


def serves(url: str) -> bool:
    try:
        send_a_frame(url)
    except httpx.HTTPStatusError as error:
        if error.response.status_code not in (502, 503):
            raise
        return False
    return True


@pytest.mark.parametrize("times", [1, 2])
def test_a_triton_that_is_killed_is_started_again(options: list[str], tmp_path: Path, times: int) -> None:
    with serving(options, stderr=subprocess.PIPE) as (process, url):
        send_a_frame(url)
        for _ in range(times):
            os.kill(tritonserver(tmp_path), signal.SIGKILL)
            gone(lambda: not serves(url))  # within 10 s
            assert httpx.get(f"{url}/v2/health/ready").status_code == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert errors.count("ERROR gateway.api.keeper: tritonserver ended by itself") == times
    assert "Traceback" not in errors
    gone(lambda: tritons(tmp_path))


def test_what_a_killed_gateway_leaves_is_gone_after_the_next_start(options: list[str], tmp_path: Path) -> None:
    with serving(options) as (process, url):
        send_a_frame(url)
        process.kill()
        process.wait(10)
        killed = process.pid
    gone(lambda: tritons(tmp_path))
    with serving(options) as (process, url):
        assert not regions(killed)
        send_a_frame(url)


def test_a_triton_that_cannot_start_is_explained(options: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*SERVE, *options, "--model-repository", str(tmp_path / "nowhere")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "--model-repository" in done.stderr
    assert "Traceback" not in done.stderr
