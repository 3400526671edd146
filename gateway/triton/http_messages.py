"""Calls whose frames lie in shared memory, as HTTP requests, and what Triton answers.

The protocol is KServe's version 2 with Triton's extensions for system shared memory and binary data. Requests of one
model, batch size and layout of outputs differ only in where things lie, so their bytes are built once, with holes of
fixed width for the offsets: an offset is filled up with blanks, which JSON allows. The length is thus known too.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.triton.http_connection import Answer
from gateway.triton.tensors import ELEMENT_BYTES, to_array
from gateway.triton.types import BackendError, InferenceCall, InSharedMemory, OutputRoom, Outputs

#: As wide as the largest 64-bit number.
_HOLE = b"%20d"
#: Forgotten together beyond that; there are as many as batches that may be formed.
_MOST_TEMPLATES = 4096
#: Of an answer in somebody else's form: what stands between us and Triton may answer with a page.
_MOST_WORDS = 300
#: As Triton's gRPC side calls what its HTTP side answers with these; the rest is what others answer in its place.
_CODES: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "INVALID_ARGUMENT",
    HTTPStatus.NOT_FOUND: "NOT_FOUND",
    HTTPStatus.INTERNAL_SERVER_ERROR: "INTERNAL",
    HTTPStatus.NOT_IMPLEMENTED: "UNIMPLEMENTED",
    HTTPStatus.SERVICE_UNAVAILABLE: "UNAVAILABLE",
    HTTPStatus.FORBIDDEN: "PERMISSION_DENIED",
    HTTPStatus.CONFLICT: "ALREADY_EXISTS",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RESOURCE_EXHAUSTED",
    HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED",
    HTTPStatus.BAD_GATEWAY: "UNAVAILABLE",
    HTTPStatus.GATEWAY_TIMEOUT: "UNAVAILABLE",
}


class Requests:
    """Writes requests.

    Args:
        host: For their ``Host`` header.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._templates: dict[tuple[object, ...], bytes] = {}

    def infer(self, call: InferenceCall, data: InSharedMemory) -> bytes:
        """Return the request of a call whose input is `data`."""
        room = call.room
        template = self.template(call, data)
        if room is None:
            return template % data.offset
        return template % (data.offset, *[room.offset + first for first, _ in room.layout.places.values()])

    def template(self, call: InferenceCall, data: InSharedMemory) -> bytes:
        """Return the same with a hole for each offset: the input's, then those of the outputs in the room."""
        room = call.room
        if call.parameters:
            template = self._template(call, data)  # they are for experiments, and different each time
        else:
            layout = None if room is None else room.layout
            key = (call.model, call.version, call.input_name, call.datatype, call.shape, data.region, data.size, layout)
            known = self._templates.get(key)
            if known is None:
                if len(self._templates) >= _MOST_TEMPLATES:
                    self._templates.clear()
                known = self._templates[key] = self._template(call, data)
            template = known
        return template

    def region(self, name: str) -> bytes:
        """Return the question for a region."""
        return b"GET /v2/systemsharedmemory/region/%b/status HTTP/1.1\r\nHost: %b\r\n\r\n" % (
            quote(name, safe="").encode(),
            self._host.encode(),
        )

    def _template(self, call: InferenceCall, data: InSharedMemory) -> bytes:
        head = b'{"name":%b,"datatype":%b,"shape":%b,"parameters":' % tuple(
            map(_text, (call.input_name, call.datatype, call.shape))
        )
        members = [b'"inputs":[%b%b}]' % (head, _place(data.region, data.size))]
        parameters: dict[str, Any] = dict(call.parameters)
        room = call.room
        if room is None:
            parameters["binary_data_output"] = True
        else:
            outputs = [
                b'{"name":%b,"parameters":%b}' % (_text(name), _place(room.region, size))
                for name, (_, size) in room.layout.places.items()
            ]
            outputs += [b'{"name":%b,"parameters":{"binary_data":true}}' % _text(name) for name in room.layout.others]
            members.append(b'"outputs":[%b]' % b",".join(outputs))
        if parameters:
            members.append(b'"parameters":%b' % _text(parameters))
        body = b"{%b}" % b",".join(members)
        holes = 1 + (0 if room is None else len(room.layout.places))
        version = f"/versions/{quote(call.version, safe='')}" if call.version else ""
        lines = [
            f"POST /v2/models/{quote(call.model, safe='')}{version}/infer HTTP/1.1",
            f"Host: {self._host}",
            "Content-Type: application/json",
            f"Content-Length: {len(body % ((0,) * holes))}",
        ]
        return "\r\n".join([*lines, "", ""]).replace("%", "%%").encode() + body


def _text(value: object) -> bytes:
    """Return JSON in which nothing is taken for a hole."""
    return orjson.dumps(value).replace(b"%", b"%%")


def _place(region: str, size: int) -> bytes:
    return b'{"shared_memory_region":%b,"shared_memory_byte_size":%d,"shared_memory_offset":%b}' % (
        _text(region),
        size,
        _HOLE,
    )


class Replies:
    """Reads what calls return.

    The JSON of an answer is the same, byte for byte, for all batches of one model and size, so what it says is kept.
    """

    def __init__(self) -> None:
        self._forms: dict[bytes, _Form] = {}

    def outputs(self, answer: Answer, room: OutputRoom | None = None) -> Outputs:
        """Return the outputs. The arrays are read-only; those in `room` are copied out of it.

        Raises:
            BackendError: Triton's refusal or failure, or the answer is not one.
        """
        if answer.status != HTTPStatus.OK:
            raise _refusal(answer)
        if room is None and answer.head_bytes is not None:
            form = self._forms.get(bytes(answer.body[: answer.head_bytes]))
            if form is not None and form.size == len(answer.body):
                return form.read(answer.body)
        try:
            outputs = _outputs(answer, room)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BackendError(f"Triton's answer cannot be read: {error!r}") from None
        if room is None and answer.head_bytes is not None:
            self._note(answer, outputs)
        return outputs

    def _note(self, answer: Answer, outputs: Outputs) -> None:
        """Keep what the JSON says, if all outputs follow it as they are, back to back, and are numbers."""
        places, start = [], answer.head_bytes or 0
        for name, array in outputs.items():
            if array.dtype.hasobject:
                return
            places.append((name, array.shape, array.dtype, start))
            start += array.nbytes
        if start == len(answer.body):  # BF16 takes more here than in the answer
            if len(self._forms) >= _MOST_TEMPLATES:
                self._forms.clear()
            self._forms[bytes(answer.body[: answer.head_bytes])] = _Form(outputs.version, tuple(places), start)


class _Form(NamedTuple):
    """What the JSON of an answer says: of each output its name, shape, type and first byte; and the whole size."""

    version: str
    places: tuple[tuple[str, tuple[int, ...], np.dtype[Any], int], ...]
    size: int

    def read(self, body: bytes | memoryview) -> Outputs:
        arrays: dict[str, NDArray[Any]] = {
            name: np.ndarray(shape, dtype, body, start) for name, shape, dtype, start in self.places
        }
        return Outputs(arrays, self.version)


def _outputs(answer: Answer, room: OutputRoom | None) -> Outputs:
    body = memoryview(answer.body)
    start = len(body) if answer.head_bytes is None else answer.head_bytes
    document = orjson.loads(body[:start])
    written = memoryview(b"" if room is None else room.copy())
    places = {} if room is None else room.layout.places
    arrays = {}
    for output in document["outputs"]:
        name, datatype, shape = output["name"], output["datatype"], tuple(output["shape"])
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            data = body[start : start + size]
            start += size
        elif name in places:
            data = _written(written, places[name], datatype, shape)
        else:
            raise BackendError("the answer has outputs without their bytes")
        arrays[name] = to_array(datatype, shape, data)
    return Outputs(arrays, document["model_version"])


def _written(written: memoryview, place: tuple[int, int], datatype: str, shape: tuple[int, ...]) -> memoryview:
    """Return the bytes of an output in the room, which may be smaller than its place."""
    first, most = place
    return written[first : first + min(most, math.prod(shape) * ELEMENT_BYTES[datatype])]


def _refusal(answer: Answer) -> BackendError:
    try:
        words = orjson.loads(answer.body)["error"]
        if not isinstance(words, str):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        words = f"HTTP status {answer.status}: {bytes(answer.body[:_MOST_WORDS]).decode(errors='replace')}"
    return BackendError(words, _CODES.get(answer.status, "UNKNOWN"))


def knows_region(answer: Answer, name: str) -> bool:
    """Whether Triton, asked for a region, says that it has it open."""
    try:
        regions = orjson.loads(answer.body)
        return answer.status == HTTPStatus.OK and any(region["name"] == name for region in regions)
    except (ValueError, KeyError, TypeError):
        return False
