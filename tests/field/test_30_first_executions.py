"""Field report 30: the first call of each shape and batch size takes hundreds of ms; a larger batch may be faster.

The second half, times that never fall with the batch, is ``tests/core/test_profile.py``.
"""

import asyncio
import time

from gateway.core.actions import DeliverFrames, PenaltyChanged
from gateway.core.profile import Profile
from gateway.core.types import Outcome
from tests.runtime_support import admitted, frame, make_profile, running_gateway
from tests.stand_in import StandIn

LARGE, SMALL = (16, 16, 3), (8, 8, 3)
LARGEST = 8


def profile() -> Profile:
    entries = [
        entry
        for shape, ms in ((LARGE, 100.0), (SMALL, 60.0))
        for entry in make_profile(shapes=[shape], execution_ms=ms).entries
    ]
    return Profile(tuple(entries))


class Watcher:
    def __init__(self):
        self.jobs, self.changes = [], []

    def on_actions(self, now_ns, event, actions):
        self.jobs += [action for action in actions if isinstance(action, DeliverFrames)]
        self.changes += [action for action in actions if isinstance(action, PenaltyChanged)]


def test_no_frame_meets_a_first_execution(length):
    first_s = length(0.2, 0.8)
    seen, watcher = set(), Watcher()

    def delay_s(call):
        new = (call.shape, call.rows) not in seen
        seen.add((call.shape, call.rows))
        return first_s if new else 0.002

    async def main():
        async with StandIn() as triton:
            triton.delay_s = delay_s
            began = time.monotonic()
            async with running_gateway(triton.url, profile(), wait_ready=False, observers=[watcher]) as gateway:
                while not gateway.ready:
                    assert time.monotonic() - began < 60
                    await asyncio.sleep(0.02)
                assert {(shape[1:], rows) for shape, rows in seen} == {
                    (shape, rows) for shape in (LARGE, SMALL) for rows in range(1, LARGEST + 1)
                }
                assert time.monotonic() - began > 2 * LARGEST * first_s, "ready before it was warm"
                stream = await admitted(gateway, shape=LARGE, period_ms=350, deadline_ms=700, burst=LARGEST)
                for size in range(1, LARGEST + 1):
                    # A body of so many frames forms one batch: the device is idle, and nothing else waits.
                    tickets = gateway.submit(stream.stream_id, frame(size, LARGE) * size)
                    results = [await ticket.result for ticket in tickets]
                    assert {result.outcome for result in results} == {Outcome.MET}
                    assert max(result.latency_ms for result in results) < first_s * 1_000
                    await asyncio.sleep(0.36)

    asyncio.run(main())
    assert {len(job.job.frames) for job in watcher.jobs} == set(range(1, LARGEST + 1))
    assert watcher.changes == []
