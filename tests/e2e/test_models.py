"""Four models, both formats, in one Triton at once: every answer is the source's own."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import cv2
import numpy as np
import onnxruntime as ort
import pytest
import tritonclient.grpc as grpcclient
from deface_reference import DefaceReference

from gateway.triton.embedded import EmbeddedTriton
from gateway.zoo import clips
from gateway.zoo.files import default_repository

pytestmark = [pytest.mark.e2e, pytest.mark.zoo, pytest.mark.slow]

CLASSIFIERS = ("mobilenet_v2", "resnet50", "inception_v3")
ONNX = ("mobilenet_v2", "resnet50", "centerface")
#: The second size is neither square nor the one at which Keras trains.
SIZES = ((224, 224), (240, 352))
#: Two runtimes add the same numbers in another order.
TOLERANCE = 1e-4

Infer = Callable[[str, np.ndarray], dict[str, np.ndarray]]


def frames(height: int, width: int, count: int = 3) -> np.ndarray:
    """Real pictures, UINT8 [count, height, width, 3]: one in ten of a talking face."""
    taken = []
    with av.open(str(clips.fetch("carphone"))) as video:
        for index, frame in enumerate(video.decode(video=0)):
            if index % 10 == 0:
                taken.append(cv2.resize(frame.to_ndarray(format="rgb24"), (width, height)))
            if len(taken) == count:
                return np.stack(taken)
    raise AssertionError("the clip is too short")


@pytest.fixture(scope="module")
def infer(triton_server: EmbeddedTriton, built_models: Callable[..., Path]) -> Iterator[Infer]:
    """Call a model of the one Triton in which all four are loaded."""
    built_models(*CLASSIFIERS)
    client = grpcclient.InferenceServerClient(triton_server.grpc_url)
    names = (*CLASSIFIERS, "centerface")
    for name in names:
        client.load_model(name)
    assert all(client.is_model_ready(name) for name in names)

    def call(name: str, batch: np.ndarray) -> dict[str, np.ndarray]:
        tensor = grpcclient.InferInput("image", batch.shape, "UINT8")
        tensor.set_data_from_numpy(batch)
        answer = client.infer(name, [tensor])
        return {output.name: answer.as_numpy(output.name) for output in answer.get_response().outputs}

    yield call
    for name in CLASSIFIERS:
        client.unload_model(name)
    client.close()


@pytest.fixture(scope="module")
def keras_answers(built_models: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """``model/HxW`` -> probabilities from Keras, computed in another process."""
    built_models(*CLASSIFIERS)
    directory = tmp_path_factory.mktemp("keras")
    np.savez(directory / "in.npz", **{f"{height}x{width}": frames(height, width) for height, width in SIZES})
    script = Path(__file__).with_name("keras_reference.py")
    arguments = [str(directory / "in.npz"), str(directory / "out.npz"), *CLASSIFIERS]
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(directory / "out.npz") as answers:
        return dict(answers)


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_answer_what_keras_answers(
    infer: Infer, keras_answers: dict[str, np.ndarray], name: str, height: int, width: int
) -> None:
    answer = infer(name, frames(height, width))["probabilities"]
    assert answer.dtype == np.float32
    np.testing.assert_allclose(answer, keras_answers[f"{name}/{height}x{width}"], rtol=0, atol=TOLERANCE)
    # The comparison says something: answers are distributions that differ from frame to frame and from uniform.
    np.testing.assert_allclose(answer.sum(axis=1), 1, atol=1e-4)
    assert np.abs(answer[0] - answer[2]).max() > 20 * TOLERANCE
    assert answer.max() > 0.01


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_centerface_answers_what_the_published_file_answers(infer: Infer, height: int, width: int) -> None:
    reference = DefaceReference()
    batch = frames(height, width)
    maps = infer("centerface", batch)
    for index, picture in enumerate(batch):
        expected = reference(picture)
        assert set(expected) == set(maps)
        faces = expected["heatmap"][0] > 0.3
        assert faces.any()
        for name, values in expected.items():
            difference = np.abs(maps[name][index] - values)
            if height % 32 == 0 and width % 32 == 0:
                assert difference.max() < TOLERANCE, name
            else:
                # The graph resizes in floating point, cv2 in fixed point; what counts is where a face is.
                assert difference[:, faces].max() < 0.03, name
        assert np.abs(maps["heatmap"][index] - expected["heatmap"]).max() < 0.01


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("name", ONNX)
def test_triton_answers_what_onnx_runtime_answers(infer: Infer, name: str, height: int, width: int) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    path = default_repository() / name / "1" / "model.onnx"
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    batch = frames(height, width)
    answer = infer(name, batch)
    outputs = [output.name for output in session.get_outputs()]
    for output, expected in zip(outputs, session.run(outputs, {"image": batch}), strict=True):
        np.testing.assert_allclose(answer[output], expected, rtol=0, atol=1e-5, err_msg=output)


@pytest.mark.parametrize("name", [*CLASSIFIERS, "centerface"])
def test_a_batch_answers_what_its_frames_answer_alone(infer: Infer, name: str) -> None:
    batch = frames(96, 128)
    together = infer(name, batch)
    for index in range(len(batch)):
        alone = infer(name, batch[index : index + 1])
        for output, values in alone.items():
            np.testing.assert_allclose(together[output][index], values[0], rtol=0, atol=TOLERANCE, err_msg=output)
