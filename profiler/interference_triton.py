"""The models of the study in Triton: loaded with as many instances as a point needs, free to run at once.

No copy of the model repository is made. Triton's load call takes a whole configuration in place of the repository's, so
each model is loaded with its own one, in which only the instance groups are others: `count` of them, without the shared
resource that keeps Framegate's models apart. Works with a Triton that runs elsewhere just as well, and where only the
count changes Triton adds instances without unloading the model. `docs/decisions/0007-interference-study.md`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.errors import FramegateError
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, ModelMetadata, TensorInfo
from profiler.interference_plan import StudyPlan
from profiler.plan import fill

_POLL_S = 0.02
_UNLOAD_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class StudiedModel:
    """One model of the study.

    Attributes:
        metadata: Of the version that Triton serves by default.
        config: The repository's own configuration.
        shape: Of one frame.
    """

    metadata: ModelMetadata
    config: Mapping[str, Any]
    shape: tuple[int, ...]

    @property
    def input(self) -> TensorInfo:
        """The model's one input."""
        return self.metadata.inputs[0]


def with_instances(config: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return `config` for `count` instances on one device that may run at once, each request executed as it is sent.

    Raises:
        FramegateError: The model is of a kind that has no instances of its own, or keeps state between requests.
    """
    name = config.get("name", "the model")
    if "ensemble_scheduling" in config:
        raise FramegateError(f"{name} is an ensemble, which has no instances: study the models that it is made of.")
    if "sequence_batching" in config:
        raise FramegateError(f"{name} keeps state between requests: each instance would be another camera's.")
    group = dict((config.get("instance_group") or [{}])[0])
    group.pop("name", None)  # Triton's own, made from the order of the groups
    group.pop("rate_limiter", None)
    if group.get("gpus"):
        group["gpus"] = group["gpus"][:1]  # the count is per GPU: one accelerator is studied
    changed = {key: value for key, value in config.items() if key != "dynamic_batching"}
    return changed | {"instance_group": [group | {"count": count}]}


class StudiedModels:
    """Brings models in and out of one Triton."""

    def __init__(self, client: TritonClient, plan: StudyPlan) -> None:
        self._client = client
        self._plan = plan
        self._known: dict[str, StudiedModel] = {}
        self._broken: dict[str, str] = {}
        self._before: frozenset[str] = frozenset()
        self._loaded: set[str] = set()  # of the study's models
        self._counts: dict[str, int] = {}  # of those that have instances by our configuration

    async def connect(self) -> str:
        """Wait until Triton answers, note what is loaded there, and return Triton's version.

        Raises:
            BackendError: It does not answer in time.
        """
        deadline = time.monotonic() + self._plan.connect_limit_s
        while True:
            try:
                server = await self._client.server()
                index = await self._client.index()
            except BackendError as error:
                if time.monotonic() > deadline:
                    raise BackendError(
                        f"Triton does not answer at {self._client.url}: {error.message}. "
                        "Name it with --triton, or leave that out to have one started.",
                        error.code,
                    ) from None
                await asyncio.sleep(_POLL_S)
                continue
            self._before = frozenset(state.name for state in index if state.state == "ready")
            self._loaded = set(self._plan.models) & self._before
            return server.version

    @property
    def others(self) -> tuple[str, ...]:
        """Models that are loaded there and are not part of the study."""
        return tuple(sorted(self._before - set(self._plan.models)))

    async def serve(self, counts: Mapping[str, int]) -> dict[str, StudiedModel]:
        """Have Triton serve the models of the study with these numbers of instances, and none but these.

        Raises:
            FramegateError: A model cannot be studied, here or at all.
            BackendError: Triton refuses or fails.
        """
        for model in sorted(self._loaded - set(counts)):
            await self._unload(model)
        for model, count in counts.items():
            await self._load(model, count)
        return {model: self._known[model] for model in counts}

    async def restore(self) -> None:
        """Leave Triton with the models that it had, as the repository has them. Raises `BackendError`."""
        for model in sorted(self._loaded - self._before):
            await self._unload(model)
        for model in sorted(self._before & set(self._plan.models)):
            # What was loaded with a configuration of ours keeps it until another one is given.
            own = json.dumps(self._known[model].config) if model in self._counts else None
            await self._client.load(model, self._plan.load_limit_s, own)

    async def _load(self, model: str, count: int) -> None:
        if model in self._broken:
            raise FramegateError(self._broken[model])
        if self._counts.get(model) == count:
            return
        try:
            if model not in self._known:
                await self._client.load(model, self._plan.load_limit_s)
                self._loaded.add(model)
                self._known[model] = await self._study(model)
            config = with_instances(self._known[model].config, count)
        except (BackendError, FramegateError) as error:
            if not (isinstance(error, BackendError) and error.unreachable):
                self._broken[model] = str(error)  # it would fail at every point again
            raise
        await self._client.load(model, self._plan.load_limit_s, json.dumps(config))
        self._loaded.add(model)
        self._counts[model] = count

    async def _study(self, model: str) -> StudiedModel:
        metadata = await self._client.metadata(model)
        if len(metadata.inputs) != 1:
            raise FramegateError(f"{model} has {len(metadata.inputs)} inputs; streams are of models with one.")
        tensor = metadata.inputs[0]
        sizes = self._plan.sizes.get(model)
        if sizes is None:
            sizes = self._plan.size if -1 in tensor.shape else tensor.shape
        return StudiedModel(metadata, await self._client.config(model), fill(tensor, sizes))

    async def _unload(self, model: str) -> None:
        """Unload `model` and wait until it is gone: Triton answers at once and frees its memory later."""
        await self._client.unload(model)
        self._loaded.discard(model)
        self._counts.pop(model, None)
        deadline = time.monotonic() + _UNLOAD_LIMIT_S
        while any(s.name == model and s.state in {"ready", "unloading"} for s in await self._client.index()):
            if time.monotonic() > deadline:
                raise BackendError(f"{model} was still loaded {_UNLOAD_LIMIT_S:g} s after it was told to go")
            await asyncio.sleep(_POLL_S)
