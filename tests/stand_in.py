"""A scripted stand-in for Triton: delays, errors, restarts and a call log at will.

It opens shared-memory regions for real, by mapping the file, and its models compute for real. What it cannot
show is what Triton itself does; that is for the tests marked `e2e`.

Models have one input, ``frames`` UINT8 unless told otherwise, of `Model.dims`, batched unless `Model.max_batch_size` is
0, and the outputs

- ``echo``: the input;
- ``stamp`` INT32 [3]: the first byte of this frame, the rows of its batch, and a running number of the call;
- ``blob`` UINT8 [`Model.blob_bytes`]: the first byte of this frame, again and again.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.stand_in_http import HttpSide
from tests.stand_in_metrics import MetricsPage
from tests.stand_in_ports import patiently
from tests.stand_in_repository import Call, LoadError, Model, Repository

MESSAGE_LIMIT = 256 << 20
__all__ = ["Call", "Model", "StandIn"]


class StandIn(service_pb2_grpc.GRPCInferenceServiceServicer):
    """One Triton.

    Attributes to script it with:
        delay_s: Called with an inference's `Call`, says how long it takes.
        error: Called with an inference's `Call`, returns a message to fail it with, or "".
        indigestible: Called with the frames of an inference [rows, bytes], likewise.
        reply_rows: Rows of the reply for so many rows of input.
        refuse_region: Message to refuse registrations with, or "".
        busy_unregisters: How many unregistrations are refused before one is granted.
        live: The answer to the liveness probe.
        models: By name; see `tests.stand_in_repository.Model` for how each comes and goes.
        repository: How all of them do, what they hold, and what was asked of one that was not there.
        metrics: The page with the device's memory.
        http: The HTTP side.
    """

    def __init__(self, *models: Model) -> None:
        self.models = {model.name: model for model in models or (Model("echo"),)}
        self.repository = Repository(self.models)
        self.metrics = MetricsPage(self.repository)
        self.http = HttpSide(self)
        self.calls: list[Call] = []
        self.regions: dict[str, mmap.mmap] = {}
        self.delay_s: Callable[[Call], float] = lambda call: 0.0
        self.error: Callable[[Call], str] = lambda call: ""
        self.indigestible: Callable[[np.ndarray], str] = lambda frames: ""
        self.reply_rows: Callable[[int], int] = lambda rows: rows
        self.refuse_region = ""
        self.busy_unregisters = 0
        self.live = True
        self.port = 0
        self._server: grpc.aio.Server | None = None
        self._device = asyncio.Lock()

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def addresses(self) -> dict[str, str]:
        return {"url": self.url, "http_url": f"127.0.0.1:{self.http.port}"}

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.metrics.port}/metrics"

    def log(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]

    async def start(self) -> None:
        self._server, self.port = await patiently(self._bind)
        await self._server.start()
        await self.metrics.start()
        await self.http.start()

    async def _bind(self) -> tuple[grpc.aio.Server, int]:
        options = [
            ("grpc.max_send_message_length", MESSAGE_LIMIT),
            ("grpc.max_receive_message_length", MESSAGE_LIMIT),
            ("grpc.so_reuseport", 0),
        ]
        server = grpc.aio.server(options=options)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, server)
        return server, server.add_insecure_port(f"127.0.0.1:{self.port}")

    async def stop(self) -> None:
        """End like a process that was killed: calls break off, everything is forgotten."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
        self.repository.stop()
        await self.metrics.stop()
        await self.http.stop()
        for memory in self.regions.values():
            memory.close()
        self.regions.clear()

    async def restart(self, pause_s: float = 0.0) -> None:
        await self.stop()
        self.repository.forget()
        await asyncio.sleep(pause_s)
        await self.start()

    async def __aenter__(self) -> StandIn:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------ health and metadata

    async def ServerLive(self, request, context):
        return service_pb2.ServerLiveResponse(live=self.live)

    async def ServerMetadata(self, request, context):
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0", extensions=["system_shared_memory"])

    async def ModelMetadata(self, request, context):
        model = await self._loaded(request.name, context)
        axis = [-1] if model.max_batch_size else []
        reply = service_pb2.ModelMetadataResponse(name=model.name, versions=model.versions, platform="stand-in")
        reply.inputs.add(name=model.input_name, datatype=model.datatype, shape=[*axis, *model.dims])
        for name in model.outputs:
            shape = {"echo": list(model.dims), "stamp": [3], "blob": [model.blob_bytes]}[name]
            datatype = {"echo": model.datatype, "stamp": "INT32", "blob": "UINT8"}[name]
            reply.outputs.add(name=name, datatype=datatype, shape=[*axis, *shape])
        return reply

    async def ModelConfig(self, request, context):
        model = await self._loaded(request.name, context)
        reply = service_pb2.ModelConfigResponse()
        reply.config.name = model.name
        reply.config.max_batch_size = model.max_batch_size
        if model.serial:
            limiter = reply.config.instance_group.add(count=1).rate_limiter
            limiter.resources.add(name="device", count=1, **{"global": True})
        return reply

    async def ModelStatistics(self, request, context):
        reply = service_pb2.ModelStatisticsResponse()
        for model in self.models.values():
            if model.loaded and request.name in ("", model.name):
                added = reply.model_stats.add(name=model.name, version=model.versions[-1])
                added.inference_count = sum(call.rows for call in self.log("infer") if call.name == model.name)
                added.memory_usage.add(type="GPU", id=0, byte_size=model.bytes)
        return reply

    async def _loaded(self, name: str, context: grpc.aio.ServicerContext) -> Model:
        model = self.models.get(name)
        if model is None or not model.loaded:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        return model

    # ------------------------------------------------------------ repository

    async def RepositoryIndex(self, request, context):
        reply = service_pb2.RepositoryIndexResponse()
        for name, version, state, reason in self.repository.index():
            reply.models.add(name=name, version=version, state=state, reason=reason)
        return reply

    async def RepositoryModelLoad(self, request, context):
        try:
            await self.repository.load(self._note("load", request.model_name, context))
        except LoadError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        return service_pb2.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(self, request, context):
        try:
            await self.repository.unload(self._note("unload", request.model_name, context))
        except LoadError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        return service_pb2.RepositoryModelUnloadResponse()

    # ------------------------------------------------------------ shared memory

    async def SystemSharedMemoryStatus(self, request, context):
        reply = service_pb2.SystemSharedMemoryStatusResponse()
        for name, memory in self.regions.items():
            reply.regions[name].name = name
            reply.regions[name].byte_size = len(memory)
        return reply

    async def SystemSharedMemoryRegister(self, request, context):
        self._note("register", request.name, context)
        if self.refuse_region:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuse_region)
        if request.name in self.regions:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"region '{request.name}' is registered already")
        try:
            fd = os.open(Path("/dev/shm") / request.key.lstrip("/"), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            await context.abort(grpc.StatusCode.INTERNAL, f"Unable to open shared memory region: '{request.key}'")
        try:
            self.regions[request.name] = mmap.mmap(fd, request.byte_size)
        finally:
            os.close(fd)
        return service_pb2.SystemSharedMemoryRegisterResponse()

    async def SystemSharedMemoryUnregister(self, request, context):
        call = self._note("unregister", request.name, context)
        if self.busy_unregisters > 0:
            self.busy_unregisters -= 1
            await context.abort(grpc.StatusCode.INTERNAL, f"region '{request.name}' is in use")
        memory = self.regions.pop(request.name, None)
        if memory is not None:
            memory.close()
        call.ended = time.monotonic()
        return service_pb2.SystemSharedMemoryUnregisterResponse()

    # ------------------------------------------------------------ inference

    async def ModelInfer(self, request, context):
        call = self._note("infer", request.model_name, context)
        call.version = request.model_version
        model = self.models.get(request.model_name)
        if model is None or not model.loaded:
            self.repository.strays.append(call)
            await self._refuse(call, context, f"Request for unknown model: '{call.name}' is not found", "NOT_FOUND")
        if call.version and call.version not in model.versions:
            words = f"Request for unknown model: '{call.name}' version {call.version} is not at ready state"
            await self._refuse(call, context, words, "UNAVAILABLE")
        model.using += 1
        try:
            return await self._infer(model, call, request, context)
        finally:
            model.using = max(0, model.using - 1)
            call.ended = time.monotonic()

    async def _infer(self, model: Model, call: Call, request, context):
        tensor = request.inputs[0]
        call.shape = tuple(tensor.shape)
        batched = model.max_batch_size > 0
        call.rows = call.shape[0] if batched else 1
        call.parameters = {name: value.int64_param for name, value in request.parameters.items()}
        call.way = "shm" if "shared_memory_region" in tensor.parameters else "message"
        version = call.version or model.versions[-1]
        async with self._device if model.serial else nullcontext():
            call.ran = time.monotonic()
            await asyncio.sleep(self.delay_s(call))
        if message := self.error(call):
            await self._refuse(call, context, message)
        frames = np.frombuffer(await self._content(request, context), np.uint8).reshape(call.rows, -1)
        if message := self.indigestible(frames):
            await self._refuse(call, context, message)
        rows = self.reply_rows(call.rows)
        stamps = np.array([[frame[0], call.rows, len(self.log("infer"))] for frame in frames[:rows]], np.int32)
        reply = service_pb2.ModelInferResponse(model_name=model.name, model_version=version)
        lead = [rows] if batched else []
        if "echo" in model.outputs:
            reply.outputs.add(name="echo", datatype=model.datatype, shape=[*lead, *call.shape[1 if batched else 0 :]])
            reply.raw_output_contents.append(frames[:rows].tobytes())
        if "stamp" in model.outputs:
            reply.outputs.add(name="stamp", datatype="INT32", shape=[*lead, 3])
            reply.raw_output_contents.append(stamps.tobytes())
        if "blob" in model.outputs:
            reply.outputs.add(name="blob", datatype="UINT8", shape=[*lead, model.blob_bytes])
            reply.raw_output_contents.append(b"".join(bytes([frame[0]]) * model.blob_bytes for frame in frames[:rows]))
        return reply

    async def _refuse(self, call: Call, context, message: str, status: str = "INTERNAL") -> None:
        call.error, call.ended = message, time.monotonic()
        await context.abort(grpc.StatusCode[status], message)

    async def _content(self, request, context) -> bytes:
        parameters = request.inputs[0].parameters
        if "shared_memory_region" not in parameters:
            return request.raw_input_contents[0]
        name = parameters["shared_memory_region"].string_param
        if name not in self.regions:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"Unable to find shared memory region: '{name}'")
        offset = parameters["shared_memory_offset"].int64_param if "shared_memory_offset" in parameters else 0
        size = parameters["shared_memory_byte_size"].int64_param
        return self.regions[name][offset : offset + size]

    def _note(self, method: str, name: str, context: grpc.aio.ServicerContext) -> Call:
        call = Call(method, name, peer=context.peer())
        self.calls.append(call)
        return call
