"""Keras models that take raw frames of any size: the architecture of `keras.applications` behind a preparation.

Random weights are made to behave: freshly drawn ones give almost the same answer to every picture (or overflow in
152 layers). So one batch of seeded pictures calibrates them: each BatchNormalization takes the statistics of its own
input, and the last layer is scaled until its logits differ between pictures. Needs TensorFlow and Keras.
"""

from __future__ import annotations

import importlib
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from gateway.zoo.registry import ModelSpec, Preparation

#: The only size at which Keras builds all these networks with their top.
NATIVE = 224
CLASSES = 1000
#: Mean of ImageNet's channels in the order blue, green, red (`keras.applications.imagenet_utils`, mode "caffe").
MEAN_BGR = (103.939, 116.779, 123.68)
#: Standard deviation of the calibrated logits: some classes stand out, none takes all.
_LOGIT_STD = 2.0
_CALIBRATION_PICTURES = 8


def original(spec: ModelSpec, weights: str, seed: int) -> keras.Model:
    """Return the network as Keras makes it: prepared FP32 [N, 224, 224, 3] in, probabilities [N, 1000] out."""
    application = getattr(keras.applications, spec.source)
    if weights == "imagenet":
        return (
            application(weights="imagenet", input_shape=(NATIVE, NATIVE, 3))
            if spec.source != "InceptionV3"
            else (application(weights="imagenet"))
        )
    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()
    network = application(weights=None, input_shape=(NATIVE, NATIVE, 3), classes=CLASSES)
    _calibrate(network, prepare_like_keras(spec, calibration_pictures(seed)), seed)
    return network


def servable(spec: ModelSpec, network: keras.Model) -> keras.Model:
    """Return the model that is exported: `image` UINT8 [N, H, W, 3] RGB in, `probabilities` out, same weights."""
    image = keras.Input((None, None, 3), dtype="uint8", name="image")
    pixels = keras.ops.cast(image, "float32")
    if spec.preparation is Preparation.CAFFE:
        prepared = pixels[..., ::-1] - np.array(MEAN_BGR, np.float32)
    else:
        prepared = pixels / 127.5 - 1.0
    if spec.any_size_by_resize:
        output = prepared
        for layer in network.layers[1:]:
            if layer.name == "flatten":
                output = keras.layers.Resizing(7, 7, interpolation="bilinear", name="resize_to_7x7")(output)
            output = layer(output)
    else:
        free = keras.models.clone_model(network, input_tensors=keras.Input((None, None, 3), name="prepared"))
        free.set_weights(network.get_weights())
        output = free(prepared)
    return keras.Model(image, keras.layers.Identity(name="probabilities")(output), name=spec.name)


def prepare_like_keras(spec: ModelSpec, pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return what Keras's own `preprocess_input` of this network makes of RGB [N, H, W, 3]."""
    module = {"MobileNetV2": "mobilenet_v2", "InceptionV3": "inception_v3", "VGG16": "vgg16", "VGG19": "vgg19"}
    package = importlib.import_module(f"keras.applications.{module.get(spec.source, 'resnet')}")
    prepared: npt.NDArray[np.float32] = package.preprocess_input(pictures.astype(np.float32))
    return prepared


def calibration_pictures(seed: int, count: int = _CALIBRATION_PICTURES) -> npt.NDArray[np.uint8]:
    """Return coloured patterns of differing coarseness, UINT8 [count, 224, 224, 3]; noise would look all the same."""
    random = np.random.default_rng(seed)
    pictures = []
    for index in range(count):
        cells = (2, 4, 7, 14, 28, 56)[index % 6]
        colours = random.integers(0, 256, (cells, cells, 3), dtype=np.uint8)
        pictures.append(np.kron(colours, np.ones((NATIVE // cells, NATIVE // cells, 1), np.uint8)))
    return np.stack(pictures)


def _calibrate(network: keras.Model, prepared: npt.NDArray[np.float32], seed: int) -> None:
    """Give random weights sane scales, from one batch of prepared pictures."""
    layers: list[Any] = network.layers
    norms = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
    if not norms:  # VGG: Glorot's scale halves the variance at every ReLU, He's keeps it
        random = np.random.default_rng(seed)
        for layer in layers:
            if layer.weights and layer is not layers[-1]:
                kernel, bias = layer.get_weights()
                fan_in = int(np.prod(kernel.shape[:-1]))
                drawn = random.standard_normal(kernel.shape, dtype=np.float32) * np.float32(np.sqrt(2.0 / fan_in))
                layer.set_weights([drawn, bias])
    for norm in norms:
        norm.momentum = 0.0  # the moving statistics become those of the one batch
    if norms:
        network(prepared, training=True)
    last = layers[-1]
    features = keras.Model(network.inputs, last.input).predict(prepared, verbose=0)
    kernel, bias = last.get_weights()
    logits = features @ kernel
    scale = _LOGIT_STD / max(float((logits - logits.mean(axis=0)).std()), 1e-12)
    last.set_weights([kernel * scale, bias - logits.mean(axis=0) * scale])
