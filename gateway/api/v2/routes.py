"""What `/v2` says of the server and its models.

Tritonclient and perf_analyzer ask for these before and while they infer. Configuration and statistics are Triton's own
words.
"""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Any

from fastapi import APIRouter, Response

from gateway.api.problems import describe
from gateway.api.results import dump
from gateway.api.state import ApiState, State
from gateway.api.v2.names import check_model, check_version
from gateway.api.v2.schemas import ModelStatistics, ServerDescription, TensorDescription, V2Model
from gateway.errors import (
    ModelLoadFailed,
    ModelNotLoaded,
    NoRoomForModel,
    NotSupported,
    TritonUnavailable,
    UnknownModel,
)
from gateway.triton.types import ModelMetadata, TensorInfo

router = APIRouter(prefix="/v2", tags=["open inference protocol"])

#: Those of Triton's extensions that are here.
EXTENSIONS = ("binary_tensor_data", "model_configuration", "parameters", "statistics")
_KNOWN = describe(UnknownModel, ModelNotLoaded, NoRoomForModel, ModelLoadFailed, TritonUnavailable)
_JSON: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}}, "description": "As Triton has it."}
}


@router.get("")
async def server() -> ServerDescription:
    """Return name, version and the extensions of the protocol that are here."""
    return ServerDescription(name="framegate", version=version_of("framegate"), extensions=list(EXTENSIONS))


async def _found(state: ApiState, model: str, version: str) -> ModelMetadata:
    check_model(model)
    if version:
        check_version(model, version)
    return await state.gateway.model_facts.learn(model, version)


# ---------------------------------------------------------------- statistics


async def _statistics(state: ApiState, model: str = "", version: str = "") -> Response:
    if model:
        check_model(model)
    if version:
        check_version(model, version)
    return Response(dump(await state.gateway.model_facts.statistics(model, version)), media_type="application/json")


@router.get("/models/stats", responses={200: {"model": ModelStatistics}, **describe(TritonUnavailable)})
async def all_statistics(state: State) -> Response:
    """Return Triton's statistics of all models: what the device did, calls' time in the gateway not included."""
    return await _statistics(state)


@router.get("/models/{model}/stats", responses={200: {"model": ModelStatistics}, **_KNOWN})
async def model_statistics(model: str, state: State) -> Response:
    """Return Triton's statistics of all versions of a model."""
    return await _statistics(state, model)


@router.get("/models/{model}/versions/{version}/stats", responses={200: {"model": ModelStatistics}, **_KNOWN})
async def version_statistics(model: str, version: str, state: State) -> Response:
    """Return Triton's statistics of one version."""
    return await _statistics(state, model, version)


# ---------------------------------------------------------------- models


def _described(tensor: TensorInfo, *, batched: bool) -> TensorDescription:
    shape = [-1, *tensor.shape] if batched else list(tensor.shape)
    return TensorDescription(name=tensor.name, datatype=tensor.datatype, shape=shape)


async def _model(state: ApiState, model: str, version: str = "") -> V2Model:
    found = await _found(state, model, version)
    batched = found.max_batch_size > 0
    return V2Model(
        name=found.name,
        versions=[version] if version else list(found.versions),
        platform=found.platform,
        inputs=[_described(tensor, batched=batched) for tensor in found.inputs],
        outputs=[_described(tensor, batched=batched) for tensor in found.outputs],
    )


@router.get("/models/{model}", responses=_KNOWN)
async def model_metadata(model: str, state: State) -> V2Model:
    """Return versions, inputs and outputs of a model."""
    return await _model(state, model)


@router.get("/models/{model}/versions/{version}", responses=_KNOWN)
async def version_metadata(model: str, version: str, state: State) -> V2Model:
    """Return inputs and outputs of one version."""
    return await _model(state, model, version)


@router.get("/models/{model}/ready", responses=_KNOWN, response_class=Response)
async def model_ready(model: str, state: State) -> Response:
    """Can this model be called now? With a memory budget, also one that would be loaded for the call."""
    check_model(model)
    state.gateway.model_facts.check_callable(model)
    return Response()


@router.get("/models/{model}/versions/{version}/ready", responses=_KNOWN, response_class=Response)
async def version_ready(model: str, version: str, state: State) -> Response:
    """Can this version be called now?"""
    check_model(model)
    check_version(model, version)
    state.gateway.model_facts.check_callable(model, version)
    return Response()


@router.get("/models/{model}/config", responses={**_JSON, **_KNOWN})
async def model_config(model: str, state: State) -> Response:
    """Return Triton's configuration of a model."""
    check_model(model)
    return Response(dump(await state.gateway.model_facts.config(model)), media_type="application/json")


@router.get("/models/{model}/versions/{version}/config", responses={**_JSON, **_KNOWN})
async def version_config(model: str, version: str, state: State) -> Response:
    """Return Triton's configuration of one version."""
    check_model(model)
    check_version(model, version)
    return Response(dump(await state.gateway.model_facts.config(model, version)), media_type="application/json")


# ---------------------------------------------------------------- what is not here

_ELSEWHERE = {
    "repository": "models are loaded by the gateway's own rules; GET /v1/models lists them",
    "systemsharedmemory": "clients' shared memory is not supported: send tensors in the body, as binary data",
    "cudasharedmemory": "clients' shared memory is not supported: send tensors in the body, as binary data",
    "trace": "tracing is not supported here; ask Triton itself",
    "logging": "log settings are not changed over HTTP",
}


def _refuse(extension: str, why: str) -> None:
    async def refused() -> None:
        raise NotSupported(f"/v2/{extension}: {why}.")

    for path in (f"/{extension}", f"/{extension}/{{rest:path}}"):
        router.add_api_route(path, refused, methods=["GET", "POST"], include_in_schema=False)


for _extension, _why in _ELSEWHERE.items():
    _refuse(_extension, _why)
