"""Triton Python-based backend `tensorflow`: serves frozen GraphDefs where Triton's C++ backend is not at hand.

It reads the same ``config.pbtxt`` (``platform: "tensorflow_graphdef"``) and
``<repository>/<model>/<version>/model.graphdef`` as the C++ backend does: inputs and outputs of the config are names
of nodes. Each instance lives in its own stub process; one request is one batch.

Threads: ``parameters { key: "TF_NUM_INTRA_THREADS" value: { string_value: "2" } }`` in the config as for the C++
backend, else the environment variable ``FRAMEGATE_INTRA_OP_THREADS``, else one per core (0).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before TensorFlow is imported: its C++ side tells every start which instructions the CPU has.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow.compat.v1 as tf
import triton_python_backend_utils as pb_utils

MODEL_FILE = "model.graphdef"


class TritonPythonModel:
    """One instance of one model: a TensorFlow session."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model's file and check that the config describes it."""
        config = json.loads(args["model_config"])
        if config.get("platform", "tensorflow_graphdef") not in ("", "tensorflow_graphdef"):
            raise pb_utils.TritonModelException(f"platform {config['platform']} is not served here, only GraphDef")
        graph = read_graph(args, config)
        self._dtypes = {
            tensor["name"]: np.dtype(pb_utils.triton_string_to_numpy(tensor["data_type"])) for tensor in config["input"]
        }
        self._feeds = [find_tensor(graph, "input", tensor) for tensor in config["input"]]
        self._fetches = {tensor["name"]: find_tensor(graph, "output", tensor) for tensor in config["output"]}
        self._session = open_session(graph, thread_count(config, "TF_NUM_INTRA_THREADS"))
        self._callables = {}

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Run each request as one batch; an error is the answer of the request that caused it."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        wanted = tuple(request.requested_output_names())
        try:
            time.sleep(injected_delay_s(request))
            feed = []
            for name, dtype in self._dtypes.items():
                tensor = pb_utils.get_input_tensor_by_name(request, name)
                if tensor is None:
                    raise ValueError(f"input '{name}' is missing")
                array = tensor.as_numpy()  # a view of the request's shared memory
                if array.dtype != dtype:
                    raise ValueError(f"input '{name}' is {array.dtype}, the model takes {dtype}")
                feed.append(array)
            arrays = self._callable(wanted)(*feed)
        # Whatever TensorFlow raises must become this request's error, not the end of the stub.
        except Exception as error:  # noqa: BLE001
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"tensorflow: {error}"))
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, a) for name, a in zip(wanted, arrays, strict=True)])

    def _callable(self, wanted: tuple[str, ...]) -> Callable[..., list[np.ndarray]]:
        """Return the prepared run for these outputs: it skips what `Session.run` parses at every call."""
        if wanted not in self._callables:
            self._callables[wanted] = self._session.make_callable(
                [self._fetches[name] for name in wanted], feed_list=self._feeds
            )
        return self._callables[wanted]

    def finalize(self) -> None:
        """Let go of the session."""
        self._session.close()


def read_graph(args: dict[str, str], config: dict[str, Any]) -> tf.Graph:
    """Return the version's graph."""
    path = Path(args["model_repository"], args["model_version"], config.get("default_model_filename") or MODEL_FILE)
    if not path.is_file():
        raise pb_utils.TritonModelException(
            f"{path} does not exist: build it with `framegate zoo build {config['name']}`"
        )
    definition = tf.GraphDef()
    graph = tf.Graph()
    try:
        definition.ParseFromString(path.read_bytes())
        with graph.as_default():
            tf.import_graph_def(definition, name="")
    except Exception as error:  # protobuf's and TensorFlow's exceptions share no base class
        raise pb_utils.TritonModelException(f"{path} is not a GraphDef: {error}") from error
    return graph


def open_session(graph: tf.Graph, intra_op_threads: int) -> tf.Session:
    """Return a CPU session; `intra_op_threads` 0 means one per core."""
    options = tf.ConfigProto(
        device_count={"GPU": 0}, intra_op_parallelism_threads=intra_op_threads, inter_op_parallelism_threads=1
    )
    # The optimizer runs inside the first execution, and folds what a frozen graph has folded already: on Inception-v3
    # it made that execution 2.8 s instead of 0.5 s and took 0.5 GB, and later ones were no faster.
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf.Session(graph=graph, config=options)


def find_tensor(graph: tf.Graph, side: str, described: dict[str, Any]) -> tf.Tensor:
    """Return the tensor that the config names; its datatype must agree."""
    name = described["name"]
    try:
        tensor = graph.get_tensor_by_name(f"{name}:0")
    except (KeyError, ValueError) as error:
        raise pb_utils.TritonModelException(f"{side} '{name}' is not in the graph") from error
    expected = pb_utils.triton_string_to_numpy(described["data_type"])
    if tensor.dtype.as_numpy_dtype is not expected:
        raise pb_utils.TritonModelException(
            f"{side} '{name}' is {described['data_type']}, the graph has {tensor.dtype.name}"
        )
    return tensor


def thread_count(config: dict[str, Any], key: str) -> int:
    """Return the number of threads asked for by the config, else by the environment; 0 is one per core."""
    parameter = config.get("parameters", {}).get(key, {}).get("string_value")
    return int(parameter if parameter is not None else os.environ.get("FRAMEGATE_INTRA_OP_THREADS", "0"))


def injected_delay_s(request: pb_utils.InferenceRequest) -> float:
    """Return how long the request asks to be held up; 0 unless this Triton was started for fault injection."""
    if os.environ.get("FRAMEGATE_FAULT_INJECTION") != "1":
        return 0.0
    return json.loads(request.parameters() or "{}").get("framegate_delay_ms", 0) / 1_000
