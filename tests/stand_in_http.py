"""The HTTP side of the stand-in for Triton: calls that read shared memory, and write to it where they say so.

What a call does is the gRPC side's affair; here it is put into that side's words. As with Triton, a call goes on when
its caller has gone, and outputs are written to shared memory all the same.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import grpc
from tritonclient.grpc import service_pb2

from tests.stand_in_ports import listen

if TYPE_CHECKING:
    from tests.stand_in import StandIn

_INFER = re.compile(r"/v2/models/([^/]+)(?:/versions/([0-9]+))?/infer")
_REGION = re.compile(r"/v2/systemsharedmemory/region/([^/]+)/status")
#: As Triton does.
_STATUS = {"INTERNAL": 500, "NOT_FOUND": 404, "UNAVAILABLE": 503, "UNIMPLEMENTED": 501}


class _Refused(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.status = _STATUS.get(code, 400)


class _Context:
    """What the gRPC side sees of a caller."""

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def peer(self) -> str:
        return self._peer

    async def abort(self, code: grpc.StatusCode, message: str) -> None:
        raise _Refused(code.name, message)


class HttpSide:
    """Answers on `port`, which stays the same over restarts.

    Attributes:
        requests: Every path that came.
        written: How many outputs were written to shared memory.
    """

    def __init__(self, stand_in: StandIn) -> None:
        self.port = 0
        self.requests: list[str] = []
        self.written = 0
        self._stand_in = stand_in
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        return len(self._writers)

    async def start(self) -> None:
        self._server, self.port = await listen(self._serve, self.port)

    async def stop(self) -> None:
        """End like a process that was killed."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._server.wait_closed()
            self._server = None

    def break_off(self) -> None:
        """Close all connections, and go on with what came over them."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"(?i)^content-length: *(\d+)", head, re.MULTILINE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                path = head.split(" ", 2)[1]
                self.requests.append(path)
                peer = "http:{}:{}".format(*writer.get_extra_info("peername")[:2])
                writer.write(await self._answer(path, body, peer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the one who asked has gone
        except asyncio.CancelledError:
            pass  # we have
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, path: str, body: bytes, peer: str) -> bytes:
        try:
            if found := _INFER.fullmatch(path):
                return await self._infer(found[1], found[2] or "", json.loads(body), peer)
            if found := _REGION.fullmatch(path):
                return self._status(found[1])
            raise _Refused("NOT_FOUND", "Not Found")
        except _Refused as error:
            return _message(error.status, json.dumps({"error": str(error)}).encode())

    def _status(self, region: str) -> bytes:
        memory = self._stand_in.regions.get(region)
        if memory is None:
            raise _Refused("NOT_FOUND", f"Unable to find system shared memory region: '{region}'")
        return _message(200, json.dumps([{"name": region, "byte_size": len(memory)}]).encode())

    async def _infer(self, model: str, version: str, document: dict[str, Any], peer: str) -> bytes:
        request = service_pb2.ModelInferRequest(model_name=model, model_version=version)
        for tensor in document["inputs"]:
            added = request.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
            place = tensor["parameters"]
            added.parameters["shared_memory_region"].string_param = place["shared_memory_region"]
            added.parameters["shared_memory_offset"].int64_param = place["shared_memory_offset"]
            added.parameters["shared_memory_byte_size"].int64_param = place["shared_memory_byte_size"]
        for name, value in document.get("parameters", {}).items():
            if name != "binary_data_output":
                request.parameters[name].int64_param = value
        wanted = {output["name"]: output["parameters"] for output in document.get("outputs", [])}
        known = self._stand_in.models.get(model)
        for name in wanted:
            if known is not None and name not in known.outputs:
                raise _Refused("INVALID_ARGUMENT", f"unexpected inference output '{name}' for model '{model}'")
        reply = await self._stand_in.ModelInfer(request, _Context(peer))
        return self._reply(reply, wanted)

    def _reply(self, reply: Any, wanted: dict[str, dict[str, Any]]) -> bytes:
        outputs, binary = [], []
        for output, data in zip(reply.outputs, reply.raw_output_contents, strict=True):
            if wanted and output.name not in wanted:
                continue
            told = {"name": output.name, "datatype": output.datatype, "shape": list(output.shape)}
            place = wanted.get(output.name, {})
            if "shared_memory_region" in place:
                self._write(output.name, data, place)
            else:
                told["parameters"] = {"binary_data_size": len(data)}
                binary.append(data)
            outputs.append(told)
        head = {"model_name": reply.model_name, "model_version": reply.model_version, "outputs": outputs}
        text = json.dumps(head).encode()
        more = f"Inference-Header-Content-Length: {len(text)}\r\n" if binary else ""
        return _message(200, b"".join([text, *binary]), more)

    def _write(self, name: str, data: bytes, place: dict[str, Any]) -> None:
        room = place["shared_memory_byte_size"]
        if len(data) > room:
            words = f"shared memory size specified with the request for output '{name}' ({room} bytes) should be at "
            raise _Refused("INTERNAL", f"{words}least {len(data)} bytes to hold the results")
        memory = self._stand_in.regions.get(place["shared_memory_region"])
        if memory is None:
            words = f"Unable to find shared memory region: '{place['shared_memory_region']}'"
            raise _Refused("INVALID_ARGUMENT", words)
        offset = place["shared_memory_offset"]
        memory[offset : offset + len(data)] = data
        self.written += 1


def _message(status: int, body: bytes, more: str = "") -> bytes:
    return f"HTTP/1.1 {status} Whatever\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body
