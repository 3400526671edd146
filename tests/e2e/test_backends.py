"""The Python-based backends refuse what they cannot serve, in words, and obey the config."""

import itertools
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonclient.grpc as grpcclient
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from gateway.triton.embedded import EmbeddedTriton

pytestmark = pytest.mark.e2e

CONFIG = """
name: "{name}"
{backend}
max_batch_size: 4
input [ {{ name: "{input}" data_type: {dtype} dims: {dims} }} ]
output [ {{ name: "doubled" data_type: {dtype} dims: {dims} }}, {{ name: "negated" data_type: {dtype} dims: {dims} }} ]
{more}
"""
ONNX = 'backend: "onnxruntime"'
GRAPHDEF = 'platform: "tensorflow_graphdef"'


def write_model(
    repository: Path,
    name: str,
    content: bytes | None,
    *,
    backend: str = ONNX,
    input: str = "x",
    dtype: str = "TYPE_FP32",
    dims: str = "[ -1 ]",
    more: str = "",
) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    text = CONFIG.format(name=name, backend=backend, input=input, dtype=dtype, dims=dims, more=more)
    (repository / name / "config.pbtxt").write_text(text)
    if content is not None:
        (version / ("model.onnx" if backend == ONNX else "model.graphdef")).write_bytes(content)


def double_and_negate() -> bytes:
    """FP32 [n, k] -> doubled = x + x, negated = -x."""
    shape = ["n", "k"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["doubled"]), helper.make_node("Neg", ["x"], ["negated"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("doubled", "negated")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpcclient.InferenceServerClient]:
    directory = tmp_path_factory.mktemp("backends")
    repository = directory / "models"
    good = double_and_negate()
    threads = 'parameters { key: "intra_op_thread_count" value: { string_value: "1" } }'
    write_model(repository, "good", good, more=threads)
    write_model(repository, "bad_threads", good, more=threads.replace('"1"', '"many"'))
    write_model(repository, "no_file", None)
    write_model(repository, "no_onnx", b"this is not a model")
    write_model(repository, "other_input", good, input="y")
    write_model(repository, "other_dtype", good, dtype="TYPE_FP16")
    write_model(repository, "other_rank", good, dims="[ -1, -1 ]")
    write_model(repository, "no_graphdef_file", None, backend=GRAPHDEF)
    write_model(repository, "no_graphdef", b"this is not a graph", backend=GRAPHDEF)
    with EmbeddedTriton(repository, directory / "triton.log") as triton:
        client = grpcclient.InferenceServerClient(triton.grpc_url)
        yield client
        client.close()
    shutil.rmtree(repository)


def test_only_the_outputs_asked_for_are_sent(client: grpcclient.InferenceServerClient) -> None:
    client.load_model("good")
    values = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    tensor = grpcclient.InferInput("x", values.shape, "FP32")
    tensor.set_data_from_numpy(values)
    answer = client.infer("good", [tensor], outputs=[grpcclient.InferRequestedOutput("negated")])
    np.testing.assert_array_equal(answer.as_numpy("negated"), -values)
    assert answer.as_numpy("doubled") is None
    np.testing.assert_array_equal(client.infer("good", [tensor]).as_numpy("doubled"), 2 * values)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_file", "framegate zoo build no_file"),
        ("no_onnx", "model.onnx"),
        ("other_input", r"input 'y' is not in the model, which has \['x'\]"),
        ("other_dtype", r"input 'x' is TYPE_FP16, the model: tensor\(float\)"),
        ("other_rank", r"input 'x' has the shape \[-1, -1, -1\], the model: \[-1, -1\]"),
        ("bad_threads", "invalid literal for int"),
        ("no_graphdef_file", "framegate zoo build no_graphdef_file"),
        ("no_graphdef", "is not a GraphDef"),
    ],
)
def test_a_model_that_does_not_fit_its_config_is_refused_in_words(
    client: grpcclient.InferenceServerClient, name: str, words: str
) -> None:
    with pytest.raises(InferenceServerException, match=words):
        client.load_model(name)
    assert not client.is_model_ready(name)


def test_the_small_model_is_valid() -> None:
    onnx.checker.check_model(onnx.load_from_string(double_and_negate()), full_check=True)


SLEEPER = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for _ in requests:
            began = time.monotonic()
            time.sleep(0.15)
            span = np.array([[began, time.monotonic()]])
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("span", span)]))
        return answers
"""
SLEEPER_CONFIG = """
name: "{name}"
backend: "sleeper"
max_batch_size: 4
input [ {{ name: "x" data_type: TYPE_UINT8 dims: [ 1 ] }} ]
output [ {{ name: "span" data_type: TYPE_FP64 dims: [ 2 ] }} ]
instance_group [ {{ count: 1 rate_limiter {{ resources [ {{ name: "{resource}" global: true count: 1 }} ] }} }} ]
"""


def test_models_that_share_a_resource_never_run_at_once(tmp_path: Path) -> None:
    (tmp_path / "backends/sleeper").mkdir(parents=True)
    (tmp_path / "backends/sleeper/model.py").write_text(SLEEPER)
    for name, resource in (("one", "device"), ("two", "device"), ("apart", "another")):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        config = SLEEPER_CONFIG.format(name=name, resource=resource)
        (tmp_path / "models" / name / "config.pbtxt").write_text(config)
    repository, backends = tmp_path / "models", tmp_path / "backends"
    with EmbeddedTriton(
        repository, tmp_path / "triton.log", models=["one", "two", "apart"], backends=backends
    ) as triton:
        client = grpcclient.InferenceServerClient(triton.grpc_url)
        tensor = grpcclient.InferInput("x", (1, 1), "UINT8")
        tensor.set_data_from_numpy(np.zeros((1, 1), np.uint8))
        spans: dict[str, list[tuple[float, float]]] = {"one": [], "two": [], "apart": []}
        done = threading.Semaphore(0)

        def answered(name: str, result: grpcclient.InferResult, error: Exception | None) -> None:
            if error is None:
                spans[name].append(tuple(result.as_numpy("span")[0]))
            done.release()

        for name in ("one", "two", "apart") * 3:
            client.async_infer(name, [tensor], partial(answered, name))
        assert all(done.acquire(timeout=10) for _ in range(9))
        client.close()
    shared = sorted(spans["one"] + spans["two"])
    assert len(shared) == 6
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(shared))
    # The test could fail: the model that shares nothing did run beside them.
    assert any(
        begin < other_end and other_begin < end for begin, end in spans["apart"] for other_begin, other_end in shared
    )
