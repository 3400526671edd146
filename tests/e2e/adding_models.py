"""Tiny ONNX models for the real Triton whose answers tell the version: each adds its own number to every pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

#: Height, width and channels of their frames; any size is taken.
SHAPE = (8, 8, 3)

_CONFIG = """
name: "{name}"
backend: "onnxruntime"
max_batch_size: {max_batch}
input [ {{ name: "pixels" data_type: TYPE_UINT8 dims: [ {dims} ] }} ]
output [ {{ name: "sum" data_type: TYPE_UINT8 dims: [ {dims} ] }} ]
instance_group [ {{ count: 1 rate_limiter {{ resources [ {{ name: "device" global: true count: 1 }} ] }} }} ]
{more}
"""


def adding(number: int, dims: tuple[int, ...] = (-1, -1, 3)) -> bytes:
    """Return a model that adds `number` to UINT8 pixels, modulo 256."""
    shape = ["n", *(f"d{i}" if dim < 0 else dim for i, dim in enumerate(dims))]
    nodes = [
        helper.make_node("Cast", ["pixels"], ["wide"], to=TensorProto.INT32),
        helper.make_node("Add", ["wide", "number"], ["wide_sum"]),
        helper.make_node("Cast", ["wide_sum"], ["sum"], to=TensorProto.UINT8),
    ]
    graph = helper.make_graph(
        nodes,
        "adding",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("sum", TensorProto.UINT8, shape)],
        initializer=[numpy_helper.from_array(np.array([number], np.int32), "number")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def put_config(
    repository: Path, name: str, *, dims: tuple[int, ...] = (-1, -1, 3), max_batch: int = 8, more: str = ""
) -> Path:
    """Write the configuration of a model; return its directory."""
    directory = repository / name
    directory.mkdir(parents=True, exist_ok=True)
    text = _CONFIG.format(name=name, max_batch=max_batch, dims=", ".join(map(str, dims)), more=more)
    (directory / "config.pbtxt").write_text(text)
    return directory


def put_version(repository: Path, name: str, version: int, content: bytes | None = None) -> None:
    """Put a version that adds its own number, or that has other content, in place, whole from the first instant."""
    directory = repository / name
    if not directory.is_dir():
        put_config(repository, name)
    made = directory / f".{version}"
    made.mkdir()
    (made / "model.onnx").write_bytes(adding(version) if content is None else content)
    made.rename(directory / str(version))
