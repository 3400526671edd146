"""The plain client that swapping is measured against: unload, wait until it is gone, load, warm; one after the other.

It uses Triton's client library as anybody would, and nothing of the gateway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import tritonclient.grpc as triton

from benchmarks.swapping.models import TestModel

_POLL_S = 0.005
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Swap:
    """What one took, in s."""

    unload_s: float
    load_s: float
    warm_s: float


@dataclass(frozen=True)
class Means:
    """Of many, in s."""

    unload_s: float
    load_s: float
    warm_s: float

    @property
    def sum_s(self) -> float:
        """One after the other."""
        return self.unload_s + self.load_s + self.warm_s

    @property
    def larger_s(self) -> float:
        """Both at once."""
        return max(self.unload_s, self.load_s + self.warm_s)


def means(swaps: Sequence[Swap]) -> Means:
    """Return the means."""
    return Means(*(fmean(getattr(swap, name) for swap in swaps) for name in ("unload_s", "load_s", "warm_s")))


class PlainClient:
    """One client of one Triton; every call blocks."""

    def __init__(self, url: str) -> None:
        self._client = triton.InferenceServerClient(url)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def unload(self, model: str) -> None:
        """Unload and wait until the index says that it is gone."""
        self._client.unload_model(model)
        while self._loaded(model):
            time.sleep(_POLL_S)

    def load(self, model: str) -> None:
        """Load; Triton answers when it is there."""
        self._client.load_model(model, client_timeout=_TIMEOUT_S)

    def infer(self, model: TestModel, frames: int) -> None:
        """Run one batch of black frames."""
        tensor = triton.InferInput("image", [frames, *model.shape], "UINT8")
        tensor.set_data_from_numpy(np.zeros((frames, *model.shape), np.uint8))
        self._client.infer(model.name, [tensor], client_timeout=_TIMEOUT_S)

    def unload_all(self) -> None:
        """Leave an empty Triton."""
        for model in {state.name for state in self._client.get_model_repository_index().models if state.state}:
            if self._loaded(model):
                self.unload(model)

    def swap(self, old: TestModel, new: TestModel, batches: Sequence[int]) -> Swap:
        """Replace `old` by `new`, warmed with a batch of each size."""
        begin_s = time.monotonic()
        self.unload(old.name)
        gone_s = time.monotonic()
        self.load(new.name)
        loaded_s = time.monotonic()
        for frames in batches:
            self.infer(new, frames)
        return Swap(gone_s - begin_s, loaded_s - gone_s, time.monotonic() - loaded_s)

    def _loaded(self, model: str) -> bool:
        states = self._client.get_model_repository_index().models
        return any(state.name == model and state.state in {"READY", "UNLOADING"} for state in states)


@contextmanager
def frames_beside(url: str, model: TestModel, period_s: float) -> Iterator[None]:
    """Meanwhile, another plain client runs one frame of `model` every `period_s`."""
    over = threading.Event()

    def run() -> None:
        client = PlainClient(url)
        at_s = time.monotonic()
        while not over.wait(max(0.0, at_s - time.monotonic())):
            client.infer(model, 1)
            at_s += period_s
        client.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def alternate(
    url: str,
    pair: tuple[TestModel, TestModel],
    *,
    beside: TestModel,
    period_s: float,
    batches: Sequence[int],
    swaps: int,
) -> list[Swap]:
    """Swap `pair` for each other `swaps` times, while frames of `beside` come. Leaves Triton empty."""
    client = PlainClient(url)
    client.unload_all()
    client.load(beside.name)
    client.load(pair[0].name)
    with frames_beside(url, beside, period_s):
        found = [client.swap(pair[n % 2], pair[(n + 1) % 2], batches) for n in range(swaps)]
    client.unload_all()
    client.close()
    return found
