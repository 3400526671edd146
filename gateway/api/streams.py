"""Registering, looking at and closing streams; asking whether one would fit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from gateway.api.access import CLIENT_GONE
from gateway.api.admission import admission, counter_offers, evidence, predicted_worst_ms, refusal
from gateway.api.answers import AdmissionAnswer, Evidence, StreamAdmitted, StreamList, StreamState
from gateway.api.problems import describe, read_json
from gateway.api.requests import StreamRequest
from gateway.api.results import dump
from gateway.api.state import ApiState, State, while_wanted
from gateway.core.types import NS_PER_MS, NS_PER_S, Outcome, ServiceClass, StreamSpec
from gateway.errors import (
    AdmissionBusy,
    ArenaTooSmall,
    BodyTooLarge,
    DeadlineInfeasible,
    DtypeMismatch,
    FramegateError,
    ModelLoadFailed,
    ModelNotLoaded,
    NoRoomForModel,
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
from gateway.runtime.results import Registration, StreamRecord

router = APIRouter(prefix="/v1", tags=["streams"])

#: What the gateway's own ids look like; anything else is answered 404 without a look-up or an echo.
STREAM_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

#: Streams of a list that are described without a pause: about a millisecond.
_AT_ONCE = 25

_REFUSALS = (
    UnknownModel,
    ModelNotLoaded,
    NoRoomForModel,
    ModelLoadFailed,
    ShapeMismatch,
    DtypeMismatch,
    BodyTooLarge,
)
_MALFORMED = (UnsupportedMediaType, ValidationFailed, UploadTimeout, UploadsFull)
_NOT_NOW = (TritonUnavailable, AdmissionBusy, Stopping)
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/StreamRequest"}}},
    }
}


async def stream_request(request: Request, state: State) -> StreamRequest:
    """Parse the body.

    Raises:
        UnsupportedMediaType: It is not sent as JSON.
        ValidationFailed: It is not a valid `StreamRequest`, or one frame would not fit into a body.
    """
    wanted = await read_json(request, StreamRequest)
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


def describe_stream(state: ApiState, record: StreamRecord) -> dict[str, Any]:
    """Return the fields of `StreamState`."""
    spec = record.spec
    url = f"/v1/streams/{record.stream_id}"
    promised = spec.service_class is ServiceClass.REAL_TIME
    broken = state.gateway.broken_promise if promised else None
    running = state.gateway.stream_version(record)
    return {
        "stream_id": record.stream_id,
        "name": spec.name,
        "state": record.state,
        "close_reason": record.close_reason,
        "model": spec.model,
        "version": running.version,
        "tested_version": running.tested,
        "retest": running.retest,
        "shape": spec.shape,
        "dtype": spec.dtype,
        "frame_bytes": record.frame_bytes,
        "period_ms": spec.period_ns / NS_PER_MS,
        "fps": NS_PER_S / spec.period_ns,
        "deadline_ms": spec.deadline_ns / NS_PER_MS,
        "frames": spec.frames,
        "burst": spec.burst,
        "jitter_ms": spec.jitter_ns / NS_PER_MS,
        "on_late": spec.on_late,
        "on_excess": spec.on_excess,
        "service_class": spec.service_class,
        "swapping": spec.swapping,
        "model_stays": _model_stays(state, spec),
        "accepted": record.accepted,
        "demoted": record.demoted,
        "refused": dict(record.refused),
        "in_flight": record.in_flight,
        "outcomes": {outcome.value: record.outcomes.get(outcome, 0) for outcome in Outcome},
        "out_of_order": record.out_of_order,
        "worst_latency_ms": predicted_worst_ms(record.verdict),
        "observed_worst_latency_ms": record.worst_latency_ms,
        "penalty_ms": record.penalty.ns / NS_PER_MS,
        "degraded_shape": record.penalty.shape,
        "promise": "none" if not promised else "kept" if broken is None else "broken",
        "promise_evidence": None if broken is None else _evidence(state, Registration(spec, broken)),
        "suspect": state.gateway.suspect(record.stream_id),
        "frames_url": f"{url}/frames",
        "results_url": f"{url}/results",
        "events_url": f"{url}/events",
        "ws_url": f"{url}/ws",
    }


def _model_stays(state: ApiState, spec: StreamSpec) -> str:
    if spec.service_class is ServiceClass.BEST_EFFORT:
        return "on_demand"
    return "takes_turns" if state.gateway.takes_turns(spec.model) else "pinned"


def find_stream(state: ApiState, stream_id: str) -> StreamRecord:
    """Return the stream.

    Raises:
        StreamNotFound: There is none.
    """
    if STREAM_ID.fullmatch(stream_id) is None:
        raise StreamNotFound("This is not the id of a stream.")
    return state.gateway.stream(stream_id)


def _evidence(state: ApiState, answer: Registration) -> Evidence:
    def name(stream_id: str) -> str:
        try:
            return state.gateway.stream(stream_id).spec.name
        except StreamNotFound:
            return ""  # it ended while the answer was prepared, and is forgotten

    return evidence(answer, name)


@router.post(
    "/streams",
    status_code=201,
    response_model=StreamAdmitted,
    responses=describe(
        *_REFUSALS,
        *_MALFORMED,
        *_NOT_NOW,
        NotSchedulable,
        NotProfiled,
        DeadlineInfeasible,
        TooManyStreams,
        ArenaTooSmall,
    ),
    openapi_extra=_BODY,
)
async def register_stream(
    wanted: Annotated[StreamRequest, Depends(registration_request)], state: State, request: Request, response: Response
) -> StreamAdmitted | Response:
    """Register a camera. It is admitted only if every frame of every stream can still be answered in time.

    Registrations that come together are decided one after another. A client that goes away before it is its turn has
    not registered anything.
    """
    try:
        state.check_not_stopping()
        answer = await _while_wanted(state.gateway.register(_spec(wanted, state)), request, state)
        if answer is None:
            state.metrics.registrations.labels("client_gone").inc()
            return Response(status_code=CLIENT_GONE)
        state.metrics.tested("register", answer.verdict.test, answer.test_s)
        found = _evidence(state, answer)
        if answer.stream is None:
            raise _refusal(found, answer, state)
    except FramegateError as error:
        state.metrics.registrations.labels(error.code).inc()
        raise
    state.metrics.registrations.labels("admitted").inc()
    response.headers["Location"] = f"/v1/streams/{answer.stream.stream_id}"
    return StreamAdmitted(**describe_stream(state, answer.stream), admission=found)


def _spec(wanted: StreamRequest, state: ApiState) -> StreamSpec:
    return wanted.spec(state.settings.scheduling.default_jitter_ms)


def _refusal(found: Evidence, answer: Registration, state: ApiState) -> FramegateError:
    offers = counter_offers(answer.offers)
    return refusal(found, offers, answer.spec, searched=answer.searched, profile=state.planned_profile)


async def _while_wanted(
    work: Coroutine[Any, Any, Registration], request: Request, state: ApiState
) -> Registration | None:
    """Return what `work` returns; None if the client went away first. Raises `Stopping`, and what `work` raises."""
    answer = await while_wanted(work, request.receive, state.draining)
    if answer is None:
        state.check_not_stopping()
    return answer


@router.post(
    "/admission/check",
    response_model=AdmissionAnswer,
    response_model_exclude_none=False,
    responses=describe(*_REFUSALS, *_MALFORMED, *_NOT_NOW),
    openapi_extra=_BODY,
)
async def check_admission(wanted: Wanted, state: State, request: Request) -> AdmissionAnswer | Response:
    """Would this camera be admitted now? Nothing is changed, and a refusal is an answer like any other."""
    answer = await _while_wanted(state.gateway.check(_spec(wanted, state)), request, state)
    if answer is None:
        return Response(status_code=CLIENT_GONE)
    state.metrics.tested("check", answer.verdict.test, answer.test_s)
    found = _evidence(state, answer)
    return AdmissionAnswer(
        admitted=answer.verdict.admitted,
        model=answer.spec.model,
        version=answer.spec.version,
        detail=admission(found) if answer.verdict.admitted else _refusal(found, answer, state).detail,
        evidence=found,
        counter_offers=counter_offers(answer.offers),
    )


@router.get("/streams", responses={200: {"model": StreamList}})
async def list_streams(state: State) -> Response:
    """Return the streams that are not over. One that has ended can be looked at by its id for a while."""
    listed = []
    for number, record in enumerate(state.gateway.streams(), 1):
        listed.append(StreamState(**describe_stream(state, record)).model_dump_json().encode())
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)  # others get their turn
    rest = b'],"utilization":%b}' % dump(state.gateway.utilization)
    return Response(b'{"streams":[' + b",".join(listed) + rest, media_type="application/json")


@router.get("/streams/{stream_id}", response_model=StreamState, responses=describe(StreamNotFound))
async def get_stream(stream_id: str, state: State) -> StreamState:
    """Return one stream and its books."""
    return StreamState(**describe_stream(state, find_stream(state, stream_id)))


@router.delete("/streams/{stream_id}", response_model=StreamState, responses=describe(StreamNotFound))
async def close_stream(stream_id: str, state: State) -> StreamState:
    """Close a stream: it takes no more frames, those that wait are still served. Closing twice is no error."""
    find_stream(state, stream_id)
    return StreamState(**describe_stream(state, await state.gateway.close_stream(stream_id)))
