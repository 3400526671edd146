"""What the servers that are compared with are told about the model, through their environment.

Their workers are processes that they start themselves, with nothing else in common.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_VARIABLE = "FRAMEGATE_BENCH_RIVAL"


@dataclass(frozen=True)
class Rival:
    """One server's share.

    Attributes:
        worker_core: The worker, which has the place of Triton, moves to this processor core.
        shape: Of a frame.
        most: Frames in a batch.
        wait_ms: How long the batcher may wait for more.
    """

    worker_core: int
    shape: tuple[int, ...]
    most: int
    wait_ms: int

    def environment(self) -> dict[str, str]:
        """What the server is started with."""
        return {_VARIABLE: json.dumps([self.worker_core, self.shape, self.most, self.wait_ms])}

    @classmethod
    def told(cls) -> Self:
        """Read it."""
        core, shape, most, wait_ms = json.loads(os.environ[_VARIABLE])
        return cls(core, tuple(shape), most, wait_ms)

    def begin_work(self) -> None:
        """This is the worker."""
        os.sched_setaffinity(0, {self.worker_core})

    def frame(self, data: bytes) -> npt.NDArray[Any]:
        """Return a view of a frame's bytes."""
        return np.frombuffer(data, np.uint8).reshape(self.shape)


def first_value(frame: npt.NDArray[Any]) -> list[float]:
    """The model: the first value of each channel."""
    values: list[float] = frame[0, 0, :].astype(np.float32).tolist()
    return values
