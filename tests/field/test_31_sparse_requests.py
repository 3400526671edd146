"""Field report 31: frames that come seldom take twice as long, for the device has gone to sleep in between."""

import asyncio
import time

from gateway.core.actions import PenaltyChanged
from gateway.core.profile import Profile
from gateway.core.types import Outcome
from gateway.core.verdict import Reason
from gateway.telemetry.metrics import Metrics
from tests.runtime_support import admitted, frame, gateway_on_stand_in, make_profile, make_spec

LARGE, SMALL = (16, 16, 3), (8, 8, 3)
LARGE_MS, SMALL_MS = 300.0, 150.0
PERIOD_S = 1.2
ASLEEP_S = 0.5


class SleepyDevice:
    """Takes 0.9 of the profiled time, and twice as long after half a second without work."""

    def __init__(self):
        self.last_end = 0.0
        self.cold = 0

    def __call__(self, call):
        asleep = time.monotonic() - self.last_end >= ASLEEP_S
        self.cold += asleep
        took = 0.9 * (LARGE_MS if call.shape[1:] == LARGE else SMALL_MS) / 1_000 * (2 if asleep else 1)
        self.last_end = time.monotonic() + took
        return took


class Watcher:
    def __init__(self):
        self.changes = []

    def on_actions(self, now_ns, event, actions):
        self.changes += [action for action in actions if isinstance(action, PenaltyChanged)]


def profile() -> Profile:
    entries = [
        entry
        for shape, ms in ((LARGE, LARGE_MS), (SMALL, SMALL_MS))
        for entry in make_profile(batches=(1, 2), shapes=[shape], execution_ms=ms).entries
    ]
    return Profile(tuple(entries))


def test_a_sleepy_device_is_shown_and_lowers_nothing(length):
    frames = length(5, 120)
    device, watcher, metrics = SleepyDevice(), Watcher(), Metrics("test")

    def drift_s():
        value = metrics.registry.get_sample_value
        return value("framegate_overrun_seconds_total", {"model": "echo", "cause": "cold"}) or 0.0

    async def main():
        async with gateway_on_stand_in(profile(), observers=[watcher, metrics]) as (gateway, triton):
            triton.delay_s = device
            # The shortest deadline that is admitted is twice the profiled time: what a sleepy device needs.
            refused = await gateway.register(make_spec(PERIOD_S * 1_000, 1.2 * LARGE_MS, shape=LARGE, frames=frames))
            assert refused.stream is None
            assert refused.verdict.reason in {Reason.DEADLINE_MISS, Reason.DEADLINE_INFEASIBLE}
            stream = await admitted(
                gateway, shape=LARGE, period_ms=PERIOD_S * 1_000, deadline_ms=2.2 * LARGE_MS, frames=frames
            )
            results = []
            for n in range(frames):
                results += [await ticket.result for ticket in gateway.submit(stream.stream_id, frame(n % 256, LARGE))]
                await asyncio.sleep(PERIOD_S - results[-1].latency_ms / 1_000)
            assert {result.outcome for result in results} == {Outcome.MET}
            assert not any(result.degraded for result in results)
            assert all(result.execute_ms > 1.5 * LARGE_MS for result in results)

    asyncio.run(main())
    assert device.cold == frames
    assert watcher.changes == []
    assert drift_s() > frames * LARGE_MS / 1_000 * 0.5
