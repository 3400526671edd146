"""Models: which there are, which are in memory, and load, unload and pin by command; and the profile."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel

from gateway.api.access import CLIENT_GONE
from gateway.api.model_entries import entries, memory
from gateway.api.model_schemas import LoadRequest, ModelEntry, ModelList, PinRequest, UnloadRequest
from gateway.api.problems import describe, read_json
from gateway.api.results import dump
from gateway.api.state import ApiState, State, while_wanted
from gateway.api.v2.names import check_model
from gateway.core.view import ModelView
from gateway.errors import (
    CommandOvertaken,
    ModelLoadFailed,
    ModelNotLoaded,
    ModelNotUnloaded,
    ModelPinned,
    ModelTakesTurns,
    NoRoomForModel,
    Stopping,
    TritonUnavailable,
    UnknownModel,
    UnsupportedMediaType,
    UploadsFull,
    UploadTimeout,
    ValidationFailed,
)

router = APIRouter(prefix="/v1", tags=["models"])

Parsed = TypeVar("Parsed", bound=BaseModel)

_MALFORMED = (UnsupportedMediaType, ValidationFailed, UploadTimeout, UploadsFull)
_ANY = (*_MALFORMED, UnknownModel, TritonUnavailable, Stopping)


def _body(schema: str) -> dict[str, Any]:
    reference = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    return {"requestBody": {"required": False, "content": {"application/json": reference}}}


async def _known(model: str) -> str:
    """Return the name of the path.

    Raises:
        UnknownModel: No model can have it.
    """
    check_model(model)
    return model


Named = Annotated[str, Depends(_known)]


async def _read(request: Request, state: ApiState, schema: type[Parsed]) -> Parsed:
    """Parse the body of a command; none at all stands for an empty object.

    A page of another site can make a browser send a call without a body, but the browser then says where it comes from:
    with `Origin` there has to be JSON, which a foreign page may not send. Raises as `read_json`, and `Stopping`.
    """
    state.check_not_stopping()
    if "origin" not in request.headers and not await request.body():
        return schema()
    return await read_json(request, schema)


@router.get("/models", response_model=ModelList)
async def list_models(state: State) -> ModelList:
    """Return the models of Triton's repository: what is in memory, and why; and the shapes that can be admitted.

    Before Triton has answered for the first time there are none.
    """
    gateway = state.gateway
    return ModelList(models=entries(gateway, gateway.model_views()), memory=memory(gateway.memory))


@router.post(
    "/models/{model}/load",
    response_model=ModelEntry,
    responses=describe(*_ANY, ModelTakesTurns, NoRoomForModel, ModelNotLoaded, ModelLoadFailed),
    openapi_extra=_body("LoadRequest"),
)
async def load_model(model: Named, request: Request, state: State) -> ModelEntry | Response:
    """Load a model, or what is new of it if it is loaded: the old one serves meanwhile, and on if the new one fails.

    Waits until it is resident, or until that has failed; calls for the same model wait for the same load. A client that
    goes away does not stop it. One that takes turns is loaded in its turn, and not by command.
    """
    await _read(request, state, LoadRequest)
    return await _answer(state.gateway.load_model(model), request, state)


@router.post(
    "/models/{model}/unload",
    response_model=ModelEntry,
    responses=describe(*_ANY, ModelPinned, CommandOvertaken, ModelNotUnloaded),
    openapi_extra=_body("UnloadRequest"),
)
async def unload_model(model: Named, request: Request, state: State) -> ModelEntry | Response:
    """Unload a model, and keep it out until it is loaded by command.

    Waits until its memory is free. A job that runs ends first; frames that wait for it fail, as do those that come.
    """
    wanted = await _read(request, state, UnloadRequest)
    return await _answer(state.gateway.unload_model(model, force=wanted.force), request, state)


@router.post(
    "/models/{model}/pin",
    response_model=ModelEntry,
    responses=describe(*_ANY, NoRoomForModel, ModelNotLoaded),
    openapi_extra=_body("PinRequest"),
)
async def pin_model(model: Named, request: Request, state: State) -> ModelEntry | Response:
    """Keep a model in memory, or let it go again when others need its room; answers at once.

    One that is absent is loaded as soon as there is room for it.
    """
    wanted = await _read(request, state, PinRequest)
    return await _answer(state.gateway.pin_model(model, pinned=wanted.pinned), request, state)


async def _answer(command: Coroutine[Any, Any, ModelView], request: Request, state: ApiState) -> ModelEntry | Response:
    """Return how the model stands after the command. Raises `Stopping`, and what the command raises."""
    view = await while_wanted(command, request.receive, state.draining)
    if view is None:
        state.check_not_stopping()
        return Response(status_code=CLIENT_GONE)
    return entries(state.gateway, [view])[0]


_PROFILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The profile file's content.", "content": {"application/json": {"schema": {"type": "object"}}}}
}


@router.get("/profile", responses=_PROFILE, response_class=Response)
async def get_profile(state: State) -> Response:
    """Return the execution times that admission rests on."""
    return Response(dump(state.gateway.profile.to_dict()), media_type="application/json")
