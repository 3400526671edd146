"""Field report 16: the device is slower than the cameras, and results are for frames that are older and older."""

import asyncio

from gateway.core.actions import StartJob
from gateway.core.types import Outcome
from tests.field.support import MB, rss_bytes
from tests.runtime_support import admitted, frame, gateway_on_stand_in, make_profile

EXECUTION_MS, PERIOD_MS, DEADLINE_MS = 20.0, 50, 200


class Watcher:
    """Keeps the age of the frames of each job at its start."""

    def __init__(self):
        self.ages_ms = []

    def on_actions(self, now_ns, event, actions):
        for action in actions:
            if isinstance(action, StartJob):
                self.ages_ms += [(now_ns - f.arrival_ns) / 1e6 for f in action.job.frames]


def test_no_frame_is_sent_that_cannot_be_in_time(length):
    """The device takes one frame at a time, and twice the period for it; then it is itself again."""

    async def main():
        watcher = Watcher()
        profile = make_profile(batches=(1,), execution_ms=EXECUTION_MS)
        async with gateway_on_stand_in(profile, observers=[watcher], scheduling={"adaptation": False}) as (
            gateway,
            triton,
        ):
            stream = await admitted(gateway, period_ms=PERIOD_MS, deadline_ms=DEADLINE_MS)
            loop = asyncio.get_running_loop()

            async def send(seconds):
                tickets, most = [], 0
                begin = loop.time()
                for n in range(round(seconds * 1e3 / PERIOD_MS)):
                    await asyncio.sleep(max(0.0, begin + n * PERIOD_MS / 1e3 - loop.time()))
                    tickets += gateway.submit(stream.stream_id, frame(n % 256))
                    most = max(most, stream.in_flight)
                return [ticket.result for ticket in tickets], most

            triton.delay_s = lambda call: 2 * PERIOD_MS / 1e3
            before = rss_bytes()
            pending, most = await send(length(3.0, 30.0))
            results = await asyncio.gather(*pending)
            assert rss_bytes() - before < 20 * MB
            assert most <= DEADLINE_MS / PERIOD_MS + 2, "the queue is bounded by the deadline"
            assert max(watcher.ages_ms) + EXECUTION_MS <= DEADLINE_MS + 1
            assert {r.outcome for r in results} <= {Outcome.MET, Outcome.MISSED, Outcome.EXPIRED}
            assert {r.reason for r in results if r.outcome is Outcome.EXPIRED} <= {"expired", "too_late"}
            triton.delay_s = lambda call: 0.0
            pending, _ = await send(1.0)
            results = await asyncio.gather(*pending)
            assert {result.outcome for result in results[2:]} == {Outcome.MET}, "within two periods all is well again"

    asyncio.run(main())
