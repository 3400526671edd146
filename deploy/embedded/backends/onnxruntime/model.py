"""Triton Python-based backend `onnxruntime`: serves ONNX models where Triton's C++ backend is not at hand.

It reads the same ``config.pbtxt`` and ``<repository>/<model>/<version>/model.onnx`` as the C++ backend does. Each
instance lives in its own stub process; one request is one batch (dynamic batching is off in Framegate's models).

Threads: ``parameters { key: "intra_op_thread_count" value: { string_value: "2" } }`` in the config as for the C++
backend, else the environment variable ``FRAMEGATE_INTRA_OP_THREADS``, else one per core (0).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

# Before ONNX Runtime is imported: recent ones report their use to their maker.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils

#: ONNX Runtime's spelling -> Triton's.
DATATYPES = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16",
    "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(float16)": "TYPE_FP16",
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(string)": "TYPE_STRING",
}
MODEL_FILE = "model.onnx"


class TritonPythonModel:
    """One instance of one model: an ONNX Runtime session."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model's file and check that the config describes it."""
        config = json.loads(args["model_config"])
        path = model_file(args, config, MODEL_FILE)
        self._session = open_session(path, thread_count(config, "intra_op_thread_count"))
        check_side(config, "input", self._session.get_inputs())
        check_side(config, "output", self._session.get_outputs())
        self._dtypes = {
            tensor["name"]: np.dtype(pb_utils.triton_string_to_numpy(tensor["data_type"])) for tensor in config["input"]
        }

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Run each request as one batch; an error is the answer of the request that caused it."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        wanted = list(request.requested_output_names())
        try:
            time.sleep(injected_delay_s(request))
            feed = {}
            for name, dtype in self._dtypes.items():
                tensor = pb_utils.get_input_tensor_by_name(request, name)
                if tensor is None:
                    raise ValueError(f"input '{name}' is missing")
                array = tensor.as_numpy()  # a view of the request's shared memory
                if array.dtype != dtype:
                    raise ValueError(f"input '{name}' is {array.dtype}, the model takes {dtype}")
                feed[name] = strings(array) if dtype.hasobject else array
            arrays = [elements(array) if array.dtype.hasobject else array for array in self._session.run(wanted, feed)]
        # Whatever ONNX Runtime raises must become this request's error, not the end of the stub.
        except Exception as error:  # noqa: BLE001
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"onnxruntime: {error}"))
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, a) for name, a in zip(wanted, arrays, strict=True)])

    def finalize(self) -> None:
        """Let go of the session."""
        self._session = None


def strings(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return Triton's BYTES as ONNX Runtime takes strings. Raises `UnicodeDecodeError`: it knows nothing but UTF-8."""
    return np.array([element.decode() for element in array.ravel()], np.object_).reshape(array.shape)


def elements(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return ONNX Runtime's strings as Triton's BYTES."""
    return np.array([text.encode() for text in array.ravel()], np.object_).reshape(array.shape)


def open_session(path: Path, intra_op_threads: int) -> ort.InferenceSession:
    """Return a CPU session; `intra_op_threads` 0 means one per core."""
    options = ort.SessionOptions()
    options.log_severity_level = 3  # warnings are about unused initializers, once per load
    options.intra_op_num_threads = intra_op_threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    # Threads that spin while they wait for work take the cores that the gateway and the next job need. On two cores a
    # run of centerface cost 28 ms of CPU time instead of 7, and with one core busy it took 7.9 ms instead of 5.1.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions share no public base class
        raise pb_utils.TritonModelException(f"{path}: {error}") from error


def model_file(args: dict[str, str], config: dict[str, Any], default_name: str) -> Path:
    """Return the path of the version's file, which must exist."""
    name = config.get("default_model_filename") or default_name
    path = Path(args["model_repository"], args["model_version"], name)
    if not path.is_file():
        raise pb_utils.TritonModelException(
            f"{path} does not exist: build it with `framegate zoo build {config['name']}`"
        )
    return path


def thread_count(config: dict[str, Any], key: str) -> int:
    """Return the number of threads asked for by the config, else by the environment; 0 is one per core."""
    parameter = config.get("parameters", {}).get(key, {}).get("string_value")
    return int(parameter if parameter is not None else os.environ.get("FRAMEGATE_INTRA_OP_THREADS", "0"))


def check_side(config: dict[str, Any], side: str, model_tensors: list[ort.NodeArg]) -> None:
    """Compare the config's inputs or outputs with the file's: names, datatypes, number of dimensions, fixed sizes."""
    known = {tensor.name: tensor for tensor in model_tensors}
    batched = config.get("max_batch_size", 0) > 0
    for described in config[side]:
        name = described["name"]
        tensor = known.get(name)
        if tensor is None:
            raise pb_utils.TritonModelException(f"{side} '{name}' is not in the model, which has {sorted(known)}")
        if DATATYPES.get(tensor.type) != described["data_type"]:
            raise pb_utils.TritonModelException(
                f"{side} '{name}' is {described['data_type']}, the model: {tensor.type}"
            )
        dims = [-1] * batched + [int(dim) for dim in described["dims"]]
        shape = [dim if isinstance(dim, int) else -1 for dim in tensor.shape]
        fits = len(dims) == len(shape) and all(
            -1 in pair or pair[0] == pair[1] for pair in zip(dims, shape, strict=True)
        )
        if not fits:
            raise pb_utils.TritonModelException(f"{side} '{name}' has the shape {dims}, the model: {shape}")
    if side == "input" and len(config[side]) != len(known):
        raise pb_utils.TritonModelException(f"the model's inputs are {sorted(known)}; the config names fewer")


def injected_delay_s(request: pb_utils.InferenceRequest) -> float:
    """Return how long the request asks to be held up; 0 unless this Triton was started for fault injection."""
    if os.environ.get("FRAMEGATE_FAULT_INJECTION") != "1":
        return 0.0
    return json.loads(request.parameters() or "{}").get("framegate_delay_ms", 0) / 1_000
