"""Triton's own clients, unmodified, against the gateway and against the Triton behind it: both say the same."""

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
import uvloop
from tritonclient.utils import InferenceServerException

from gateway.api.app import create_app
from gateway.api.server import Server
from gateway.core.profile import Profile, ProfileEntry
from gateway.runtime.gateway import Gateway
from gateway.settings import Settings
from gateway.triton.embedded import EmbeddedTriton
from profiler.perf_analyzer import PerfAnalyzerError, Tool, fetch, find
from tests.e2e.v2_models import add_and_subtract, identity, python_identity

pytestmark = pytest.mark.e2e

FRAME = (16, 16, 3)
VECTOR = 8_192
MODELS = ("image", "half", "versions", "single", "text", "blob", "sums")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTriton]:
    repository = tmp_path_factory.mktemp("models")
    identity(repository, "image", "UINT8", [-1, -1, 3])
    identity(repository, "half", "FP16", [-1])
    identity(repository, "versions", "FP32", [-1], versions=(1, 3))
    identity(repository, "single", "FP32", [4], max_batch=0)
    identity(repository, "text", "BYTES", [-1])
    python_identity(repository, "blob", "BYTES", [-1])
    add_and_subtract(repository, "sums", [4])
    log = tmp_path_factory.mktemp("triton") / "triton.log"
    with EmbeddedTriton(repository, log, models=MODELS) as server:
        yield server


def _entries(model: str, shape: tuple[int, ...], dtype: str) -> list[ProfileEntry]:
    return [ProfileEntry(model, "1", shape, dtype, batch, 100, 5.0, 5.0, 5.0) for batch in (1, 2, 4, 8)]


@pytest.fixture(scope="module")
def gateway_url(server: EmbeddedTriton) -> Iterator[str]:
    """``host:port`` of a gateway that has frames of two models in its profile."""
    profile = Profile(entries=(*_entries("image", FRAME, "UINT8"), *_entries("half", (VECTOR,), "FP16")))
    settings = Settings(triton={"url": server.grpc_url}, server={"port": 0}, models=list(MODELS))
    ready, urls = threading.Event(), []

    def on_ready(url: str) -> None:
        urls.append(url.removeprefix("http://"))
        ready.set()

    gateway = Gateway(settings, profile)
    http = Server(create_app(gateway, settings), settings.server, on_ready=on_ready)
    thread = threading.Thread(target=lambda: uvloop.run(http.serve()), name="gateway")
    thread.start()
    try:
        assert ready.wait(60), "the gateway did not become ready"
        yield urls[0]
    finally:
        http.should_exit = True
        thread.join(30)
    assert not thread.is_alive()


@pytest.fixture
def both(server: EmbeddedTriton, gateway_url: str) -> Iterator[tuple[triton.InferenceServerClient, ...]]:
    """Return a client of the gateway and one of Triton."""
    clients = [triton.InferenceServerClient(url) for url in (gateway_url, server.http_url)]
    yield tuple(clients)
    for client in clients:
        client.close()


def tensor(array: np.ndarray, datatype: str, name: str = "IN", *, binary: bool = True) -> triton.InferInput:
    given = triton.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return given


def random_frames(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).integers(0, 256, (rows, *FRAME), np.uint8)


# ---------------------------------------------------------------- what is said


@pytest.mark.parametrize("model", MODELS)
def test_metadata_and_configuration_are_tritons(both: tuple[Any, Any], model: str) -> None:
    ours, theirs = both
    assert ours.is_model_ready(model)
    assert ours.get_model_metadata(model) == theirs.get_model_metadata(model)
    assert ours.get_model_metadata(model, "1") == theirs.get_model_metadata(model, "1")
    assert ours.get_model_config(model) == theirs.get_model_config(model)


def test_statistics_are_tritons(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    assert ours.get_inference_statistics() == theirs.get_inference_statistics()
    assert ours.get_inference_statistics("versions", "3") == theirs.get_inference_statistics("versions", "3")


def test_the_server_is_live_and_ready(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    assert ours.is_server_live()
    assert ours.is_server_ready()
    assert ours.get_server_metadata().keys() == theirs.get_server_metadata().keys()
    assert not ours.is_model_ready("nothing")
    assert not ours.is_model_ready("versions", "2")


# ---------------------------------------------------------------- inference


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_frames(both: tuple[Any, Any], rows: int, binary_in: bool, binary_out: bool) -> None:
    frames = random_frames(rows)
    wanted = [triton.InferRequestedOutput("OUT", binary_data=binary_out)]
    answers = [
        client.infer("image", [tensor(frames, "UINT8", binary=binary_in)], outputs=wanted, request_id="7")
        for client in both
    ]
    assert answers[0].get_response() == answers[1].get_response()
    np.testing.assert_array_equal(answers[0].as_numpy("OUT"), frames)


def test_more_rows_than_a_batch_holds(gateway_url: str) -> None:
    frames = random_frames(19)
    with triton.InferenceServerClient(gateway_url) as client:
        np.testing.assert_array_equal(client.infer("image", [tensor(frames, "UINT8")]).as_numpy("OUT"), frames)


@pytest.mark.parametrize("width", [VECTOR, VECTOR // 2])
def test_half_precision_is_exact_to_the_bit(both: tuple[Any, Any], width: int) -> None:
    """All patterns; the narrower ones are not in the profile and go through as they are."""
    patterns = np.arange(65_536, dtype=np.uint16)
    for rows in np.split(patterns.reshape(-1, width), 65_536 // width // 8):
        for client in both:
            answer = client.infer("half", [tensor(rows.view(np.float16), "FP16")]).as_numpy("OUT")
            np.testing.assert_array_equal(answer.view(np.uint16), rows)


@pytest.mark.parametrize(
    ("model", "strings"),
    [
        ("text", [[b"one", "zw\u00f6lf".encode(), b""], [b"a" * 70_000, b" ", b"\n"]]),
        ("blob", [[b"\x00\xff\xfe", b"", bytes(range(256)) * 300], [b"x", b"\x80", b"\x00" * 9]]),
    ],
)
def test_strings_are_exact_to_the_byte(both: tuple[Any, Any], model: str, strings: list[list[bytes]]) -> None:
    array = np.array(strings, np.object_)
    for client in both:
        answer = client.infer(model, [tensor(array, "BYTES")])
        assert answer.as_numpy("OUT").tolist() == strings
        assert answer.get_response()["outputs"][0]["shape"] == [2, 3]


def test_strings_as_json(both: tuple[Any, Any]) -> None:
    array = np.array([["one", "zw\u00f6lf"]], np.object_)
    wanted = [triton.InferRequestedOutput("OUT", binary_data=False)]
    answers = [client.infer("text", [tensor(array, "BYTES", binary=False)], outputs=wanted) for client in both]
    assert answers[0].get_response() == answers[1].get_response()


def test_a_model_without_a_batch_axis(both: tuple[Any, Any]) -> None:
    array = np.array([1.5, -0.0, np.inf, 1e-45], np.float32)
    answers = [client.infer("single", [tensor(array, "FP32")]) for client in both]
    assert answers[0].get_response() == answers[1].get_response()
    assert answers[0].as_numpy("OUT").tobytes() == array.tobytes()


def test_two_inputs_and_the_outputs_that_are_asked_for(both: tuple[Any, Any]) -> None:
    a, b = np.random.default_rng(1).random((2, 3, 4), np.float32)
    inputs = [tensor(a, "FP32", "A"), tensor(b, "FP32", "B", binary=False)]
    wanted = [triton.InferRequestedOutput("DIFFERENCE"), triton.InferRequestedOutput("SUM", binary_data=False)]
    for client in both:
        answer = client.infer("sums", inputs, outputs=wanted)
        assert {output["name"] for output in answer.get_response()["outputs"]} == {"DIFFERENCE", "SUM"}
        np.testing.assert_array_equal(answer.as_numpy("DIFFERENCE"), a - b)
        np.testing.assert_array_equal(answer.as_numpy("SUM"), a + b)
    [one] = both[0].infer("sums", inputs, outputs=wanted[:1]).get_response()["outputs"]
    assert one["name"] == "DIFFERENCE"


def test_versions(both: tuple[Any, Any]) -> None:
    array = np.ones((1, 3), np.float32)
    for version, ran in (("", "3"), ("1", "1"), ("3", "3")):
        for client in both:
            answer = client.infer("versions", [tensor(array, "FP32")], model_version=version)
            assert answer.get_response()["model_version"] == ran


def test_a_deadline(gateway_url: str) -> None:
    frames = random_frames(4)
    with triton.InferenceServerClient(gateway_url) as client:
        answer = client.infer("image", [tensor(frames, "UINT8")], parameters={"deadline_ms": 1_000})
        np.testing.assert_array_equal(answer.as_numpy("OUT"), frames)
        assert answer.get_response()["parameters"]["outcome"] == "met"
        with pytest.raises(InferenceServerException, match="longer than the deadline") as refused:
            client.infer("image", [tensor(frames, "UINT8")], parameters={"deadline_ms": 2})
        assert refused.value.status() == "422"


def test_the_asyncio_client(gateway_url: str) -> None:
    """Twelve clients at a time, each with its own frames."""

    async def main() -> None:
        async with triton_aio.InferenceServerClient(gateway_url) as client:
            assert await client.is_server_ready()
            assert await client.is_model_ready("image")
            assert (await client.get_model_metadata("image"))["name"] == "image"
            frames = [random_frames(1 + n % 3) for n in range(12)]
            answers = await asyncio.gather(*(client.infer("image", [_tensor_aio(f)]) for f in frames))
            for sent, answer in zip(frames, answers, strict=True):
                np.testing.assert_array_equal(answer.as_numpy("OUT"), sent)

    asyncio.run(main())


def _tensor_aio(array: np.ndarray) -> triton_aio.InferInput:
    given = triton_aio.InferInput("IN", list(array.shape), "UINT8")
    given.set_data_from_numpy(array)
    return given


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.infer("image", [tensor(random_frames(1), "UINT8", "OTHER")]),
        lambda client: client.infer("image", [tensor(random_frames(1).astype(np.int8), "INT8")]),
        lambda client: client.infer("image", [tensor(random_frames(1)[0], "UINT8")]),
        lambda client: client.infer("sums", [tensor(np.ones((1, 4), np.float32), "FP32", "A")]),
        lambda client: client.infer("sums", [tensor(np.ones((1, 4), np.float32), "FP32", n) for n in "AABB"]),
        lambda client: client.infer("versions", [tensor(np.ones((9, 4), np.float32), "FP32")]),
        lambda client: client.infer("nothing", [tensor(random_frames(1), "UINT8")]),
        lambda client: client.infer("image", [tensor(random_frames(1), "UINT8")], model_version="2"),
        lambda client: client.infer(
            "image", [tensor(random_frames(1), "UINT8")], outputs=[triton.InferRequestedOutput("OTHER")]
        ),
    ],
)
def test_both_refuse_with_the_same_status(both: tuple[Any, Any], call: Callable[[Any], object]) -> None:
    statuses = []
    for client in both:
        with pytest.raises(InferenceServerException) as refused:
            call(client)
        assert refused.value.message()
        statuses.append(refused.value.status())
    assert statuses[0] == statuses[1]


# ---------------------------------------------------------------- perf_analyzer


@pytest.fixture(scope="module")
def perf_analyzer() -> Tool:
    try:
        return find() or fetch(lambda _: None)
    except PerfAnalyzerError as error:
        pytest.skip(f"no perf_analyzer can be had here: {error}")


@pytest.mark.parametrize(
    "options",
    [
        ["-m", "image", "--shape", "IN:16,16,3", "-b", "1", "--concurrency-range", "4"],
        ["-m", "image", "--shape", "IN:16,16,3", "-b", "8", "--concurrency-range", "2", "--async"],
        ["-m", "sums", "-b", "2", "--concurrency-range", "2"],
        ["-m", "single", "--concurrency-range", "1"],
        ["-m", "half", "--shape", "IN:8192", "-b", "2"],
        ["-m", "image", "--shape", "IN:16,16,3", "--input-tensor-format", "json", "--output-tensor-format", "json"],
    ],
)  # fmt: skip
def test_perf_analyzer_completes(perf_analyzer: Tool, gateway_url: str, options: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [str(perf_analyzer.path), "-u", gateway_url, "-i", "http", "--request-count", "30", *options],
        env=perf_analyzer.environment(gateway_url),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Request count: 30" in done.stdout
    assert "Inference count:" in done.stdout, "it read no statistics"
