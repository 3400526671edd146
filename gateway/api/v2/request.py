"""From the body of an infer call to what is asked of the gateway.

A body is JSON, and after it the bytes of those inputs that say `binary_data_size`; the header
`Inference-Header-Content-Length` says how long the JSON is, where it is not all of it. Lengths are taken at their word
or refused: what the inputs say must be what their types and shapes need, and together all that is there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from gateway.core.types import MAX_INTERVAL_NS, MIN_INTERVAL_NS, NS_PER_MS
from gateway.errors import BadInference, BodyTooLarge, NotSupported
from gateway.triton.tensors import BYTES, ELEMENT_BYTES, BadTensor, check_size, from_json
from gateway.triton.types import Tensor

_NS_PER_US = 1_000
_LENGTH = re.compile(rb"[0-9]{1,18}")
#: More axes than this has no model; more elements no body.
_MOST_AXES = 16
_MOST_ELEMENTS = 1 << 40
#: Elements of BYTES where nobody says how many there may be.
MOST_STRINGS = 1 << 20
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


class TooLong(Exception):
    """The body is well formed so far, and to look through its BYTES tensors would hold up others."""


def _any(_inputs: Sequence[Tensor]) -> None:
    pass


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
        deadline_ns, timeout_ns: See `gateway.runtime.call.Call`.
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


def parse(
    body: bytes | memoryview,
    size: int | None,
    *,
    check: Callable[[Sequence[Tensor]], object] = _any,
    most_elements: int = MOST_STRINGS,
    at_once: int | None = None,
) -> InferRequest:
    """Return what `body` asks for; its first `size` bytes are JSON, all of it if None.

    Args:
        body: As it came.
        size: Of the JSON.
        check: Raises for inputs that the model does not have. It is given what is said of them, without their data.
        most_elements: Elements that the BYTES inputs may have together.
        at_once: With more than these they are not looked at here; None: with however many they are.

    Raises:
        BadInference, NotSupported: It is malformed, or asks for what there is not.
        BodyTooLarge: It has more than `most_elements`.
        TooLong: It has more than `at_once`.
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
        request, declared = _read(document, view[size:])
        check(request.inputs)
        _check_work(request.inputs, most_elements, at_once)
        request.inputs = tuple(map(_with_data, declared, request.inputs))
    except BadTensor as error:
        raise BadInference(str(error)) from None
    return request


def _check_work(inputs: Sequence[Tensor], most_elements: int, at_once: int | None) -> None:
    """Raise for more strings than may be: by what the shapes say, before one of them is looked at."""
    elements = sum(math.prod(tensor.shape) for tensor in inputs if tensor.datatype == BYTES)
    if elements > most_elements:
        raise BodyTooLarge(
            f"The BYTES inputs have {elements} elements; {most_elements} are allowed in a call "
            "(FRAMEGATE_LIMITS__MAX_BYTES_ELEMENTS).",
            limit_elements=most_elements,
        )
    if at_once is not None and elements > at_once:
        raise TooLong(f"{elements} elements")


def _read(document: dict[str, Any], rest: memoryview) -> tuple[InferRequest, list[_Data]]:
    """Return the call, its inputs without their data, and where those are."""
    identifier = document.get("id")
    if not (identifier is None or type(identifier) in (str, int)) or len(str(identifier)) > _MOST_ID_CHARS:
        raise BadInference(f"'id' must be a string of at most {_MOST_ID_CHARS} characters")
    deadline_ns, timeout_ns, binary_output, others = _parameters(document)
    inputs, data = _inputs(_objects(document, "inputs"), rest)
    request = InferRequest(
        id=identifier,
        inputs=inputs,
        outputs=tuple(map(_output, _objects(document, "outputs"))) if "outputs" in document else (),
        binary_output=binary_output,
        deadline_ns=deadline_ns,
        timeout_ns=timeout_ns,
        parameters=others,
    )
    return request, data


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


#: Bytes of the body, or an input's `data` in JSON.
_Data = memoryview | list[Any]


def _inputs(items: list[dict[str, Any]], rest: memoryview) -> tuple[tuple[Tensor, ...], list[_Data]]:
    """Return the inputs without their data, and the data, which nobody has looked at yet."""
    tensors: list[Tensor] = []
    found: list[_Data] = []
    offset = 0
    for item in items:
        tensor, size = _input(item, len(rest) - offset)
        found.append(item["data"] if size is None else rest[offset : offset + size])
        offset += size or 0
        tensors.append(tensor)
    if offset != len(rest):
        raise BadInference(f"{len(rest)} bytes follow the JSON, but the inputs' 'binary_data_size' make {offset}")
    return tuple(tensors), found


def _with_data(data: _Data, tensor: Tensor) -> Tensor:
    """Return the input with its data, once they have been looked through."""
    name, datatype, shape = tensor.name, tensor.datatype, tensor.shape
    if not isinstance(data, memoryview):
        return replace(tensor, data=from_json(name, datatype, shape, data))
    check_size(name, datatype, shape, data)
    return replace(tensor, data=data)


def _input(item: dict[str, Any], left: int) -> tuple[Tensor, int | None]:
    """Return an input without its data, and how many of the `left` bytes are its; None: they are in the JSON."""
    name = _named(item, "input")
    datatype, shape = item.get("datatype"), _shape(name, item.get("shape"))
    if type(datatype) is not str or (datatype not in ELEMENT_BYTES and datatype != BYTES):
        raise BadInference(f"'datatype' of input '{name}' is none of {sorted(ELEMENT_BYTES)} or {BYTES}")
    size: int | None = None
    for key, value in _parameters_of(item, f"input '{name}'").items():
        if key == "binary_data_size":
            size = _size(name, value, left)
        elif key.startswith("shared_memory_"):
            raise NotSupported(f"input '{name}': {_NO_SHARED_MEMORY}.")
        else:
            raise BadInference(f"input '{name}' has an unknown parameter '{key[:_SHOWN_CHARS]}'")
    if (size is None) == ("data" not in item):
        raise BadInference(f"input '{name}' must have one of 'data' and 'binary_data_size'")
    return Tensor(name, datatype, shape, b""), size


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
                deadline_ns = _interval(key, value, "milliseconds", NS_PER_MS)
            case "timeout":
                if value != 0 or type(value) is not int:
                    timeout_ns = _interval(key, value, "microseconds", _NS_PER_US)
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


def _interval(key: str, value: object, unit: str, unit_ns: int) -> int:
    """Return a relative time in ns. JSON has no numbers that are not finite."""
    if type(value) in (int, float) and MIN_INTERVAL_NS <= value * unit_ns <= MAX_INTERVAL_NS:  # type: ignore[operator]
        return round(value * unit_ns)  # type: ignore[operator]
    least, most = MIN_INTERVAL_NS / unit_ns, MAX_INTERVAL_NS / unit_ns
    raise BadInference(f"parameter '{key}' must be a number of {unit}, from {least:g} to {most:.0f}")


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
