import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from gateway.errors import EmbeddedTritonError
from gateway.triton import embedded, instance
from gateway.triton.embedded import EmbeddedTriton, Ports

pytestmark = pytest.mark.e2e

#: After kill -9 of the parent nothing may be left after this long.
CLEAN_WITHIN_S = 10.0
PARENT = Path(__file__).with_name("triton_parent.py")


def files_of(name: str) -> set[str]:
    """Names in shared memory of the embedded Triton called `name`."""
    return {path.name for path in Path("/dev/shm").glob(f"{name}*")}


def name_of(server: int) -> str:
    """The instance's name, from the command line of its `tritonserver`."""
    command = Path(f"/proc/{server}/cmdline").read_text().split("\0")
    return next(word.rpartition("=")[2] for word in command if "shm-region-prefix-name" in word)


def alive(pid: int) -> bool:
    """Whether any thread of the process still runs: a killed one's files close with the last of them."""
    with contextlib.suppress(OSError):
        states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
        return any(state != "Z" for state in states)
    return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and parent_of(int(entry)) == pid:
                found.append(int(entry))
    return found


def wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


@dataclass
class Family:
    """A parent that will be killed, and everything that must go with it."""

    parent: subprocess.Popen[str]
    supervisor: int
    server: int
    stubs: list[int]
    name: str

    @property
    def processes(self) -> list[int]:
        return [pid for pid in (self.supervisor, self.server, *self.stubs) if alive(pid)]

    def nothing_left(self) -> bool:
        return not self.processes and not files_of(self.name)


@pytest.fixture
def family(built_models: Callable[..., Path], tmp_path: Path) -> Iterator[Family]:
    command = [sys.executable, str(PARENT), str(built_models("centerface")), str(tmp_path / "triton.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            server = int(parent.stdout.readline())
            family = Family(parent, parent_of(server), server, children_of(server), name_of(server))
            assert len(family.stubs) == 1
            assert len(files_of(family.name)) == 2, "not the lock and one region"
            yield family
        finally:
            parent.kill()
    for pid in family.processes:
        os.kill(pid, signal.SIGKILL)


def test_is_ready_in_a_second_and_serves_only_what_is_loaded(triton_server: EmbeddedTriton) -> None:
    client = grpcclient.InferenceServerClient(triton_server.grpc_url)
    assert client.is_server_ready()
    client.load_model("centerface")
    client.unload_model("centerface")
    assert client.is_server_ready(), "one model that comes or goes is not the server's state"
    client.load_model("centerface")
    picture = np.full((2, 64, 96, 3), 127, np.uint8)
    tensor = grpcclient.InferInput("image", picture.shape, "UINT8")
    tensor.set_data_from_numpy(picture)
    answer = client.infer("centerface", [tensor])
    assert answer.as_numpy("heatmap").shape == (2, 1, 16, 24)
    assert not client.is_model_ready("resnet101")
    with pytest.raises(InferenceServerException, match="unknown model"):
        client.infer("resnet101", [tensor])
    client.close()


def test_listens_on_loopback_and_says_what_it_was_started_with(triton_server: EmbeddedTriton) -> None:
    for url in (triton_server.grpc_url, triton_server.http_url, triton_server.metrics_url):
        assert url.startswith("127.0.0.1:")
    with urllib.request.urlopen(f"http://{triton_server.metrics_url}/metrics", timeout=5) as answer:
        assert b"nv_inference" in answer.read()
    log = triton_server.log_file.read_text()
    assert "MODE_EXPLICIT" in log
    assert "EXEC_COUNT" in log


def test_takes_the_clients_shared_memory(triton_server: EmbeddedTriton) -> None:
    path = Path("/dev/shm/framegate-test-region")
    path.write_bytes(bytes(4096))
    client = grpcclient.InferenceServerClient(triton_server.grpc_url)
    try:
        client.register_system_shared_memory("test", f"/{path.name}", 4096)
        assert len(client.get_system_shared_memory_status().regions) == 1
        client.unregister_system_shared_memory("test")
    finally:
        client.close()
        path.unlink()


def test_a_bad_request_is_answered_and_the_model_serves_on(triton_server: EmbeddedTriton) -> None:
    client = grpcclient.InferenceServerClient(triton_server.grpc_url)
    client.load_model("centerface")
    for shape, dtype in (((1, 32, 32, 4), "UINT8"), ((1, 32, 32, 3), "FP32"), ((17, 32, 32, 3), "UINT8")):
        array = np.zeros(shape, np.uint8 if dtype == "UINT8" else np.float32)
        tensor = grpcclient.InferInput("image", shape, dtype)
        tensor.set_data_from_numpy(array)
        with pytest.raises(InferenceServerException):
            client.infer("centerface", [tensor])
    # Triton accepts this one: its error is the backend's.
    tensor = grpcclient.InferInput("image", (1, 0, 32, 3), "UINT8")
    tensor.set_data_from_numpy(np.zeros((1, 0, 32, 3), np.uint8))
    with pytest.raises(InferenceServerException, match="onnxruntime"):
        client.infer("centerface", [tensor])
    assert client.is_model_ready("centerface")
    client.close()


def test_a_second_start_finds_the_first_ones_ports(built_models: Callable[..., Path], tmp_path: Path) -> None:
    triton = EmbeddedTriton(built_models(), tmp_path / "triton.log")
    started = time.monotonic()
    triton.start()
    assert time.monotonic() - started < 1.0
    first = (triton.grpc_url, triton.http_url, triton.metrics_url)
    pid = triton.pid
    triton.stop()
    triton.stop()
    assert triton.pid is None
    assert not triton.running
    with triton:
        assert (triton.grpc_url, triton.http_url, triton.metrics_url) == first
        assert triton.pid != pid
        with pytest.raises(EmbeddedTritonError, match="already runs"):
            triton.start()


def test_a_lost_race_for_a_port_is_run_again(
    built_models: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = embedded.free_ports
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [Ports(taken.getsockname()[1], *[real(Ports(0, 0, 0), None).grpc, real(Ports(0, 0, 0), None).metrics])]
        monkeypatch.setattr(embedded, "free_ports", lambda *args: ports.pop() if ports else real(*args))
        with EmbeddedTriton(built_models(), tmp_path / "triton.log") as triton:
            assert not ports
            assert triton.http_url != f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(built_models: Callable[..., Path], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        triton = EmbeddedTriton(built_models(), tmp_path / "triton.log", grpc_port=port)
        with pytest.raises(EmbeddedTritonError, match=f"Port {port} .* name another --grpc-port"):
            triton.start()
    assert not triton.log_file.exists(), "something was started"


def test_the_end_of_the_log_says_why_it_did_not_start(built_models: Callable[..., Path], tmp_path: Path) -> None:
    triton = EmbeddedTriton(built_models(), tmp_path / "triton.log", models=["no_such_model"])
    with pytest.raises(EmbeddedTritonError, match="no_such_model") as caught:
        triton.start()
    assert str(tmp_path / "triton.log") in caught.value.detail
    assert not triton.running


def test_refuses_what_cannot_work_before_it_starts_anything(built_models: Callable[..., Path], tmp_path: Path) -> None:
    log = tmp_path / "triton.log"
    with pytest.raises(EmbeddedTritonError, match="does not exist"):
        EmbeddedTriton(tmp_path / "nowhere", log).start()
    with pytest.raises(EmbeddedTritonError, match="No Python-based backend"):
        EmbeddedTriton(built_models(), log, backends=tmp_path).start()
    with pytest.raises(EmbeddedTritonError, match="no address before start"):
        _ = EmbeddedTriton(built_models(), log).grpc_url
    raised: list[EmbeddedTritonError] = []

    def start() -> None:
        try:
            EmbeddedTriton(built_models(), log).start()
        except EmbeddedTritonError as error:
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in raised[0].detail
    assert not log.exists()


@pytest.mark.parametrize("hung", ["nobody", "server", "stub"])
def test_nothing_is_left_after_the_parent_was_killed(family: Family, hung: str) -> None:
    for pid in {"nobody": [], "server": [family.server], "stub": family.stubs}[hung]:
        os.kill(pid, signal.SIGSTOP)
    family.parent.kill()
    assert wait_until(family.nothing_left, CLEAN_WITHIN_S), f"left: {family.processes} {files_of(family.name)}"
    assert not instance._scratch(family.name).exists()


def test_leftovers_go_at_the_next_start_and_a_living_ones_files_stay(
    family: Family, built_models: Callable[..., Path], tmp_path: Path
) -> None:
    for pid in (family.supervisor, family.server, *family.stubs):  # all at once, so that nobody can tidy up
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not family.processes, CLEAN_WITHIN_S), f"left: {family.processes}"
    assert len(files_of(family.name)) == 2
    with EmbeddedTriton(built_models(), tmp_path / "other.log") as living:
        assert living.pid is not None
        assert not files_of(family.name)
        assert not instance._scratch(family.name).exists()
        own = name_of(living.pid)
        assert own not in instance.remove_leftovers()
        assert files_of(own)


def test_a_killed_supervisor_takes_the_server_and_its_stubs_with_it(family: Family) -> None:
    os.kill(family.supervisor, signal.SIGKILL)
    assert wait_until(lambda: not family.processes, CLEAN_WITHIN_S), f"left: {family.processes}"
    instance.remove_leftovers()
    assert not files_of(family.name)


def test_a_dead_server_is_noticed(built_models: Callable[..., Path], tmp_path: Path) -> None:
    with EmbeddedTriton(built_models(), tmp_path / "triton.log", models=["centerface"]) as triton:
        assert triton.pid is not None
        os.kill(triton.pid, signal.SIGKILL)
        assert wait_until(lambda: not triton.running, CLEAN_WITHIN_S)
        triton.start()
        assert triton.running
