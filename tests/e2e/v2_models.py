"""Small models for `/v2`: identities of several datatypes, one without a batch axis, one with two inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

#: Triton's datatype -> ONNX's, and how the config spells it.
_TYPES = {
    "UINT8": (TensorProto.UINT8, "TYPE_UINT8"),
    "FP16": (TensorProto.FLOAT16, "TYPE_FP16"),
    "FP32": (TensorProto.FLOAT, "TYPE_FP32"),
    "BYTES": (TensorProto.STRING, "TYPE_STRING"),
}
#: An identity in Python: ONNX Runtime takes UTF-8 for strings, nothing else.
_PYTHON_IDENTITY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())]
            )
            for request in requests
        ]
"""


def identity(
    repository: Path, name: str, dtype: str, dims: Sequence[int], *, max_batch: int = 8, versions: Sequence[int] = (1,)
) -> None:
    """Write a model with input ``IN`` and output ``OUT`` that returns what it gets."""
    onnx_type, _ = _TYPES[dtype]
    shape = [*(["n"] if max_batch else []), *(f"d{i}" if dim < 0 else dim for i, dim in enumerate(dims))]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["IN"], ["OUT"])],
        name,
        [helper.make_tensor_value_info("IN", onnx_type, shape)],
        [helper.make_tensor_value_info("OUT", onnx_type, shape)],
    )
    sides = {"input": [("IN", dtype, dims)], "output": [("OUT", dtype, dims)]}
    for version in versions:
        _write(repository, name, graph, sides, max_batch, version)


def add_and_subtract(repository: Path, name: str, dims: Sequence[int], *, max_batch: int = 8) -> None:
    """Write a model with FP32 inputs ``A`` and ``B`` and outputs ``SUM`` and ``DIFFERENCE``."""
    shape = [*(["n"] if max_batch else []), *dims]
    graph = helper.make_graph(
        [helper.make_node("Add", ["A", "B"], ["SUM"]), helper.make_node("Sub", ["A", "B"], ["DIFFERENCE"])],
        name,
        [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, shape) for tensor in ("A", "B")],
        [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, shape) for tensor in ("SUM", "DIFFERENCE")],
    )
    sides = {
        "input": [(tensor, "FP32", dims) for tensor in ("A", "B")],
        "output": [(tensor, "FP32", dims) for tensor in ("SUM", "DIFFERENCE")],
    }
    _write(repository, name, graph, sides, max_batch, 1)


def python_identity(repository: Path, name: str, dtype: str, dims: Sequence[int], *, max_batch: int = 8) -> None:
    """Write an identity that Triton's Python backend runs."""
    sides = {"input": [("IN", dtype, dims)], "output": [("OUT", dtype, dims)]}
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(_config(name, "python", sides, max_batch))
    (repository / name / "1" / "model.py").write_text(_PYTHON_IDENTITY)


def _write(
    repository: Path,
    name: str,
    graph: onnx.GraphProto,
    sides: dict[str, list[tuple[str, str, Sequence[int]]]],
    max_batch: int,
    version: int,
) -> None:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    config = _config(name, "onnxruntime", sides, max_batch)
    (repository / name / "config.pbtxt").write_text(config + "version_policy { all {} }\n")


def _config(name: str, backend: str, sides: dict[str, list[tuple[str, str, Sequence[int]]]], max_batch: int) -> str:
    lines = [f'name: "{name}"', f'backend: "{backend}"', f"max_batch_size: {max_batch}"]
    for side, tensors in sides.items():
        for tensor, dtype, dims in tensors:
            lines.append(f'{side} [ {{ name: "{tensor}" data_type: {_TYPES[dtype][1]} dims: {list(dims)} }} ]')
    return "\n".join(lines) + "\n"
