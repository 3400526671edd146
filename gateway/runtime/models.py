"""Which models can be used now, and whether a stream fits one: answered from memory.

The supervisor fills the catalogue from Triton; a caller's model name is only ever looked up in it, so no
odd name reaches Triton or a file system.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace

from gateway.core.profile import Profile
from gateway.core.types import Category, StreamSpec
from gateway.errors import DtypeMismatch, ModelNotLoaded, NotProfiled, ShapeMismatch, UnknownModel
from gateway.triton.types import ModelMetadata, ModelState, latest

#: Triton's own names are freer. These cannot leave a directory; the API takes no others.
MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")

#: Bytes per element. BYTES is missing: its elements have no fixed size, so a frame has none.
DTYPE_BYTES = {
    "BOOL": 1, "INT8": 1, "UINT8": 1, "FP16": 2, "BF16": 2, "INT16": 2, "UINT16": 2,
    "FP32": 4, "INT32": 4, "UINT32": 4, "FP64": 8, "INT64": 8, "UINT64": 8,
}  # fmt: skip

_LISTED = "GET /v1/models lists what there is."


def frame_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Return the size of one frame. Raises `DtypeMismatch` for a type whose elements have no fixed size."""
    if dtype not in DTYPE_BYTES:
        raise DtypeMismatch(f"Frames of type {dtype} have no fixed size.", allowed=sorted(DTYPE_BYTES))
    return math.prod(shape) * DTYPE_BYTES[dtype]


def profiled_pairs(profile: Profile, model: str, version: str, dtype: str) -> list[tuple[Category, int]]:
    """Return every (category, batch size) that the engine may form for this model, small ones first.

    All sizes up to the largest profiled one, not only the profiled ones: a window closes with as many
    frames as have come.
    """
    pairs: list[tuple[Category, int]] = []
    for shape in profile.shapes(model, version, dtype):
        category = Category(model, version, shape, dtype)
        pairs.extend((category, frames) for frames in range(1, profile.max_batch(category) + 1))
    return pairs


class Catalogue:
    """Models as of the last look at Triton."""

    def __init__(self) -> None:
        self._index: list[ModelState] = []
        self._served: dict[tuple[str, str], ModelMetadata] = {}
        self._failures: dict[str, str] = {}

    # ------------------------------------------------------------ the supervisor writes

    def look(self, index: Iterable[ModelState]) -> None:
        """Take a new repository index. Versions that are not ready any more are no longer served."""
        self._index = list(index)
        ready = self.ready_versions()
        self._served = {key: metadata for key, metadata in self._served.items() if key in ready}

    def serve(self, metadata: ModelMetadata) -> None:
        """This version may be used from now on."""
        self._served[metadata.name, metadata.version] = metadata
        self._failures.pop(metadata.name, None)

    def fail(self, model: str, reason: str) -> None:
        """This model was wanted and cannot be used."""
        self._failures[model] = reason
        self._served = {key: metadata for key, metadata in self._served.items() if key[0] != model}

    def clear(self) -> None:
        """Forget what is served: Triton is gone. The last index and the failures stay for display."""
        self._served.clear()

    def ready_versions(self) -> set[tuple[str, str]]:
        """Return (name, version) of all that Triton says is ready."""
        return {(entry.name, entry.version) for entry in self._index if entry.state == "ready"}

    # ------------------------------------------------------------ everybody reads

    @property
    def serving(self) -> frozenset[tuple[str, str]]:
        """(name, version) of all models that can be used."""
        return frozenset(self._served)

    def states(self) -> list[ModelState]:
        """Return the index, with the reason of every failure of the gateway's own."""
        states = [
            ModelState(e.name, e.version, "failed", self._failures[e.name]) if e.name in self._failures else e
            for e in self._index
        ]
        known = {entry.name for entry in self._index}
        states += [ModelState(m, "", "failed", reason) for m, reason in self._failures.items() if m not in known]
        return sorted(states, key=lambda entry: (entry.name, entry.version))

    def served(self, model: str, version: str = "") -> ModelMetadata:
        """Return a served version's metadata; the highest one if `version` is empty.

        Raises:
            UnknownModel: The repository has no such model, or serves no such version of it.
            ModelNotLoaded: The model is there but not in use; says why if that is known.
        """
        versions = [v for name, v in self._served if name == model]
        if not versions:
            known = any(entry.name == model for entry in self._index) or model in self._failures
            if not known:
                raise UnknownModel(f"The model repository has no model {model!r}. {_LISTED}", model=model)
            reason = self._failures.get(model) or "It is not in the list of models to serve."
            raise ModelNotLoaded(f"Model {model!r} is not loaded. {reason}", model=model)
        metadata = self._served.get((model, version or latest(versions)))
        if metadata is None:
            raise UnknownModel(
                f"Model {model!r} has no version {version!r}. {_LISTED}", model=model, versions=sorted(versions)
            )
        return metadata

    def versions(self, model: str) -> tuple[str, ...]:
        """Return the versions of a model that can be used, lowest first."""
        return tuple(sorted((v for name, v in self._served if name == model), key=lambda v: (len(v), v)))

    def resolve(self, spec: StreamSpec, profile: Profile) -> StreamSpec:
        """Return `spec` with the version filled in, checked against the model.

        Raises:
            UnknownModel, ModelNotLoaded: As `served`.
            ShapeMismatch, DtypeMismatch: The frames are not what the model takes.
            NotProfiled: The profile was made for larger batches than the model takes now.
        """
        metadata = self.served(spec.model, spec.version)
        if len(metadata.inputs) != 1:
            raise ShapeMismatch(
                f"Streams need a model with one input; {spec.model!r} has {len(metadata.inputs)}.",
                inputs=[tensor.name for tensor in metadata.inputs],
            )
        tensor = metadata.inputs[0]
        if spec.dtype != tensor.datatype:
            raise DtypeMismatch(
                f"Model {spec.model!r} takes {tensor.datatype}, not {spec.dtype}.",
                expected=tensor.datatype,
                received=spec.dtype,
            )
        same_rank = len(spec.shape) == len(tensor.shape)
        if not same_rank or any(a not in (-1, b) for a, b in zip(tensor.shape, spec.shape, strict=True)):
            raise ShapeMismatch(
                f"Model {spec.model!r} takes frames of shape {list(tensor.shape)} (-1 is free), "
                f"not {list(spec.shape)}.",
                expected=list(tensor.shape),
                received=list(spec.shape),
            )
        resolved = replace(spec, version=metadata.version)
        _check_batch(metadata, resolved.category(), profile)
        return resolved


def _check_batch(metadata: ModelMetadata, category: Category, profile: Profile) -> None:
    if not profile.has(category):
        return  # the engine's verdict says so, with counter-offers
    largest, allowed = profile.max_batch(category), max(1, metadata.max_batch_size)
    if largest > allowed:
        raise NotProfiled(
            f"The profile has batches of {largest} frames for {category}, but the model takes at most {allowed}. "
            f"Profile it again.",
            max_batch_size=allowed,
        )
