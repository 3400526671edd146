"""The channel of inference: tensors go to Triton and come back as bytes, which nothing here looks into.

Triton's client library turns each tensor into an array and back, in which BF16 loses bits; this does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from gateway.triton.loopback import is_loopback
from gateway.triton.types import BackendError, InSharedMemory, Tensor

#: A reconnect is tried at least this often, so that a restarted Triton is found within a second.
_MAX_RECONNECT_BACKOFF_MS = 500


@dataclass(frozen=True, slots=True)
class InputTensor:
    """As `Tensor`; `data` may lie in a region that Triton has opened."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | memoryview | InSharedMemory


class InferenceChannel:
    """Make it on the event loop that uses it, and close it there.

    Args:
        url: ``host:port`` of the gRPC endpoint.
        options: Of the channel.
    """

    def __init__(self, url: str, options: list[tuple[str, int]]) -> None:
        self._channel = grpc.aio.insecure_channel(url, options=options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def close(self) -> None:
        """Close it; calls in flight end as cancelled."""
        await self._channel.close()

    async def infer(
        self,
        model: str,
        version: str,
        inputs: Sequence[InputTensor | Tensor],
        *,
        wanted: Sequence[str] = (),
        parameters: Mapping[str, bool | int | float | str],
    ) -> tuple[str, list[Tensor]]:
        """Return the version that ran and the outputs of one call, all unless some are `wanted`.

        Only a broken connection limits the time. With an empty `version` Triton chooses, in one step between an old
        version and a new one that has just been loaded.

        Raises:
            BackendError: Triton's refusal or failure, or its absence.
        """
        request = service_pb2.ModelInferRequest(model_name=model, model_version=version)
        for tensor in inputs:
            _add_input(request, tensor)
        for name in wanted:
            request.outputs.add(name=name)
        for name, value in parameters.items():
            _set(request.parameters[name], value)
        try:
            reply = await self._stub.ModelInfer(request)
        except grpc.aio.AioRpcError as error:
            raise BackendError(error.details() or error.code().name, error.code().name) from None
        if len(reply.raw_output_contents) != len(reply.outputs):
            raise BackendError("the answer has outputs without their bytes")
        outputs = [
            Tensor(output.name, output.datatype, tuple(output.shape), data)
            for output, data in zip(reply.outputs, reply.raw_output_contents, strict=True)
        ]
        return reply.model_version, outputs


def _add_input(request: Any, tensor: InputTensor | Tensor) -> None:  # noqa: ANN401 - the generated classes have no types
    added = request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    if isinstance(tensor.data, InSharedMemory):
        added.parameters["shared_memory_region"].string_param = tensor.data.region
        added.parameters["shared_memory_offset"].int64_param = tensor.data.offset
        added.parameters["shared_memory_byte_size"].int64_param = tensor.data.size
    else:
        request.raw_input_contents.append(bytes(tensor.data))


def _set(parameter: Any, value: bool | int | float | str) -> None:  # noqa: ANN401
    match value:
        case bool():
            parameter.bool_param = value
        case int():
            parameter.int64_param = value
        case float():
            parameter.double_param = value
        case str():
            parameter.string_param = value


def channel_options(url: str, max_message_bytes: int) -> list[tuple[str, int]]:
    """Return the options of a channel to `url`: both limits of a message, and how it reconnects."""
    args = [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1_000),  # in fact the limit of one connection attempt
        ("grpc.max_reconnect_backoff_ms", _MAX_RECONNECT_BACKOFF_MS),
        # No keep-alive pings: Triton answers pings more frequent than one in five minutes by closing the
        # connection (its --grpc-http2-max-ping-strikes). The health poll on the control channel serves.
    ]
    if is_loopback(url):
        args.append(("grpc.enable_http_proxy", 0))  # http_proxy in the environment is not meant for our own host
    return args
