"""Delays on request, for experiments with a device that overruns. The route exists with ``--fault-injection`` alone."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from gateway.api.problems import describe, read_json
from gateway.api.requests import ModelName
from gateway.api.state import State
from gateway.errors import (
    ModelNotLoaded,
    NotFound,
    Stopping,
    TritonUnavailable,
    UnknownModel,
    UnsupportedMediaType,
    UploadsFull,
    UploadTimeout,
    ValidationFailed,
)

router = APIRouter(prefix="/v1", tags=["faults"])
#: In its place without the flag.
without = APIRouter(prefix="/v1")


@without.post("/faults", include_in_schema=False)
async def no_faults() -> None:
    """Say why there is nothing."""
    raise NotFound("Delays are taken by a gateway that was started with `framegate serve --fault-injection` alone.")


_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/DelayJobs"}}},
    }
}


class DelayJobs(BaseModel):
    """The next jobs are to take longer. A later call for the same model, or for all, takes the place of this one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    jobs: Annotated[int, Field(ge=0, le=1_000, description="How many jobs in a row; 0: none any more.")]
    delay_ms: Annotated[float, Field(ge=0, le=60_000, allow_inf_nan=False, description="How much longer, in whole ms.")]
    model: ModelName | None = Field(None, description="Jobs of this model; those of all models if absent.")


@router.post(
    "/faults",
    response_model=DelayJobs,
    responses=describe(
        UnsupportedMediaType,
        ValidationFailed,
        UploadTimeout,
        UploadsFull,
        Stopping,
        UnknownModel,
        ModelNotLoaded,
        TritonUnavailable,
    ),
    openapi_extra=_BODY,
)
async def delay_jobs(request: Request, state: State) -> DelayJobs:
    """Have the backend wait within each of the next jobs, as if the device were slow.

    Only the embedded Triton of a gateway with ``--fault-injection`` does; any other ignores it.
    """
    wanted = await read_json(request, DelayJobs)
    if wanted.model is not None:
        state.gateway.model_facts.metadata(wanted.model)
    state.gateway.delay_jobs(wanted.jobs, round(wanted.delay_ms), wanted.model)
    return wanted
