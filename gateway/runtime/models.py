"""Which models can be used now, and whether a stream fits one: answered from memory.

The supervisor fills the catalogue from Triton; a caller's model name is only ever looked up in it, so no
odd name reaches Triton or a file system.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gateway.core.profile import Profile
from gateway.core.types import Category, StreamSpec
from gateway.errors import DtypeMismatch, ModelNotLoaded, NotProfiled, ShapeMismatch, UnknownModel
from gateway.triton.types import IndexEntry, ModelMetadata, latest

#: Triton's own names are freer. These cannot leave a directory; the API takes no others.
MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")

#: Bytes per element. BYTES is missing: its elements have no fixed size, so a frame has none.
DTYPE_BYTES = {
    "BOOL": 1, "INT8": 1, "UINT8": 1, "FP16": 2, "BF16": 2, "INT16": 2, "UINT16": 2,
    "FP32": 4, "INT32": 4, "UINT32": 4, "FP64": 8, "INT64": 8, "UINT64": 8,
}  # fmt: skip

_NOT_WANTED = "It is not served: profile it, or name it in the list of models to serve (--models)."
_AWAY = "It is not in memory now."
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
    """Models as of the last look at Triton.

    Args:
        come_back: Models that go are loaded again when they are needed, so what was learnt of them is kept.
        wanted: Those that are to be served; empty: those that Triton has.

    Attributes:
        on_change: Called when other models or versions can be used than before.
    """

    def __init__(self, *, come_back: bool = False, wanted: Iterable[str] = ()) -> None:
        self._come_back = come_back
        self._wanted = frozenset(wanted)
        self._index: list[IndexEntry] = []
        self._served: dict[tuple[str, str], ModelMetadata] = {}
        self._away: dict[tuple[str, str], ModelMetadata] = {}
        self._failures: dict[str, str] = {}
        #: Triton 2.51 does not list a model any more of which it has found no version, though it can be loaded later.
        self._seen: set[str] = set()
        self.on_change: Callable[[], object] = lambda: None

    # ------------------------------------------------------------ the supervisor writes

    def look(self, index: Iterable[IndexEntry]) -> None:
        """Take a new repository index. Models of which no version is ready any more are no longer served.

        Where other versions are ready than are served, what is known stays in use until `take_in`; see `outdated`.
        """
        self._index = list(index)
        self._seen.update(entry.name for entry in self._index)
        ready = {name for name, _ in self.ready_versions()}
        self._let_go([key for key in self._served if key[0] not in ready])

    def outdated(self) -> set[str]:
        """Return the models that are served, but not in the versions that Triton says are ready."""
        served = {name for name, _ in self._served}
        return {name for name, _ in self.serving ^ self.ready_versions() if name in served}

    def serve(self, metadata: ModelMetadata) -> None:
        """This version may be used from now on."""
        self._served[metadata.name, metadata.version] = metadata
        self._away.pop((metadata.name, metadata.version), None)
        self._failures.pop(metadata.name, None)
        self.on_change()

    def take_in(self, model: str, versions: Iterable[ModelMetadata]) -> None:
        """These versions of a model may be used from now on, and no others."""
        for known in (self._served, self._away):
            for key in [key for key in known if key[0] == model]:
                del known[key]
        for metadata in versions:
            self.serve(metadata)

    def leave(self, model: str) -> None:
        """This model is being unloaded, and nothing is sent to it any more."""
        self._let_go([key for key in self._served if key[0] == model])

    def fail(self, model: str, reason: str) -> None:
        """This model was wanted and cannot be used."""
        self._failures[model] = reason
        self.leave(model)

    def clear(self) -> None:
        """Forget what is served: Triton is gone. The last index and the failures stay for display."""
        self._let_go(list(self._served))

    def _let_go(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            metadata = self._served.pop(key)
            if self._come_back:
                self._away[key] = metadata
        self.on_change()

    def ready_versions(self) -> set[tuple[str, str]]:
        """Return (name, version) of all that Triton says is ready."""
        return {(entry.name, entry.version) for entry in self._index if entry.state == "ready"}

    # ------------------------------------------------------------ everybody reads

    @property
    def serving(self) -> frozenset[tuple[str, str]]:
        """(name, version) of all models that can be used."""
        return frozenset(self._served)

    @property
    def all_served(self) -> list[ModelMetadata]:
        """All versions of all models that can be used."""
        return list(self._served.values())

    def states(self) -> list[IndexEntry]:
        """Return the index, with the reason of every failure of the gateway's own."""
        states = [
            IndexEntry(e.name, e.version, "failed", self._failures[e.name]) if e.name in self._failures else e
            for e in self._index
        ]
        known = {entry.name for entry in self._index}
        states += [IndexEntry(m, "", "failed", reason) for m, reason in self._failures.items() if m not in known]
        return sorted(states, key=lambda entry: (entry.name, entry.version))

    def lists(self, model: str) -> bool:
        """Whether the repository has a model that has not failed when Triton was set up."""
        return any(entry.name == model for entry in self._index) and model not in self._failures

    def require(self, model: str) -> None:
        """Raise `UnknownModel` if the repository has no such model, and never had."""
        if model not in self._seen and model not in self._failures:
            raise UnknownModel(f"The model repository has no model {model!r}. {_LISTED}", model=model)

    def require_loadable(self, model: str) -> None:
        """Raise if a model cannot be loaded when it is needed.

        Raises:
            UnknownModel: The repository has no such model.
            ModelNotLoaded: It is not one of those to serve, or none is ever loaded.
        """
        self.require(model)
        if not self.loadable(model):
            raise ModelNotLoaded(f"Model {model!r} is not loaded. {_NOT_WANTED}", model=model)

    def loadable(self, model: str) -> bool:
        """Whether a model is loaded when it is needed."""
        return self._come_back and (not self._wanted or model in self._wanted or self.knows(model))

    def on_demand(self) -> list[str]:
        """Return the models of the repository that are not in use, but are loaded when they are needed."""
        served = {name for name, _ in self._served}
        listed = {entry.name for entry in self._index} - served
        return sorted(name for name in listed if self.loadable(name) and self.lists(name))

    def knows(self, model: str) -> bool:
        """Whether a model's inputs and outputs are known, be it there or not."""
        return any(name == model for known in (self._served, self._away) for name, _ in known)

    def known(self, model: str, version: str = "") -> ModelMetadata:
        """Return as `served`; of a model that has gone and comes back when it is needed, what was learnt of it."""
        served = any(name == model for name, _ in self._served)
        return self._find(self._served if served else self._away, model, version)

    def served(self, model: str, version: str = "") -> ModelMetadata:
        """Return a served version's metadata; the highest one if `version` is empty.

        Raises:
            UnknownModel: The repository has no such model, or serves no such version of it.
            ModelNotLoaded: The model is there but not in use; says why if that is known.
        """
        return self._find(self._served, model, version)

    def current(self, model: str, version: str) -> ModelMetadata:
        """Return as `served`; of a version that has gone while another one came, the newest that is served."""
        served = self._served.get((model, version)) if version else None
        return served or self.served(model)

    def _find(self, among: Mapping[tuple[str, str], ModelMetadata], model: str, version: str) -> ModelMetadata:
        versions = [v for name, v in among if name == model]
        if not versions:
            self.require(model)
            reason = self._failures.get(model) or (_AWAY if self.loadable(model) else _NOT_WANTED)
            raise ModelNotLoaded(f"Model {model!r} is not loaded. {reason}", model=model)
        metadata = among.get((model, version or latest(versions)))
        if metadata is None:
            raise UnknownModel(
                f"Model {model!r} has no version {version!r}. {_LISTED}", model=model, versions=sorted(versions)
            )
        return metadata

    def versions(self, model: str) -> tuple[str, ...]:
        """Return the versions of a model that are known, lowest first."""
        among = {v for name, v in self._served if name == model} or {v for name, v in self._away if name == model}
        return tuple(sorted(among, key=lambda v: (len(v), v)))

    def expects(self, model: str, profile: Profile) -> bool:
        """Whether a model is loaded when it is needed, and nothing is known of it until then but its profile."""
        ours = self.loadable(model) and self.lists(model) and not self.knows(model)
        return ours and bool(profile.versions(model))

    def resolve(self, spec: StreamSpec, profile: Profile) -> StreamSpec:
        """Return `spec` with the version filled in, checked against the model.

        Of one that `expects` is true of, the newest profiled version is taken, and the engine's verdict says whether
        the frames are profiled. What Triton says when it is loaded counts then: see `gateway.runtime.versions`.

        Raises:
            UnknownModel, ModelNotLoaded: As `known`.
            ShapeMismatch, DtypeMismatch: The frames are not what the model takes.
            NotProfiled: The profile was made for larger batches than the model takes now.
        """
        if self.expects(spec.model, profile):
            return replace(spec, version=spec.version or profile.versions(spec.model)[-1])
        metadata = self.known(spec.model, spec.version)
        check_takes(metadata, spec)
        resolved = replace(spec, version=metadata.version)
        _check_batch(metadata, resolved.category(), profile)
        return resolved


def check_takes(model: ModelMetadata, frames: StreamSpec | Category) -> None:
    """Raise unless a model takes such frames.

    Raises:
        ShapeMismatch, DtypeMismatch: It does not.
    """
    if len(model.inputs) != 1:
        raise ShapeMismatch(
            f"Streams need a model with one input; {model.name!r} has {len(model.inputs)}.",
            inputs=[tensor.name for tensor in model.inputs],
        )
    tensor = model.inputs[0]
    if frames.dtype != tensor.datatype:
        raise DtypeMismatch(
            f"Model {model.name!r} takes {tensor.datatype}, not {frames.dtype}.",
            expected=tensor.datatype,
            received=frames.dtype,
        )
    same_rank = len(frames.shape) == len(tensor.shape)
    if not same_rank or any(a not in (-1, b) for a, b in zip(tensor.shape, frames.shape, strict=True)):
        raise ShapeMismatch(
            f"Model {model.name!r} takes frames of shape {list(tensor.shape)} (-1 is free), not {list(frames.shape)}.",
            expected=list(tensor.shape),
            received=list(frames.shape),
        )


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
