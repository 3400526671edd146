"""Registering, looking at and closing streams; asking whether one would fit."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ValidationError

from gateway.api.admission import Names, counter_offers, evidence, refusal
from gateway.api.problems import describe, from_pydantic
from gateway.api.schemas import AdmissionAnswer, StreamAdmitted, StreamList, StreamRequest, StreamState
from gateway.api.state import ApiState, State
from gateway.core.types import NS_PER_MS, NS_PER_S, Outcome
from gateway.errors import (
    ArenaTooSmall,
    BodyTooLarge,
    DeadlineInfeasible,
    DtypeMismatch,
    FramegateError,
    ModelNotLoaded,
    NotProfiled,
    NotSchedulable,
    ShapeMismatch,
    Stopping,
    StreamNotFound,
    TooManyStreams,
    TritonUnavailable,
    UnknownModel,
    UnsupportedMediaType,
    UploadsFull,
    UploadTimeout,
    ValidationFailed,
)
from gateway.runtime.results import StreamRecord

router = APIRouter(prefix="/v1", tags=["streams"])

#: What the gateway's own ids look like; anything else is answered 404 without a look-up or an echo.
STREAM_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_REFUSALS = (UnknownModel, ModelNotLoaded, ShapeMismatch, DtypeMismatch, BodyTooLarge)
_MALFORMED = (UnsupportedMediaType, ValidationFailed, UploadTimeout, UploadsFull, TritonUnavailable, Stopping)
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/StreamRequest"}}},
    }
}


async def stream_request(request: Request, state: State) -> StreamRequest:
    """Parse the body.

    Raises:
        UnsupportedMediaType: It is not sent as JSON. A page of another site can make a browser send
            anything else without asking, so nothing else is taken.
        ValidationFailed: It is not a valid `StreamRequest`, or one frame would not fit into a body.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType("Send the body with `Content-Type: application/json`.")
    try:
        wanted = StreamRequest.model_validate_json(await request.body())
    except ValidationError as error:
        raise from_pydantic(error) from None
    limit_bytes = state.settings.limits.max_body_bytes
    if wanted.frame_bytes > limit_bytes:
        raise ValidationFailed(
            f"shape: one frame has {wanted.frame_bytes} bytes; no body may have more than {limit_bytes}.", errors=[]
        )
    return wanted


async def registration_request(request: Request, state: State) -> StreamRequest:
    """Parse the body of a registration, and count what is refused. Raises as `stream_request`."""
    try:
        return await stream_request(request, state)
    except FramegateError as error:
        state.metrics.registrations.labels(error.code).inc()
        raise


Wanted = Annotated[StreamRequest, Depends(stream_request)]


def describe_stream(record: StreamRecord) -> dict[str, Any]:
    """Return the fields of `StreamState`."""
    spec = record.spec
    url = f"/v1/streams/{record.stream_id}"
    return {
        "stream_id": record.stream_id,
        "name": spec.name,
        "state": record.state,
        "model": spec.model,
        "version": spec.version,
        "shape": spec.shape,
        "dtype": spec.dtype,
        "frame_bytes": record.frame_bytes,
        "period_ms": spec.period_ns / NS_PER_MS,
        "fps": NS_PER_S / spec.period_ns,
        "deadline_ms": spec.deadline_ns / NS_PER_MS,
        "frames": spec.frames,
        "on_late": spec.on_late,
        "service_class": spec.service_class,
        "accepted": record.accepted,
        "in_flight": record.in_flight,
        "outcomes": {outcome.value: record.outcomes.get(outcome, 0) for outcome in Outcome},
        "frames_url": f"{url}/frames",
        "results_url": f"{url}/results",
    }


def find_stream(state: ApiState, stream_id: str) -> StreamRecord:
    """Return the stream.

    Raises:
        StreamNotFound: There is none.
    """
    if STREAM_ID.fullmatch(stream_id) is None:
        raise StreamNotFound("This is not the id of a stream.")
    return state.gateway.stream(stream_id)


def _names(state: ApiState) -> Names:
    known = {record.stream_id: record.spec.name for record in state.gateway.streams()}
    return known.get


@router.post(
    "/streams",
    status_code=201,
    response_model=StreamAdmitted,
    responses=describe(
        *_REFUSALS, *_MALFORMED, NotSchedulable, NotProfiled, DeadlineInfeasible, TooManyStreams, ArenaTooSmall
    ),
    openapi_extra=_BODY,
)
async def register_stream(
    wanted: Annotated[StreamRequest, Depends(registration_request)], state: State, response: Response
) -> StreamAdmitted:
    """Register a camera. It is admitted only if every frame of every stream can still be answered in time."""
    try:
        state.check_not_stopping()
        names = _names(state)
        registration = await state.gateway.register(wanted.spec())
        found = evidence(registration.verdict, registration.spec, names)
        if registration.stream is None:
            raise refusal(found, counter_offers(registration.offers), registration.spec)
    except FramegateError as error:
        state.metrics.registrations.labels(error.code).inc()
        raise
    state.metrics.registrations.labels("admitted").inc()
    response.headers["Location"] = f"/v1/streams/{registration.stream.stream_id}"
    return StreamAdmitted(**describe_stream(registration.stream), admission=found)


@router.post(
    "/admission/check",
    response_model=AdmissionAnswer,
    response_model_exclude_none=False,
    responses=describe(*_REFUSALS, *_MALFORMED),
    openapi_extra=_BODY,
)
async def check_admission(wanted: Wanted, state: State) -> AdmissionAnswer:
    """Would this camera be admitted now? Nothing is changed, and a refusal is an answer like any other."""
    registration = await state.gateway.check(wanted.spec())
    return AdmissionAnswer(
        admitted=registration.verdict.admitted,
        model=registration.spec.model,
        version=registration.spec.version,
        evidence=evidence(registration.verdict, registration.spec, _names(state)),
        counter_offers=counter_offers(registration.offers),
    )


@router.get("/streams", response_model=StreamList)
async def list_streams(state: State) -> StreamList:
    """Return all streams, also those that ended not long ago."""
    return StreamList(
        streams=[StreamState(**describe_stream(record)) for record in state.gateway.streams()],
        utilization=state.gateway.view().utilization,
    )


@router.get("/streams/{stream_id}", response_model=StreamState, responses=describe(StreamNotFound))
async def get_stream(stream_id: str, state: State) -> StreamState:
    """Return one stream and its books."""
    return StreamState(**describe_stream(find_stream(state, stream_id)))


@router.delete("/streams/{stream_id}", response_model=StreamState, responses=describe(StreamNotFound))
async def close_stream(stream_id: str, state: State) -> StreamState:
    """Close a stream: it takes no more frames, those that wait are still served. Closing twice is no error."""
    find_stream(state, stream_id)
    return StreamState(**describe_stream(await state.gateway.close_stream(stream_id)))
