"""Jobs that wait in a real Triton: they execute one after the other, in order, and the device stands still for less."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from gateway.core.actions import DeliverFrames
from gateway.core.types import OnLate, Outcome
from gateway.triton.embedded import EmbeddedTriton
from tests.runtime_support import admitted, frame, make_profile, running_gateway

pytestmark = pytest.mark.e2e

EXECUTION_S = 0.03
FRAMES = 12
#: Says when it began and ended, on the clock of the machine.
_PYTHON = f"""
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            began = time.monotonic_ns()
            frames = pb_utils.get_input_tensor_by_name(request, "frames").as_numpy()
            time.sleep({EXECUTION_S})
            times = np.array([[began, time.monotonic_ns()]] * len(frames), np.int64)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("times", times)]))
        return responses
"""
_CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 1
input [ {{ name: "frames" data_type: TYPE_UINT8 dims: [ 8, 8, 3 ] }} ]
output [ {{ name: "times" data_type: TYPE_INT64 dims: [ 2 ] }} ]
instance_group [ {{ count: 1 rate_limiter {{ resources [ {{ name: "device" global: true count: 1 }} ] }} }} ]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTriton]:
    folder: Path = tmp_path_factory.mktemp("ahead")
    repository = folder / "models"
    for name in ("one", "two"):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(_CONFIG.format(name=name))
        (repository / name / "1" / "model.py").write_text(_PYTHON)
    with EmbeddedTriton(repository, folder / "triton.log", models=["one", "two"]) as triton:
        yield triton


class Started:
    """An observer: which jobs were delivered, and how many of them were sent ahead."""

    def __init__(self) -> None:
        self.jobs = self.ahead = 0

    def on_actions(self, _now_ns: int, _event: object, actions: list[object]) -> None:
        for action in actions:
            if isinstance(action, DeliverFrames):
                self.jobs += 1
                self.ahead += action.job.ahead


def executions(server: EmbeddedTriton, send_ahead_ms: float) -> tuple[list[tuple[int, int]], Started]:
    """Send frames of two models at once; return when each was executed, in the order of their deadlines."""
    started = Started()

    async def main() -> list[tuple[int, int]]:
        profile = make_profile(batches=(1,), models=("one", "two"), execution_ms=1e3 * EXECUTION_S + 5)
        async with running_gateway(
            server.grpc_url,
            profile,
            observers=(started,),
            triton=server.settings,
            scheduling={"send_ahead_ms": send_ahead_ms},
        ) as gateway:
            streams = [
                await admitted(gateway, model=model, period_ms=1_000, deadline_ms=5_000, on_late=OnLate.SERVE)
                for model in ("one", "two")
            ]
            tickets = [gateway.submit(streams[n % 2].stream_id, frame(n))[0] for n in range(FRAMES)]
            results = [await ticket.result for ticket in tickets]
        assert {result.outcome for result in results} == {Outcome.MET}
        times = [result.outputs["times"] for result in results if result.outputs]
        return [(int(began), int(ended)) for began, ended in map(np.ravel, times)]

    return asyncio.run(main()), started


def test_they_execute_strictly_one_after_the_other(server: EmbeddedTriton) -> None:
    ahead, started = executions(server, 10.0)
    assert started.jobs == FRAMES
    assert started.ahead >= FRAMES // 2, "all but the first, on a quiet machine"
    for (_, ended_ns), (began_ns, _) in pairwise(ahead):
        assert began_ns >= ended_ns, "two at once, or in another order"
    in_turn, started = executions(server, 0.0)
    assert started.ahead == 0
    assert _gap_ns(ahead) < _gap_ns(in_turn)


def _gap_ns(times: list[tuple[int, int]]) -> float:
    """How long the device usually stood still between two jobs."""
    return median(began_ns - ended_ns for (_, ended_ns), (began_ns, _) in pairwise(times))
