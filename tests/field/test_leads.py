"""The further leads of the field reports, where a small test shows what was decided: see `docs/field-reports.md`."""

import ast
import threading
import time
from pathlib import Path

import httpx
import pytest

from gateway.settings import ServerSettings
from tests.api.served import FRAME, Served, problem

ROOT = Path(__file__).parents[2]
STARTS = {"create_task", "ensure_future", "run_coroutine_threadsafe"}


@pytest.fixture(scope="module")
def served():
    with Served() as gateway:
        yield gateway


def forgotten(path):
    """Return the lines that start a background task and keep no reference; a task group keeps its own."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            owner = getattr(getattr(called, "value", None), "id", "")
            if name in STARTS and owner != "group":
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_no_background_task_is_without_a_reference(tmp_path):
    sources = [path for folder in ("gateway", "profiler", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 100
    assert [line for path in sources for line in forgotten(path)] == []


def test_a_slow_camera_keeps_its_connection(served, length):
    """A frame every five seconds: no server that closes idle connections sooner may be met by its next call."""
    assert ServerSettings().keep_alive_s >= 60
    connections = []
    patient = httpx.Limits(keepalive_expiry=None)
    with served.stream(period_ms=5_000) as stream, httpx.Client(base_url=served.url, limits=patient) as client:
        for pause_s in (0, length(5.2, 60)):
            time.sleep(pause_s)
            answer = client.post(stream["frames_url"], content=FRAME)
            assert answer.status_code == 200
            connections.append(answer.extensions["network_stream"].get_extra_info("client_addr"))
    assert connections[0] == connections[1]


def test_calls_with_the_same_id_get_their_own_answers(served):
    """Ids of callers come back, and nothing is looked up by them."""
    served.stand_in.delay_s = lambda call: 0.02
    answers = {}

    def call(value):
        tensor = {"name": "frames", "datatype": "UINT8", "shape": [1, 8, 8, 3], "data": [value] * 192}
        answer = httpx.post(f"{served.url}/v2/models/echo/infer", json={"id": "same", "inputs": [tensor]}, timeout=20)
        answers[value] = answer.json()

    threads = [threading.Thread(target=call, args=(value,)) for value in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served.stand_in.delay_s = lambda call: 0.0
    assert len(answers) == 16
    for value, answer in answers.items():
        assert answer["id"] == "same"
        [echo] = [output for output in answer["outputs"] if output["name"] == "echo"]
        assert echo["data"] == [value] * 192


@pytest.mark.parametrize("kind", ["systemsharedmemory", "cudasharedmemory"])
@pytest.mark.parametrize("rest", ["status", "region/framegate-1-00112233445566ff/register", "unregister"])
def test_nobody_reaches_shared_memory_through_the_gateway(served, kind, rest):
    calls = len(served.stand_in.calls)
    for method in ("GET", "POST"):
        answer = served.http.request(method, f"/v2/{kind}/{rest}", json={"key": "/x", "offset": 0, "byte_size": 2**63})
        assert answer.status_code in (400, 404, 405), answer.text
    assert len(served.stand_in.calls) == calls


def test_a_tensor_cannot_name_a_region(served):
    name = served.gateway.arena.region.name
    region = {"shared_memory_region": name, "shared_memory_offset": 0, "shared_memory_byte_size": 192}
    tensor = {"name": "frames", "datatype": "UINT8", "shape": [1, 8, 8, 3], "parameters": region}
    answer = served.http.post("/v2/models/echo/infer", json={"inputs": [tensor]})
    assert answer.status_code == 400, answer.text
    assert name not in answer.text


def test_the_name_of_our_memory_is_in_no_answer(served):
    name = served.gateway.arena.region.name
    served.stand_in.error = lambda call: f"Unable to find shared memory region: '{name}'"
    with served.stream() as stream:
        document = problem(served.http.post(stream["frames_url"], content=FRAME), 502, "frame_failed")
        assert "Unable to find shared memory region: 'the frame arena'" in document["detail"]
        said = [served.http.get(path).text for path in ("/v1/models", stream["results_url"], "/v2/health/ready")]
        assert not any(name in text for text in said)
    served.stand_in.error = lambda call: ""


def test_batches_are_formed_here_and_nowhere_else():
    """Triton's own batcher would form sizes that nobody measured."""
    configs = list((ROOT / "model_repository").glob("*/config.pbtxt"))
    assert configs
    lines = [line for path in configs for line in path.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if "dynamic_batching" in line] == []
