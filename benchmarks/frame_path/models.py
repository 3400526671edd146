"""What Triton runs: models that cost next to nothing, or nothing but time.

All are one Python file for Triton's own Python backend. It takes each request's frames where the backend has put them
and returns the first value of each channel of each frame; LitServe and mosec are given the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.frame_path.sizes import NAP_MS, SLEEP_MS

MOST_FRAMES = 16
INPUT, OUTPUT = "image", "value"

_CODE = '''\
"""The first value of each channel of each frame, after a pause."""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"]).get("parameters", {})
        self._pause_s = float(parameters["pause_ms"]["string_value"]) / 1e3

    def execute(self, requests):
        answers = []
        for request in requests:
            frames = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
            if self._pause_s:
                time.sleep(self._pause_s)
            values = frames[:, 0, 0, :].astype(np.float32)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("value", values)]))
        return answers
'''
_CONFIG = """\
name: "{name}"
backend: "python"
max_batch_size: {most}
input [ {{ name: "image" data_type: TYPE_UINT8 dims: [ -1, -1, 3 ] }} ]
output [ {{ name: "value" data_type: TYPE_FP32 dims: [ 3 ] }} ]
parameters {{ key: "pause_ms" value: {{ string_value: "{pause_ms}" }} }}
instance_group [ {{ count: 1 rate_limiter {{ resources [ {{ name: "device" global: true count: 1 }} ] }} }} ]
"""
#: Triton's batcher takes what has come while the instance was busy; it does not wait for more, which is faster here.
_BATCHING = "dynamic_batching { }\n"


@dataclass(frozen=True)
class Model:
    """One model.

    Attributes:
        pause_ms: How long it sleeps for each request.
        batching: Triton's own dynamic batching.
    """

    name: str
    pause_ms: float = 0.0
    batching: bool = False

    def config(self) -> str:
        """Its ``config.pbtxt``."""
        text = _CONFIG.format(name=self.name, most=MOST_FRAMES, pause_ms=self.pause_ms)
        return text + _BATCHING * self.batching


FIRST_VALUE = Model("first_value")
BATCHED = Model("first_value_batched", batching=True)
SLEEPER = Model("sleeper", pause_ms=SLEEP_MS)
NAPPER = Model("napper", pause_ms=NAP_MS)
ALL = (FIRST_VALUE, BATCHED, SLEEPER, NAPPER)


def write_repository(folder: Path) -> Path:
    """Write a model repository with `ALL`; return it."""
    for model in ALL:
        (folder / model.name / "1").mkdir(parents=True, exist_ok=True)
        (folder / model.name / "config.pbtxt").write_text(model.config())
        (folder / model.name / "1" / "model.py").write_text(_CODE)
    return folder
