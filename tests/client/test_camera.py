"""The camera sends open-loop; on a clock that only moves when somebody waits."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import numpy as np
import pytest
from stub_gateway import StubGateway, problem

from gateway.client.camera import Camera
from gateway.client.client import FramegateClient
from gateway.client.reader import MemoryFeed
from gateway.client.stats import Stats
from gateway.client.types import FrameResult
from gateway.client.video import VideoFrame

SHAPE = (4, 6, 3)
FRAMES = [VideoFrame(index, np.full(SHAPE, index, np.uint8)) for index in range(5)]
MS = 1_000_000


class FakeClock:
    """Time passes when the camera sleeps, by what it asked for plus what `late` says."""

    def __init__(self, late_ms=()):
        self.now = 1_000 * MS
        self.late_ms = list(late_ms)

    def now_ns(self):
        return self.now

    async def sleep(self, seconds):
        self.now += round(seconds * 1e9) + (self.late_ms.pop(0) * MS if self.late_ms else 0)
        for _ in range(50):  # let posts that need no time be answered
            await asyncio.sleep(0)


class ListFeed(MemoryFeed):
    """Ends after the given frames; None stands for a frame that is not decoded yet."""

    def __init__(self, frames):
        self.frames = list(frames)

    @property
    def ended(self):
        return not self.frames

    def take(self):
        return self.frames.pop(0) if self.frames else None


def film(stub, clock, feed, *, drain_s=10.0, max_in_flight=None, contract=None, **run):
    """Run one 10 fps camera; return it and what it reported."""
    seen = []

    async def main():
        async with FramegateClient("http://stub", transport=httpx.ASGITransport(stub.app())) as client:
            handle = await client.register("m", SHAPE, deadline_ms=200, **(contract or {"fps": 10}))
            camera = Camera(
                client,
                handle,
                feed,
                max_in_flight=max_in_flight,
                on_frame=seen.append,
                now_ns=clock.now_ns,
                sleep=clock.sleep,
            )
            await camera.run(**run)
            await camera.drain(drain_s)
            return camera

    return asyncio.run(main()), seen


def test_frames_go_out_on_the_absolute_schedule():
    clock = FakeClock(late_ms=[5, 20, 0, 24, 3])
    camera, seen = film(StubGateway(), clock, MemoryFeed(FRAMES), start_ns=1_050 * MS, frames=6)
    assert [(sent.sent_ns - 1_050 * MS) // MS for sent in seen] == [5, 120, 200, 324, 403, 500]
    assert [sent.frame.index for sent in seen] == [0, 1, 2, 3, 4, 0]
    assert camera.stats.as_dict() == {
        "frames": 6,
        "met": 6,
        "missed": 0,
        "expired": 0,
        "cancelled": 0,
        "failed": 0,
        "refused_frames": 0,
        "refused_by_code": {},
        "lost": 0,
        "skipped": 0,
        "skipped_by_reason": {"no_picture": 0, "late": 0, "in_flight": 0},
        "p50_latency_ms": 12.5,
        "p99_latency_ms": 12.5,
        "mean_batch": 2.0,
    }


def test_groups_go_out_together_once_in_a_period():
    stub, clock = StubGateway(), FakeClock()
    contract = {"period_ms": 300, "burst": 3}  # 10 fps of video
    camera, seen = film(stub, clock, MemoryFeed(FRAMES), contract=contract, start_ns=1_000 * MS, frames=8)
    assert [sent.tick for sent in seen] == list(range(8))
    # a group when its last frame is there, and what is left at the end not before its period is over
    assert [sent.sent_ns // MS - 1_000 for sent in seen] == [200] * 3 + [500] * 3 + [800] * 2
    assert [sent.result.seq for sent in seen] == list(range(8))
    assert (camera.stats.sent, camera.stats.outcomes["met"], camera.in_flight) == (8, 8, 0)


@pytest.mark.parametrize(("frames", "last_ms"), [(2, 100), (5, 500), (6, 500), (7, 800)])
def test_two_groups_are_never_closer_than_a_period(frames, last_ms):
    """Also the last one, which need not be full: sent as it ends, it would be surplus."""
    contract = {"period_ms": 300, "burst": 3}
    feed = ListFeed(FRAMES[:1] * frames)
    camera, seen = film(StubGateway(), FakeClock(), feed, contract=contract, start_ns=1_000 * MS)
    assert len(seen) == camera.stats.sent == frames
    assert seen[-1].sent_ns // MS - 1_000 == last_ms


def test_a_stream_that_ends_while_its_last_group_waits_gets_no_more():
    stub = StubGateway(frame_answers=[problem(410, "stream_closed", "closed")])
    contract = {"period_ms": 300, "burst": 3}
    camera, _ = film(stub, FakeClock(), ListFeed(FRAMES[:1] * 4), contract=contract)
    assert camera.ended_by.code == "stream_closed"
    assert camera.stats.sent == 3


def test_a_group_that_cannot_be_sent_is_skipped_or_refused_whole():
    stub = StubGateway(frame_answers=[problem(429, "surplus", "too many")])
    contract = {"period_ms": 300, "burst": 3}
    camera, seen = film(stub, FakeClock(), MemoryFeed(FRAMES), contract=contract, frames=6)
    assert (camera.stats.sent, camera.stats.refused, len(seen)) == (6, 3, 3)

    class Silent(StubGateway):
        async def frames(self, request):
            await asyncio.Event().wait()

    camera, _ = film(
        Silent(), FakeClock(), MemoryFeed(FRAMES), contract=contract, max_in_flight=1, until_ns=1_900 * MS, drain_s=0.05
    )
    assert (camera.stats.sent, camera.stats.lost, camera.stats.skips) == (3, 3, Counter({"in_flight": 6}))


def test_a_stall_skips_ticks_and_sends_no_burst():
    clock = FakeClock(late_ms=[0, 710])
    camera, seen = film(StubGateway(), clock, MemoryFeed(FRAMES), frames=11)
    assert [sent.tick for sent in seen] == [0, 1, 9, 10]
    assert camera.stats.skips == Counter({"late": 7})


def test_what_is_skipped_is_not_made_up_for_after_the_last_period():
    camera, seen = film(StubGateway(), FakeClock(late_ms=[0, 710]), MemoryFeed(FRAMES), frames=4)
    assert [sent.tick for sent in seen] == [0, 1]
    assert camera.stats.skips == Counter({"late": 2})
    assert camera.left(4) == 0
    feed = ListFeed([FRAMES[0], None, *FRAMES[1:]])
    camera, seen = film(StubGateway(), FakeClock(), feed, frames=3)
    assert [sent.tick for sent in seen] == [0, 2]
    assert camera.stats.skips == Counter({"no_picture": 1})


def test_it_stops_before_the_end_of_its_time():
    clock = FakeClock()
    camera, seen = film(StubGateway(), clock, MemoryFeed(FRAMES), until_ns=clock.now + 500 * MS)
    assert camera.stats.sent == len(seen) == 5


def test_it_ends_with_its_source_and_skips_ticks_without_a_frame():
    camera, seen = film(StubGateway(), FakeClock(), ListFeed([FRAMES[0], None, FRAMES[1]]))
    assert [(sent.tick, sent.frame.index) for sent in seen] == [(0, 0), (2, 1)]
    assert camera.stats.skips == Counter({"no_picture": 1})


def test_a_gateway_that_does_not_answer_bounds_the_posts_in_flight():
    class Silent(StubGateway):
        async def frames(self, request):
            await asyncio.Event().wait()

    camera, seen = film(Silent(), FakeClock(), MemoryFeed(FRAMES), max_in_flight=3, until_ns=2_000 * MS, drain_s=0.05)
    assert seen == []
    assert (camera.stats.sent, camera.stats.lost, camera.stats.skips) == (3, 3, Counter({"in_flight": 7}))
    assert camera.in_flight == 0


def test_a_stream_that_the_gateway_ends_stops_the_camera():
    stub = StubGateway(frame_answers=[problem(429, "surplus", "too many"), problem(410, "stream_closed", "closed")])
    camera, _ = film(stub, FakeClock(), MemoryFeed(FRAMES))
    assert camera.ended_by.code == "stream_closed"
    assert (camera.stats.sent, camera.stats.refused, camera.stats.answered) == (2, 2, 0)


def test_figures_of_several_cameras_add_up():
    parts = []
    for batch, latency in ((1, 10.0), (3, 30.0)):
        stats = Stats()
        stats.sent = batch
        for _ in range(batch):
            stats.add(FrameResult(0, "met", latency_ms=latency, batch=batch))
        parts.append(stats)
    parts[0].sent += 1
    parts[0].add(FrameResult(0, "expired", latency_ms=200.0))
    total = Stats.together(parts)
    assert (total.sent, total.answered) == (5, 5)
    assert total.mean_batch == pytest.approx(2.0)  # one job of one frame, one of three
    assert total.latency_ms(100) == 30.0  # an expired frame has no latency to speak of
    assert Stats().as_dict()["p50_latency_ms"] is None
