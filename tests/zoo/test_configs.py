"""Every model's config.pbtxt, read with Triton's own protobuf, says what Framegate relies on."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from gateway.zoo.files import default_repository
from gateway.zoo.registry import MODELS

CLASSIFIERS = [name for name in MODELS if name != "centerface"]


def read(name: str) -> model_config_pb2.ModelConfig:
    text = (default_repository() / name / "config.pbtxt").read_text()
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def test_the_repository_holds_the_zoos_models_and_no_others() -> None:
    configured = {path.parent.name for path in default_repository().glob("*/config.pbtxt")}
    assert configured == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_frames_go_in_as_bytes_of_any_size(name: str) -> None:
    config = read(name)
    assert config.name == name
    assert [(i.name, i.data_type, list(i.dims)) for i in config.input] == [
        ("image", model_config_pb2.TYPE_UINT8, [-1, -1, 3])
    ]
    assert config.max_batch_size == 16


@pytest.mark.parametrize("name", MODELS)
def test_triton_forms_no_batches_and_runs_one_model_at_a_time(name: str) -> None:
    config = read(name)
    assert config.WhichOneof("scheduling_choice") is None
    (group,) = config.instance_group
    assert group.count == 1
    assert group.kind == model_config_pb2.ModelInstanceGroup.KIND_AUTO
    (resource,) = group.rate_limiter.resources
    # One name for all models: that is what keeps them apart.
    assert (resource.name, getattr(resource, "global"), resource.count) == ("device", True, 1)


@pytest.mark.parametrize("name", MODELS)
def test_the_config_names_the_runtime_of_the_file(name: str) -> None:
    config = read(name)
    if MODELS[name].file == "model.graphdef":
        assert (config.platform, config.backend) == ("tensorflow_graphdef", "")
    else:
        assert (config.platform, config.backend) == ("", "onnxruntime")


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_have_a_label_for_each_class(name: str) -> None:
    (output,) = read(name).output
    assert (output.name, output.data_type, list(output.dims)) == ("probabilities", model_config_pb2.TYPE_FP32, [1000])
    labels = (default_repository() / name / output.label_filename).read_text().splitlines()
    assert len(labels) == 1000
    assert all(label.strip() == label and label for label in labels)
    # The order is that of the training data: fish first, toilet tissue last.
    assert (labels[0], labels[281], labels[999]) == ("tench", "tabby", "toilet tissue")


def test_centerface_describes_its_four_maps() -> None:
    outputs = {output.name: list(output.dims) for output in read("centerface").output}
    assert outputs == {
        "heatmap": [1, -1, -1],
        "scale": [2, -1, -1],
        "offset": [2, -1, -1],
        "landmarks": [10, -1, -1],
    }
