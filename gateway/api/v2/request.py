"""From the body of an infer call to what is asked of the gateway.

A body is JSON, and after it the bytes of those inputs that say `binary_data_size`; the header
`Inference-Header-Content-Length` says how long the JSON is, where it is not all of it. Lengths are taken at their word
or refused: what the inputs say must be what their types and shapes need, and together all that is there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.core.types import MAX_INTERVAL_NS, MIN_INTERVAL_NS, NS_PER_MS
from gateway.errors import BadInference, NotSupported
from gateway.triton.tensors import BYTES, ELEMENT_BYTES, BadTensor, check_size, from_json
from gateway.triton.types import Tensor

_NS_PER_US = 1_000
_LENGTH = re.compile(rb"[0-9]{1,18}")
#: More axes than this has no model; more elements no body.
_MOST_AXES = 16
_MOST_ELEMENTS = 1 << 40
_MOST_ID_CHARS = 1_024
#: An input's or output's.
_MOST_NAME_CHARS = 256
_INT64 = range(-(2**63), 2**63)
_SHOWN_CHARS = 80
#: Why some of what the protocol knows is refused.
_NO_SEQUENCES = "sequences are not supported: a frame or a call is scheduled for itself, whatever came before it"
_NO_PRIORITY = (
    "'priority' is not supported: work is ordered by deadlines, so give 'deadline_ms'; without it a call is best effort"
)
_NO_SHARED_MEMORY = (
    "shared memory of a client is not supported: the gateway batches calls in memory of its own. Send the tensor in "
    "the body, as binary data"
)
_NO_CLASSIFICATION = "'classification' is not supported: ask for the output itself and take its largest elements"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An output that is asked for; `binary`: its form, None if nothing was said."""

    name: str
    binary: bool | None


@dataclass(slots=True)
class InferRequest:
    """An infer call.

    Attributes:
        id: To be said in the answer; None if there is none.
        outputs: Empty: all.
        binary_output: The form of outputs of which nothing was said.
        deadline_ns, timeout_ns: See `gateway.runtime.calls.Call`.
        parameters: For the model's backend.
    """

    id: str | int | None
    inputs: tuple[Tensor, ...]
    outputs: tuple[Wanted, ...]
    binary_output: bool
    deadline_ns: int | None
    timeout_ns: int | None
    parameters: dict[str, bool | int | float | str]

    def is_binary(self, name: str) -> bool:
        """Return whether this output is to come as binary data."""
        said = next((wanted.binary for wanted in self.outputs if wanted.name == name), None)
        return self.binary_output if said is None else said


def json_size(values: list[bytes]) -> int | None:
    """Return what `Inference-Header-Content-Length` says, of all its `values`; None: the body is all JSON.

    Raises:
        BadInference: It is there twice, or is not a positive number.
    """
    if not values:
        return None
    if len(values) > 1 or _LENGTH.fullmatch(values[0]) is None or int(values[0]) == 0:
        raise BadInference("'Inference-Header-Content-Length' must be there once: the bytes of the JSON, at least 1")
    return int(values[0])


def parse(body: bytes | memoryview, size: int | None) -> InferRequest:
    """Return what `body` asks for; its first `size` bytes are JSON, all of it if None.

    Raises:
        BadInference, NotSupported: It is malformed, or asks for what there is not.
    """
    view = memoryview(body)
    if size is None:
        size = len(view)
    elif size > len(view):
        raise BadInference(f"inference header size should be in range (0, {len(view)}), got: {size}")
    try:
        document = orjson.loads(view[:size])
    except orjson.JSONDecodeError as error:
        raise BadInference(
            f"failed to parse the request JSON: {error.msg} at {error.pos} (binary data after it needs the header "
            "Inference-Header-Content-Length)"
        ) from None
    if type(document) is not dict:
        raise BadInference("the request must be a JSON object")
    try:
        return _read(document, view[size:])
    except BadTensor as error:
        raise BadInference(str(error)) from None


def _read(document: dict[str, Any], rest: memoryview) -> InferRequest:
    identifier = document.get("id")
    if not (identifier is None or type(identifier) in (str, int)) or len(str(identifier)) > _MOST_ID_CHARS:
        raise BadInference(f"'id' must be a string of at most {_MOST_ID_CHARS} characters")
    deadline_ns, timeout_ns, binary_output, others = _parameters(document)
    return InferRequest(
        id=identifier,
        inputs=_inputs(_objects(document, "inputs"), rest),
        outputs=tuple(map(_output, _objects(document, "outputs"))) if "outputs" in document else (),
        binary_output=binary_output,
        deadline_ns=deadline_ns,
        timeout_ns=timeout_ns,
        parameters=others,
    )


def _objects(document: Mapping[str, Any], member: str) -> list[dict[str, Any]]:
    items = document.get(member)
    if type(items) is not list or any(type(item) is not dict for item in items):
        raise BadInference(f"'{member}' must be a list of objects")
    return items


def _named(item: Mapping[str, Any], what: str) -> str:
    name = item.get("name")
    if type(name) is not str or not 0 < len(name) <= _MOST_NAME_CHARS:
        raise BadInference(f"each of the {what}s must have a 'name' of at most {_MOST_NAME_CHARS} characters")
    return name


def _parameters_of(item: Mapping[str, Any], what: str) -> dict[str, Any]:
    parameters = item.get("parameters", {})
    if type(parameters) is not dict:
        raise BadInference(f"'parameters' of {what} must be an object")
    return parameters


# ---------------------------------------------------------------- inputs


def _inputs(items: list[dict[str, Any]], rest: memoryview) -> tuple[Tensor, ...]:
    tensors, offset = [], 0
    for item in items:
        tensor, taken = _input(item, rest[offset:])
        offset += taken
        tensors.append(tensor)
    if offset != len(rest):
        raise BadInference(f"{len(rest)} bytes follow the JSON, but the inputs' 'binary_data_size' make {offset}")
    return tuple(tensors)


def _input(item: dict[str, Any], rest: memoryview) -> tuple[Tensor, int]:
    """Return an input, and how many bytes of `rest` are its."""
    name = _named(item, "input")
    datatype, shape = item.get("datatype"), _shape(name, item.get("shape"))
    if type(datatype) is not str or (datatype not in ELEMENT_BYTES and datatype != BYTES):
        raise BadInference(f"'datatype' of input '{name}' is none of {sorted(ELEMENT_BYTES)} or {BYTES}")
    size: int | None = None
    for key, value in _parameters_of(item, f"input '{name}'").items():
        if key == "binary_data_size":
            size = _size(name, value, len(rest))
        elif key.startswith("shared_memory_"):
            raise NotSupported(f"input '{name}': {_NO_SHARED_MEMORY}.")
        else:
            raise BadInference(f"input '{name}' has an unknown parameter '{key[:_SHOWN_CHARS]}'")
    if (size is None) == ("data" not in item):
        raise BadInference(f"input '{name}' must have one of 'data' and 'binary_data_size'")
    if size is None:
        return Tensor(name, datatype, shape, from_json(name, datatype, shape, item["data"])), 0
    data = rest[:size]
    check_size(name, datatype, shape, data)
    return Tensor(name, datatype, shape, data), size


def _shape(name: str, shape: object) -> tuple[int, ...]:
    if type(shape) is not list or len(shape) > _MOST_AXES or any(type(axis) is not int for axis in shape):
        raise BadInference(f"'shape' of input '{name}' must be a list of at most {_MOST_AXES} integers")
    if any(axis < 0 for axis in shape) or math.prod(shape) > _MOST_ELEMENTS:
        raise BadInference(f"'shape' of input '{name}' has an axis below 0, or too many elements")
    return tuple(shape)


def _size(name: str, value: object, left: int) -> int:
    if type(value) is not int or not 0 <= value <= left:
        raise BadInference(
            f"'binary_data_size' of input '{name}' must be an integer from 0 to the {left} bytes that are "
            "left of the body"
        )
    return value


# ---------------------------------------------------------------- outputs and parameters


def _output(item: dict[str, Any]) -> Wanted:
    name = _named(item, "output")
    binary: bool | None = None
    for key, value in _parameters_of(item, f"output '{name}'").items():
        if key == "binary_data":
            binary = _flag(key, value)
        elif key == "classification":
            raise NotSupported(f"output '{name}': {_NO_CLASSIFICATION}.")
        elif key.startswith("shared_memory_"):
            raise NotSupported(f"output '{name}': {_NO_SHARED_MEMORY}.")
        else:
            raise BadInference(f"output '{name}' has an unknown parameter '{key[:_SHOWN_CHARS]}'")
    return Wanted(name, binary)


def _parameters(
    document: Mapping[str, Any],
) -> tuple[int | None, int | None, bool, dict[str, bool | int | float | str]]:
    """Return deadline, timeout, whether outputs are binary unless they say otherwise, and what is for the backend."""
    deadline_ns = timeout_ns = None
    binary_output = False
    others: dict[str, bool | int | float | str] = {}
    for key, value in _parameters_of(document, "the request").items():
        match key:
            case "deadline_ms":
                deadline_ns = _interval(key, value, NS_PER_MS)
            case "timeout":
                timeout_ns = _interval(key, value, _NS_PER_US) if value != 0 or type(value) is not int else None
            case "binary_data_output":
                binary_output = _flag(key, value)
            case "priority" if value != 0:
                raise NotSupported(f"{_NO_PRIORITY}.")
            case "sequence_id" | "sequence_start" | "sequence_end" if value not in (0, ""):
                raise NotSupported(f"{_NO_SEQUENCES}.")
            case "priority" | "sequence_id" | "sequence_start" | "sequence_end":
                pass  # as if it were not there
            case _:
                others[key] = _for_backend(key, value)
    if deadline_ns is not None and timeout_ns is not None:
        raise BadInference("give 'deadline_ms' (real time) or 'timeout' (best effort), not both")
    return deadline_ns, timeout_ns, binary_output, others


def _interval(key: str, value: object, unit_ns: int) -> int:
    """Return a relative time in ns. JSON has no numbers that are not finite."""
    if type(value) in (int, float) and MIN_INTERVAL_NS <= value * unit_ns <= MAX_INTERVAL_NS:  # type: ignore[operator]
        return round(value * unit_ns)  # type: ignore[operator]
    least, most = MIN_INTERVAL_NS / unit_ns, MAX_INTERVAL_NS / unit_ns
    raise BadInference(f"parameter '{key}' must be a number from {least:g} to {most:g}")


def _flag(key: str, value: object) -> bool:
    if type(value) is not bool:
        raise BadInference(f"parameter '{key}' must be true or false")
    return value


def _for_backend(key: str, value: object) -> bool | int | float | str:
    if key.startswith(("triton_", "framegate_")):
        raise NotSupported(f"parameter '{key[:_SHOWN_CHARS]}': names that begin so are reserved.")
    if isinstance(value, bool | float | str) or (isinstance(value, int) and value in _INT64):
        return value
    raise BadInference(f"parameter '{key[:_SHOWN_CHARS]}' must be a string, a number or a truth value")
