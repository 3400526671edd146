"""The bodies of `/v2`, for the OpenAPI document. Infer calls are parsed by hand: `gateway.api.v2.request`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ServerDescription(BaseModel):
    """Who answers."""

    name: str
    version: str
    extensions: list[str]


class TensorDescription(BaseModel):
    """An input or output; -1 in its shape is free, the first of a batched model is the batch axis."""

    name: str
    datatype: str
    shape: list[int]


class V2Model(BaseModel):
    """A model that can be called."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorDescription]
    outputs: list[TensorDescription]


class ModelStatistics(BaseModel):
    """Triton's statistics, as Triton has them."""

    model_stats: list[dict[str, Any]]


class InferInput(BaseModel):
    """An input: its elements in `data`, or its bytes after the JSON and their number in `binary_data_size`."""

    name: str
    datatype: str = Field(description="Triton's; FP16 and BF16 only as binary data.")
    shape: list[int] = Field(description="Batch axis included if the model has one.")
    data: list[Any] | None = None
    parameters: dict[str, int] | None = None


class InferWanted(BaseModel):
    """An output that is asked for; `binary_data` in its parameters: as bytes after the JSON."""

    name: str
    parameters: dict[str, bool] | None = None


class InferCall(BaseModel):
    """The JSON of an infer call."""

    id: str | None = Field(None, description="Comes back with the answer.")
    inputs: list[InferInput]
    outputs: list[InferWanted] | None = Field(None, description="Absent: all.")
    parameters: dict[str, Any] | None = Field(
        None,
        description="`deadline_ms`: real time, admitted or refused; `timeout`: best effort, in us; "
        "`binary_data_output`: all outputs as bytes. Others go to the model's backend.",
    )


class InferOutput(BaseModel):
    """An output: its elements in `data`, flat; numbers that are not finite are null. Or `binary_data_size`."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | None = None
    parameters: dict[str, int] | None = None


class InferAnswer(BaseModel):
    """The JSON of the answer."""

    id: str | None = None
    model_name: str
    model_version: str = Field(description="The version that ran.")
    parameters: dict[str, Any] | None = Field(
        None, description="Of a call with a deadline: `outcome`, `latency_ms`, `queue_ms`, `execute_ms`, `batch`."
    )
    outputs: list[InferOutput]


class V2Error(BaseModel):
    """Every error under `/v2`: a problem document with Triton's `error` in it."""

    error: str
    code: str
    status: int
