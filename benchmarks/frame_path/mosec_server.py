"""The trivial model in mosec: ``python -m benchmarks.frame_path.mosec_server``.

mosec reads its address from ``MOSEC_ADDRESS`` and ``MOSEC_PORT``, the rest is in `benchmarks.frame_path.rival`. Its
front end, a Rust program, stays on the processor core on which it is started.
"""

from __future__ import annotations

import json
from typing import Any

import numpy.typing as npt
from mosec import Server, Worker

from benchmarks.frame_path.rival import Rival, first_value


class FirstValue(Worker):  # type: ignore[misc]  # its types are not looked at
    """The first value of each channel of each frame. The body of a call is the frame's bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._rival = Rival.told()
        self._rival.begin_work()

    def deserialize(self, data: bytes) -> npt.NDArray[Any]:
        """Return the frame."""
        return self._rival.frame(data)

    def serialize(self, data: list[float]) -> bytes:
        """Return JSON."""
        return json.dumps({"value": data}).encode()

    def forward(self, data: list[npt.NDArray[Any]]) -> list[list[float]]:
        """Run one batch."""
        return [first_value(frame) for frame in data]


def main() -> None:
    """Serve until SIGTERM."""
    rival = Rival.told()
    server = Server()
    server.append_worker(FirstValue, num=1, max_batch_size=rival.most, max_wait_time=rival.wait_ms)
    server.run()


if __name__ == "__main__":
    main()
