"""What is to be measured, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gateway.core.profile import Profile
from gateway.core.types import Category
from gateway.errors import FramegateError
from gateway.runtime.models import frame_bytes
from gateway.triton.types import TensorInfo

#: In the reason of a model that Triton's repository does not have.
NO_SUCH_MODEL = "Triton's repository has no such model"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: every batch size at every shape of every model.

    Attributes:
        models: Names of models.
        shapes: Sizes for the free axes of a model's input, or its whole shape; empty for models without free axes.
        batches: Batch sizes.
        samples: Per point, warm-up not counted.
        pauses: Native engine: some samples come after a pause, as a live stream's frames do (`profiler.pauses`).
            False: all of them back to back, as perf_analyzer takes them.
        point_limit_s: A point takes no longer: the native engine keeps what samples it has, perf_analyzer is asked for
            as many as fit, and killed when that was wrong.
        connect_limit_s: How long to wait for Triton to answer.
        load_limit_s: How long to wait, from then on, for the models to load.
        server_pid: Of a tritonserver on this machine that is ours: its models are also unloaded and loaded, and their
            memory is measured. None: only execution times.
        swaps: With `server_pid`: how often each is.
        loads: With `server_pid`: also how much longer a model's executions take while another one loads.
        load_beside: The other one; empty: another of `models`, the one measured if there is no other.
    """

    models: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    batches: tuple[int, ...]
    samples: int = 200
    pauses: bool = True
    point_limit_s: float = 120.0
    connect_limit_s: float = 15.0
    load_limit_s: float = 180.0
    server_pid: int | None = None
    swaps: int = 5
    loads: bool = False
    load_beside: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to measure, resolved.

    Attributes:
        category: Model, version, shape and dtype.
        batch: Frames in a batch.
        input_name: Of the model's one input.
    """

    category: Category
    batch: int
    input_name: str

    def __str__(self) -> str:
        """Return it as shown while it is measured."""
        return f"{self.category.model} {'x'.join(map(str, self.category.shape))} batch {self.batch}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A point, or a whole model (batch 0), that could not be measured."""

    model: str
    shape: tuple[int, ...]
    batch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured, and what was not."""

    profile: Profile
    failures: tuple[Failure, ...]


#: Called with what is being measured and how many samples were taken since the last call.
Progress = Callable[[str, int], None]


def fill(tensor: TensorInfo, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the input's shape with its free axes replaced by `sizes`, or `sizes` itself if it names all axes.

    Raises:
        FramegateError: `sizes` has neither as many axes as are free nor as many as there are.
    """
    if len(sizes) == len(tensor.shape):
        return sizes
    if len(sizes) != tensor.shape.count(-1):
        raise FramegateError(f"Input {tensor.name} has axes {list(tensor.shape)}; {len(sizes)} sizes do not fill them.")
    rest = iter(sizes)
    return tuple(next(rest) if axis == -1 else axis for axis in tensor.shape)


def noise_frame(shape: tuple[int, ...], dtype: str) -> bytes:
    """Return a frame of noise, the same every time: zeros would be an easy case for some operators."""
    random = np.random.default_rng(0)
    size = math.prod(shape)
    floats = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
    if dtype in floats:
        return random.random(size).astype(floats[dtype]).tobytes()
    if dtype == "BF16":  # the upper half of an FP32
        return (random.random(size, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    if dtype == "BOOL":
        return random.integers(0, 2, size, dtype=np.uint8).tobytes()
    return random.bytes(frame_bytes(shape, dtype))
