"""All eight models, built and compared with their source: gigabytes and minutes; run by `make test-zoo`."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from gateway.zoo.build import build
from gateway.zoo.files import default_repository
from gateway.zoo.registry import MODELS

pytestmark = [pytest.mark.zoo, pytest.mark.zoo_all, pytest.mark.slow, pytest.mark.timeout(900)]

REFERENCE = Path(__file__).parents[1] / "e2e" / "keras_reference.py"
SIZES = ((224, 224), (240, 352))


def patterns(height: int, width: int) -> np.ndarray:
    random = np.random.default_rng(7)
    cells = random.integers(0, 256, (2, height // 16, width // 16, 3), dtype=np.uint8)
    return cells.repeat(16, axis=1).repeat(16, axis=2)


@pytest.mark.parametrize(
    "name", [name for name, spec in MODELS.items() if spec.from_keras and spec.file == "model.onnx"]
)
def test_the_built_file_answers_what_keras_answers(name: str, tmp_path: Path) -> None:
    build(name)
    pictures = {f"{height}x{width}": patterns(height, width) for height, width in SIZES}
    np.savez(tmp_path / "in.npz", **pictures)
    command = [sys.executable, str(REFERENCE), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    session = ort.InferenceSession(
        str(default_repository() / name / "1/model.onnx"), providers=["CPUExecutionProvider"]
    )
    with np.load(tmp_path / "out.npz") as expected:
        for key, batch in pictures.items():
            (answer,) = session.run(None, {"image": batch})
            np.testing.assert_allclose(answer, expected[f"{name}/{key}"], rtol=0, atol=1e-4)
            assert np.abs(answer[0] - answer[1]).max() > 1e-3, "it answers the same to everything"


@pytest.mark.parametrize("name", [name for name, spec in MODELS.items() if spec.file == "model.graphdef"])
def test_graphdefs_are_built(name: str) -> None:
    # What it answers is compared through Triton in tests/e2e/test_models.py; TensorFlow stays out of this process.
    build(name)
    assert not build(name)
