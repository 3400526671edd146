"""The process that builds one Keras model: ``python -m gateway.zoo.keras_build '{"model": ..., ...}'``.

A process of its own, because TensorFlow does not give memory back. Lines that begin with ``progress:`` are for the
parent; the rest is chatter of the libraries.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

# Before TensorFlow is imported: its C++ side reports the CPU's instructions and missing GPUs.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

from gateway.zoo.build import PROGRESS_PREFIX, Weights, digest_of_arrays, write_model
from gateway.zoo.keras_models import original, servable
from gateway.zoo.registry import find

if TYPE_CHECKING:
    from tf2onnx.optimizer.optimizer_base import GraphOptimizerBase

OPSET = 13
INPUT = "image"
OUTPUT = "probabilities"


def main(arguments: list[str]) -> None:
    """Build the model that the JSON in the only argument names."""
    request = json.loads(arguments[0])
    spec = find(request["model"])
    weights = Weights(request["weights"])
    _say(f"building {spec.source} with {weights} weights")
    network = original(spec, weights, request["seed"])
    digest = digest_of_arrays([array.tobytes() for array in network.get_weights()])
    model = servable(spec, network)
    del network
    libraries: tuple[str, ...] = ("tensorflow-cpu", "keras")
    if spec.file.endswith(".onnx"):
        write = _onnx_writer(model)
        libraries += ("tf2onnx", "onnx")
    else:
        write = _graphdef_writer(model)
    del model
    _say("writing")
    write_model(
        spec,
        Path(request["repository"]),
        write,
        source_sha256=digest,
        weights=weights,
        seed=request["seed"],
        libraries=libraries,
    )


def _onnx_writer(model: keras.Model) -> Callable[[Path], None]:
    """Convert with tf2onnx; returns what writes the file.

    tf2onnx copies the whole graph before each optimizer pass and leaves the copies to the garbage collector, which
    does not see how large they are: VGG16 was killed at 24 GB. So only the passes that matter here are run, and each
    one collects first.
    """
    import tf2onnx

    _say("converting to ONNX")
    proto, _ = tf2onnx.convert.from_keras(
        model,
        input_signature=(tf.TensorSpec((None, None, None, 3), tf.uint8, name=INPUT),),
        opset=OPSET,
        optimizers=_frugal_optimizers(),
    )
    names = [tensor.name for tensor in (*proto.graph.input, *proto.graph.output)]
    if names != [INPUT, OUTPUT]:
        raise ValueError(f"tf2onnx named the model's input and output {names}")
    return lambda path: _write_bytes(path, proto.SerializeToString())


def _frugal_optimizers() -> dict[str, Callable[[], GraphOptimizerBase]]:
    from tf2onnx.optimizer import (
        BackToBackOptimizer,
        ConstFoldOptimizer,
        IdentityOptimizer,
        TransposeOptimizer,
    )

    def frugal(name: str, factory: Callable[[], GraphOptimizerBase]) -> Callable[[], GraphOptimizerBase]:
        def make() -> GraphOptimizerBase:
            _say(f"optimizing: {name}")
            gc.collect()
            return factory()

        return make

    wanted = {
        "optimize_transpose": TransposeOptimizer,
        "fold_constants": ConstFoldOptimizer,
        "remove_identity": IdentityOptimizer,
        "remove_back_to_back": BackToBackOptimizer,
    }
    return {name: frugal(name, factory) for name, factory in wanted.items()}


def _graphdef_writer(model: keras.Model) -> Callable[[Path], None]:
    """Freeze the weights into a GraphDef whose nodes `image` and `probabilities` are its input and output."""
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    _say("freezing the graph")
    signature = tf.TensorSpec((None, None, None, 3), tf.uint8, name=INPUT)
    function = tf.function(lambda image: tf.identity(model(image), name=OUTPUT), input_signature=(signature,))
    frozen = convert_variables_to_constants_v2(function.get_concrete_function())
    definition = frozen.graph.as_graph_def()
    return lambda path: _write_bytes(path, definition.SerializeToString())


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _say(text: str) -> None:
    sys.stdout.write(f"{PROGRESS_PREFIX}{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
