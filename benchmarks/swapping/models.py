"""The models of the swapping experiments, in a repository of their own.

Seven of them are generated: nets that apply large matrices to a small picture, over and over. As with the language
models of the paper, an execution is bound by reading the weights, so that eight frames take little longer than one, and
all are of one kind; they differ in how many matrices they have, and so in how long they load. Two are real: a face
detector and a classifier.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gateway.core.types import Category
from gateway.zoo.build import build
from gateway.zoo.files import default_repository

#: Side of the generated nets' pictures, rows and columns of their matrices, and how often one is applied.
SIDE, WIDTH, STEPS = 32, 4_096, 18
MOST_FRAMES = 32
_OPSET, _IR_VERSION = 13, 8
_SEED = 5
_CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: {most}
input [ {{ name: "image" data_type: TYPE_UINT8 dims: [ {side}, {side}, 3 ] }} ]
output [ {{ name: "scores" data_type: TYPE_FP32 dims: [ 10 ] }} ]
instance_group [ {{ count: 1 rate_limiter {{ resources [ {{ name: "device" global: true count: 1 }} ] }} }} ]
"""


@dataclass(frozen=True)
class TestModel:
    """One model as the experiments use it.

    Attributes:
        shape: Of a frame.
        matrices: Of a generated net; 0: a real model.
    """

    __test__ = False

    name: str
    shape: tuple[int, ...]
    matrices: int = 0

    @property
    def category(self) -> Category:
        """Model, version, shape and dtype of its frames."""
        return Category(self.name, "1", self.shape, "UINT8")

    def frame(self) -> bytes:
        """A picture of noise."""
        return np.random.default_rng(_SEED).integers(0, 256, math.prod(self.shape), dtype=np.uint8).tobytes()


NETS = tuple(TestModel(f"net_{n}", (SIDE, SIDE, 3), matrices) for n, matrices in enumerate((1, 2, 3, 1, 2, 3), 1))
FACES = TestModel("centerface", (96, 128, 3))
CLASSES = TestModel("mobilenet_v2", (160, 160, 3))
#: One more net, for where frames with deadlines run beside it: it is profiled, and warmed, in small batches.
EXTRA = TestModel("net_0", (SIDE, SIDE, 3), 1)
ALL = (*NETS, EXTRA, FACES, CLASSES)


def make_repository(folder: Path) -> Path:
    """Build what is not there yet of a model repository with `ALL`; return it. Takes some seconds and 1.2 GB."""
    for model in ALL:
        target = folder / model.name
        if (target / "1" / "model.onnx").exists():
            continue
        if model.matrices:
            _write_net(target, model)
        else:
            build(model.name)
            shutil.copytree(default_repository() / model.name, target, dirs_exist_ok=True)
    return folder


def _write_net(target: Path, model: TestModel) -> None:
    (target / "1").mkdir(parents=True, exist_ok=True)
    (target / "config.pbtxt").write_text(_CONFIG.format(name=model.name, most=MOST_FRAMES, side=SIDE))
    part = target / "1" / "model.part"
    onnx.save(_net(model.matrices), str(part))
    part.rename(target / "1" / "model.onnx")


def _net(matrices: int) -> onnx.ModelProto:
    """`image` UINT8 [n, SIDE, SIDE, 3] -> `scores` FP32 [n, 10], through `STEPS` products with `matrices` matrices.

    The steps are a loop: a matrix that several nodes use would be made ready for each of them when it is loaded.
    """
    random = np.random.default_rng(_SEED)
    sizes = {"first": (SIDE * SIDE * 3, WIDTH), "last": (WIDTH, 10)}
    sizes |= {f"matrix_{n}": (WIDTH, WIDTH) for n in range(matrices)}
    weights = [
        numpy_helper.from_array(random.standard_normal(size, np.float32) / np.float32(math.sqrt(size[0])), name)
        for name, size in sizes.items()
    ]
    weights += [
        numpy_helper.from_array(np.array(STEPS // matrices, np.int64), "rounds"),
        numpy_helper.from_array(np.array(True), "always"),
    ]
    nodes = [
        helper.make_node("Cast", ["image"], ["levels"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["levels"], ["row"], axis=1),
        helper.make_node("MatMul", ["row", "first"], ["begin"]),
        helper.make_node("Loop", ["rounds", "always", "begin"], ["end"], body=_round(matrices)),
        helper.make_node("MatMul", ["end", "last"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["n", SIDE, SIDE, 3])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = _IR_VERSION
    return model


def _round(matrices: int) -> onnx.GraphProto:
    """The body of the loop: one product with each matrix."""
    nodes = [helper.make_node("Identity", ["go_on"], ["goes_on"])]
    for n in range(matrices):
        nodes.append(helper.make_node("MatMul", [f"state_{n}", f"matrix_{n}"], [f"sum_{n}"]))
        nodes.append(helper.make_node("Tanh", [f"sum_{n}"], [f"state_{n + 1}"]))
    return helper.make_graph(
        nodes,
        "round",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state_0", TensorProto.FLOAT, ["n", WIDTH]),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"state_{matrices}", TensorProto.FLOAT, ["n", WIDTH]),
        ],
    )
